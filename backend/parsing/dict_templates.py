"""The first dict that a trainer prints into a template: the next ones differ in their numbers only and are read by it.

A template is exact: it fits a line only when everything but the numbers is the same, letter by letter; other lines are left to
`trainer_dict`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.parsing.lines import decode_text, read_origin
from backend.parsing.trainer_dict import TrainerDict, is_rounded, value_spans

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|-?inf")
_GROUP = b"([-+\\d.e]++|nan|-?inf)"
_MAY_ROUND = re.compile(rb"\{'(?:loss|reward)': -?\d.*'learning_rate': \d")
_MAX_KNOWN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class DictTemplate:
    """`names` are those of the groups of `pattern`; `may_round`: LLaMA-Factory's callback prints such dicts with four digits."""

    pattern: re.Pattern[bytes]
    names: tuple[str, ...]
    kind: str
    may_round: bool

    def read(self, line: bytes, brace: int) -> TrainerDict | None:
        """The dict that begins at `brace` and ends the line, None when the line is another one."""
        match = self.pattern.fullmatch(line, brace)
        if match is None:
            return None
        try:
            values = dict(zip(self.names, map(float, match.groups()), strict=True))
        except ValueError:
            return None
        return TrainerDict(self.kind, values, 0, 0, self.may_round and is_rounded(line[brace:].decode()))


def build_template(line: bytes, found: TrainerDict) -> DictTemplate | None:
    """The template of a line that ends with the dict `found`; None when a value is no plain number."""
    brace = line.find(b"{")
    parts, names, at = [], [], brace
    for name, start, stop in value_spans(line, brace):
        if not _NUMBER.fullmatch(line, start, stop):
            return None
        parts.append(re.escape(line[at:start]))
        names.append(name)
        at = stop
    if set(names) != set(found.values):
        return None
    parts.append(re.escape(line[at:]))
    may_round = _MAY_ROUND.match(line, brace) is not None
    return DictTemplate(
        pattern=re.compile(_GROUP.join(parts)), names=tuple(names), kind=found.kind, may_round=may_round
    )


class DictTemplates:
    """Templates by the shape of the whole line, and the hosts that prefixes name."""

    def __init__(self) -> None:
        self._known: dict[bytes, DictTemplate | None] = {}
        self._hosts: dict[bytes, str | None] = {b"": None}

    def learn(self, shape: bytes, line: bytes, found: TrainerDict) -> None:
        """A line that holds this dict, in front of it at most a prefix, and nothing behind it."""
        if len(self._known) < _MAX_KNOWN and shape not in self._known:
            self._known[shape] = build_template(line, found)

    def read(self, shape: bytes, line: bytes) -> tuple[TrainerDict, str | None] | None:
        """The dict of a line and the host that its prefix names; None when no template fits."""
        template = self._known.get(shape)
        if template is None:
            return None
        brace = line.find(b"{")
        found = template.read(line, brace)
        return None if found is None else (found, self._host_of(line[:brace]))

    def _host_of(self, prefix: bytes) -> str | None:
        if prefix not in self._hosts:
            if len(self._hosts) >= _MAX_KNOWN:
                self._hosts = {b"": None}
            self._hosts[prefix] = read_origin(decode_text(prefix) + "{'loss': 1}").host
        return self._hosts[prefix]
