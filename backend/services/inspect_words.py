"""Codes of our rules -> words of `inspect`: fine codes, each with its own text, are told apart by the page, not by a script."""

from __future__ import annotations

WORDS = {
    **dict.fromkeys(
        (
            "misspelt_key",
            "removable_key",
            "replaced_key",
            "compute_type",
            "interface_key",
            "other_backend_key",
            "fork_key",
            "config_flag",
            "deepspeed_unknown_key",
            "deepspeed_misspelt_key",
            "zero_partition_grads",
            "deepspeed_key_ignored",
            "deepspeed_key_ignored_near",
            "deepspeed_key_misplaced",
        ),
        "unknown_key",
    ),
    **dict.fromkeys(
        (
            "attention_value",
            "attention_fa3",
            "aux_quantization_bits",
            "quantization_bits",
            "wrong_type",
            "out_of_range",
            "flag_without_value",
            "reporter_unknown",
            "formatting_unknown",
            "label_not_boolean",
        ),
        "bad_choice",
    ),
    **dict.fromkeys(
        ("reward_model_missing", "column_missing", "columns_unknown", "formatting_missing", "entry_without_source"),
        "missing_key",
    ),
    "obsolete_flag_gone": "obsolete_flag",
    "qlora_with_zero3": "quantized_with_zero3",
    "several_arrays": "concatenated_objects",
    "comma_between_lines": "not_valid_json",
    "not_utf8": "not_valid_json",
}


def word_of(code: str) -> str:
    """The word for a code; a code that is a word already stays."""
    return WORDS.get(code, code)
