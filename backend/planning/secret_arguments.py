"""Arguments of the trainer that hold a secret -> the environment variable that the same library reads instead."""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.problem import ArgValue

VARIABLES = {
    "hf_hub_token": "HF_TOKEN",
    "hub_token": "HF_TOKEN",
    "ms_hub_token": "MODELSCOPE_API_TOKEN",
    "swanlab_api_key": "SWANLAB_API_KEY",
}
"""Without the argument huggingface_hub, modelscope and swanlab take the token from here (their sources say so)."""

_WITHOUT = ("om_hub_token", "swanlab_lark_secret", "swanlab_lark_webhook_url")
_ENDINGS = ("_api_key", "_hub_token", "_access_token", "_auth_token", "_secret", "_password")


def has_no_variable(name: str) -> bool:
    """A secret that only the train YAML can give to the trainer: it would stand there for everyone to read."""
    return name in _WITHOUT or (name.endswith(_ENDINGS) and name not in VARIABLES)


def given_secrets(train: Mapping[str, ArgValue]) -> dict[str, str]:
    """Argument -> value, of those that a variable can hold and that say something."""
    return {name: str(train[name]) for name in VARIABLES if train.get(name)}


def move_secrets(train: Mapping[str, ArgValue], env: Mapping[str, str]) -> tuple[dict[str, ArgValue], dict[str, str]]:
    """Both without such arguments and with their variables. An argument wins over a variable, as it does in the trainer."""
    given = given_secrets(train)
    moved = {VARIABLES[name]: value for name, value in reversed(given.items())}
    return {name: value for name, value in train.items() if name not in given}, {**env, **moved}
