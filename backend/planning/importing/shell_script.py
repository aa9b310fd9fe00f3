"""Shell or Slurm script -> ShellScript: the simple commands in order, variables expanded, `#SBATCH` options apart.

Read, never run: command substitutions and unknown variables stay as they are written. Loops are read once with the
last value, both branches of an `if` are taken in order, so the last launch command of a script is seen as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_CHARACTERS = 1 << 20
_MAX_COMMANDS = 2_000
_MAX_EXPANSION = 20_000

_OTHER_SHELLS = re.compile(r"[ \t](?:\^|`)[ \t]*\n")
"""Line continuations of cmd and PowerShell, which Windows tutorials use."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_KEYWORDS = frozenset(
    ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "fi", "done", "esac", "time")
)
_SBATCH_SHORT = {
    "N": "nodes",
    "n": "ntasks",
    "t": "time",
    "J": "job-name",
    "p": "partition",
    "c": "cpus-per-task",
    "G": "gpus",
    "o": "output",
    "e": "error",
    "A": "account",
    "w": "nodelist",
    "D": "chdir",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """`$NAME`, `${NAME}`, `${NAME:-default}` inside a word."""

    name: str
    quoted: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """Text of a word. `quoted` text is never split and never taken for an operator."""

    text: str
    quoted: bool


Part = Literal | Variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command. `environment`: what the script has exported before, then the assignments in front of it."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    inline: Mapping[str, str]
    line: int
    text: str
    names: tuple[str, ...] = ()
    """Variables that stand in its words (by name, expanded or not)."""
    background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """`exports` is what the script leaves exported, `export_lines` where; `unset` what it removes."""

    commands: tuple[Command, ...]
    exports: Mapping[str, str] = field(default_factory=dict)
    export_lines: Mapping[str, int] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    sbatch: Mapping[str, str] = field(default_factory=dict)
    shebang: str = ""
    documents: Mapping[str, str] = field(default_factory=dict)
    """Files that the script writes itself (`cat > x.yaml <<EOF`), by name, variables filled in as far as they are known."""
    broken_continuations: tuple[int, ...] = ()
    """Lines that end in a backslash and blanks: the shell ends the command there."""


def parse_shell(text: str) -> ShellScript:
    """Never raises: what cannot be read as shell ends up as words of a command."""
    text = text[:MAX_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    text = _OTHER_SHELLS.sub(" \\\\\n", text)
    lines = text.split("\n")
    state = _State()
    plain, documents = _cut_heredocs(text)
    for statement in _statements(plain):
        if len(state.commands) >= _MAX_COMMANDS:
            break
        state.take(statement)
    return ShellScript(
        commands=tuple(state.commands),
        exports={name: state.variables[name] for name in state.exported if name in state.variables},
        export_lines={name: line for name, line in state.exported.items() if name in state.variables},
        unset=tuple(state.unset),
        documents={state.fill(name): state.fill(body) if filled else body for name, body, filled in documents},
        sbatch=_sbatch(lines),
        shebang=lines[0][2:].strip() if lines[0].startswith("#!") else "",
        broken_continuations=tuple(
            number
            for number, line in enumerate(lines, 1)
            if re.search(r"\\[ \t]+$", line) and not line.strip().startswith("#")
        ),
    )


def split_command(text: str) -> tuple[str, ...]:
    """Words of one command line (the last simple command of `text`)."""
    commands = parse_shell(text).commands
    return commands[-1].words if commands else ()


# --- from text to statements ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Word:
    parts: tuple[Part, ...]
    array: tuple[_Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Statement:
    words: tuple[_Word, ...]
    line: int
    text: str
    end: str


_HEREDOC = re.compile(r"<<(-?)\s*([\"'\\]?)([A-Za-z_]\w*)[\"']?")


def _cut_heredocs(text: str) -> tuple[str, list[tuple[str, str, bool]]]:
    """The text with the bodies of here-documents blanked (line numbers stay), and (file, body, expanded) of each."""
    out: list[str] = []
    documents: list[tuple[str, str, bool]] = []
    waiting: list[tuple[str, str, bool, bool]] = []
    body: list[str] = []
    for line in text.split("\n"):
        if not waiting:
            out.append(line)
            for match in _HEREDOC.finditer(_uncommented(line)):
                waiting.append((match[3], _written_file(line), not match[2], bool(match[1])))
            continue
        end, name, filled, indented = waiting[0]
        out.append("")
        if (line.strip("\t ") if indented else line.strip()) == end:
            if name:
                documents.append((name, "\n".join(body) + "\n", filled))
            waiting.pop(0)
            body = []
        else:
            body.append(line.lstrip("\t") if indented else line)
    return "\n".join(out), documents


def _written_file(line: str) -> str:
    """The file that a line with a here-document writes: `cat > FILE <<EOF`, `tee FILE <<EOF`."""
    match = re.search(r"(?<![0-9&<])>{1,2}\|?\s*([\"']?)([^\s\"'<>|;&]+)\1", line) or re.search(
        r"\btee\s+(?:-a\s+)?([\"']?)([^\s\"'<>|;&]+)\1", line
    )
    return match[2] if match else ""


def _uncommented(line: str) -> str:
    return "" if line.lstrip().startswith("#") else line


def _statements(text: str) -> Iterator[_Statement]:
    """Simple commands between `;`, `&&`, `||`, `|`, `&`, brackets and line ends."""
    reader = _Reader(text)
    words: list[_Word] = []
    start, line = 0, 1
    while True:
        word = reader.next_word()
        if isinstance(word, _Word):
            if not words:
                start, line = reader.word_start, reader.line_of(reader.word_start)
            words.append(word)
            continue
        if words:
            yield _Statement(tuple(words), line, text[start : reader.word_start].strip(), word or "\n")
            words = []
        if word is None:
            return


class _Reader:
    """Cuts text into words and operators; a word keeps what was quoted and which variables it names."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.word_start = text, 0, 0
        self._line_at, self._line = 0, 1

    def line_of(self, index: int) -> int:
        self._line += self.text.count("\n", self._line_at, index)
        self._line_at = index
        return self._line

    def next_word(self) -> _Word | str | None:
        """A word, an operator, or None at the end."""
        self._skip_blanks()
        self.word_start = self.at
        if self.at >= len(self.text):
            return None
        char = self.text[self.at]
        if char in "\n;&|()":
            self.at += 1
            return char
        if char in "<>":
            return self._redirection()
        word = self._word()
        if self.text[self.at : self.at + 1] in ("<", ">") and _plain(word).isdigit():
            return self._redirection()
        return word

    def _skip_blanks(self) -> None:
        text, size = self.text, len(self.text)
        while self.at < size:
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\\" and text[self.at + 1 : self.at + 2] == "\n":
                self.at += 2
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = size if end < 0 else end
            else:
                return

    def _redirection(self) -> _Word | str | None:
        while self.at < len(self.text) and self.text[self.at] in "<>&":
            self.at += 1
        if self.text[self.at : self.at + 1] == "(":
            return self._word()
        self._skip_blanks()
        if self.at < len(self.text) and self.text[self.at] not in "\n;|()":
            self._word()
        return self.next_word()

    def _word(self) -> _Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;|()<>" or (char == "&" and not parts):
                if char == "(" and self._opens_array(parts):
                    return _Word(tuple(parts), self._array())
                break
            if char == "&":
                break
            parts.extend(self._part(char))
        if not parts:
            self.at += 1
            parts = [Literal("", False)]
        return _Word(tuple(parts))

    def _opens_array(self, parts: list[Part]) -> bool:
        return (
            len(parts) == 1 and isinstance(parts[0], Literal) and bool(re.fullmatch(r"[A-Za-z_]\w*\+?=", parts[0].text))
        )

    def _array(self) -> tuple[_Word, ...]:
        self.at += 1
        items: list[_Word] = []
        while True:
            item = self.next_word()
            if item is None or item == ")":
                return tuple(items)
            if isinstance(item, _Word):
                items.append(item)

    def _part(self, char: str) -> list[Part]:
        if char == "'":
            return [Literal(self._until("'"), True)]
        if char == '"':
            return self._double_quoted()
        if char == "\\":
            escaped = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            return [] if escaped == "\n" else [Literal(escaped, True)]
        if char == "$":
            return [self._dollar(quoted=False)]
        if char == "`":
            return [Literal(f"`{self._until('`')}`", True)]
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;|()<>&'\"\\$`":
            self.at += 1
        return [Literal(self.text[start : self.at], False)]

    def _until(self, mark: str) -> str:
        start = self.at + 1
        end = self.text.find(mark, start)
        end = len(self.text) if end < 0 else end
        self.at = end + 1
        return self.text[start:end]

    def _double_quoted(self) -> list[Part]:
        self.at += 1
        parts: list[Part] = []
        plain: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                if self.text[self.at + 1] != "\n":
                    plain.append(self.text[self.at + 1])
                self.at += 2
            elif char == "$":
                parts.append(Literal("".join(plain), True))
                plain = []
                parts.append(self._dollar(quoted=True))
            elif char == "`":
                plain.append(f"`{self._until('`')}`")
            else:
                plain.append(char)
                self.at += 1
        self.at += 1
        parts.append(Literal("".join(plain), True))
        return parts

    def _dollar(self, *, quoted: bool) -> Part:
        text, start = self.text, self.at
        if text.startswith("$((", start):
            return Literal(self._bracketed("$((", "))"), True)
        if text.startswith("$(", start):
            return Literal(self._bracketed("$(", ")"), True)
        if text.startswith("${", start):
            inner = self._bracketed("${", "}")[2:-1]
            return _braced(inner, quoted)
        match = re.match(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])", text[start:])
        if not match:
            self.at += 1
            return Literal("$", quoted)
        self.at += len(match[0])
        return Variable(match[1], quoted)

    def _bracketed(self, opening: str, closing: str) -> str:
        """The text from `opening` to its balanced end, quotes inside respected."""
        start, self.at, depth = self.at, self.at + len(opening), 1
        single = closing[0]
        opener = "(" if single == ")" else "{"
        depth = len(closing)
        while self.at < len(self.text) and depth:
            char = self.text[self.at]
            if char == "\\":
                self.at += 2
                continue
            if char in "'\"":
                self._until(char)
                continue
            depth += (char == opener) - (char == single)
            self.at += 1
        return self.text[start : self.at]


def _braced(inner: str, quoted: bool) -> Part:
    match = re.fullmatch(r"([A-Za-z_]\w*|[0-9@*#?])(?:\[[@*]\])?(?:(:?[-=+?])(.*))?", inner, re.S)
    if not match:
        name = re.match(r"#?([A-Za-z_]\w*)", inner)
        return Variable(name[1], quoted, None) if name and inner == name[1] else Literal("${" + inner + "}", True)
    default = match[3] if match[2] in (":-", "-", ":=", "=") else None
    return Variable(match[1], quoted, default)


# --- from statements to commands, in order -------------------------------------------------------------------------


class _State:
    """Variables as they stand while a script is read from top to bottom."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, tuple[str, ...]] = {}
        self.exported: dict[str, int] = {}
        self.unset: list[str] = []
        self.commands: list[Command] = []
        self.export_all = False

    def take(self, statement: _Statement) -> None:
        words = list(statement.words)
        while words and _plain(words[0]) in _KEYWORDS:
            words.pop(0)
        if words and _plain(words[0]) in ("for", "case", "select", "function"):
            self._loop(words)
            return
        inline: dict[str, str] = {}
        while words and self._assign(words[0], inline):
            words.pop(0)
            if not words:
                self._keep(inline, statement.line)
                return
        if not words:
            return
        expanded = [text for word in words for text in self._expand(word)]
        if not expanded or self._builtin(expanded, words, statement.line):
            return
        self.commands.append(
            Command(
                words=tuple(expanded),
                environment={**{n: self.variables.get(n, "") for n in self.exported}, **inline},
                inline=inline,
                line=statement.line,
                text=statement.text,
                names=tuple(dict.fromkeys(n for word in words for n in _names(word))),
                background=statement.end == "&",
            )
        )

    def _loop(self, words: list[_Word]) -> None:
        """`for x in a b c`: x gets the last word, as it stands when the last launch runs."""
        if _plain(words[0]) == "for" and len(words) > 3 and _plain(words[2]) == "in":
            values = [text for word in words[3:] for text in self._expand(word)]
            if values:
                self.variables[_plain(words[1])] = values[-1]

    def _keep(self, assigned: Mapping[str, str], line: int) -> None:
        self.variables.update(assigned)
        for name in assigned:
            if self.export_all:
                self.exported.setdefault(name, line)

    def _assign(self, word: _Word, inline: dict[str, str]) -> str:
        first = word.parts[0] if word.parts else None
        if not isinstance(first, Literal) or first.quoted:
            return ""
        match = _ASSIGNMENT.match(first.text)
        if not match:
            return ""
        name = match[1]
        if word.array is not None:
            items = tuple(text for item in word.array for text in self._expand(item))
            self.arrays[name] = (*self.arrays.get(name, ()), *items) if match[2] else items
            inline[name] = " ".join(self.arrays[name])
            return name
        rest = (Literal(first.text[match.end() :], False), *word.parts[1:])
        value = "".join(self._text(part) for part in rest)
        inline[name] = self.variables.get(name, "") + value if match[2] else value
        return name

    def _builtin(self, expanded: list[str], words: list[_Word], line: int) -> bool:
        head = expanded[0]
        if head in ("export", "declare", "typeset", "readonly", "local", "setenv"):
            self._export(expanded, words, line)
            return True
        if head == "unset":
            for name in expanded[1:]:
                self.variables.pop(name, None)
                self.exported.pop(name, None)
                if not name.startswith("-"):
                    self.unset.append(name)
            return True
        if head == "set":
            if len(expanded) == 2 and "=" in expanded[1]:  # cmd: `set NAME=value`
                name, _, value = expanded[1].partition("=")
                self.variables[name] = value
                self.exported[name] = line
            self.export_all = "-a" in expanded or (self.export_all and "+a" not in expanded)
            return True
        return head in (
            "echo",
            "cd",
            "source",
            ".",
            "module",
            "wait",
            "exit",
            "trap",
            "ulimit",
            "mkdir",
            "[",
            "[[",
            "test",
        )

    def _export(self, expanded: list[str], words: list[_Word], line: int) -> None:
        head = expanded[0]
        if head == "setenv" and len(expanded) >= 3:
            self.variables[expanded[1]] = expanded[2]
            self.exported[expanded[1]] = line
            return
        exports = head == "export" or any(text.startswith("-") and "x" in text for text in expanded[1:])
        for word in words[1:]:
            assigned: dict[str, str] = {}
            name = self._assign(word, assigned) or _plain(word)
            self.variables.update(assigned)
            if exports and re.fullmatch(r"[A-Za-z_]\w*", name):
                self.exported[name] = line

    def _expand(self, word: _Word) -> list[str]:
        """One word -> the words the shell makes of it: unquoted variables are split at blanks."""
        filled = [part for part in word.parts if isinstance(part, Variable) or part.text]
        if len(filled) == 1 and isinstance(only := filled[0], Variable) and only.name in self.arrays:
            return list(self.arrays[only.name])
        out: list[str] = [""]
        started = False
        for part in word.parts:
            text = self._text(part)
            if isinstance(part, Variable) and not part.quoted and (" " in text or "\n" in text):
                pieces = text.split()
                out[-1] += pieces[0] if pieces else ""
                out.extend(pieces[1:])
                started = started or bool(pieces)
            else:
                out[-1] += text
                started = started or bool(text) or (isinstance(part, Literal) and part.quoted)
        return [text[:_MAX_EXPANSION] for text in out] if started else []

    def _text(self, part: Part) -> str:
        if isinstance(part, Variable):
            known = self.variables.get(part.name)
            if known is not None and known.startswith(("$(", "`")):
                return f"${part.name}"
            if known is not None and (known or part.default is None):
                return known
            if part.default is not None:
                return self._inner(part.default)
            return f"${part.name}"
        if part.text.startswith("$((") and part.quoted:
            return self._arithmetic(part.text)
        return part.text

    def fill(self, text: str) -> str:
        """Text with the variables that are known at the end of the script."""
        return re.sub(
            r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)",
            lambda m: self.variables.get(m[1] or m[3]) or (m[2] if m[2] is not None else m[0]),
            text,
        )

    def _inner(self, text: str) -> str:
        return re.sub(r"\$\{?([A-Za-z_]\w*)\}?", lambda m: self.variables.get(m[1], m[0]), text.strip("\"'"))[
            :_MAX_EXPANSION
        ]

    def _arithmetic(self, text: str) -> str:
        """`$((4 * N))` when every name is known and only + - * / are used; else the text as written."""
        inner = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: self.variables.get(m[1], m[0]), text[3:-2])
        match = re.fullmatch(r"\s*(-?\d{1,9})\s*(?:([-+*/])\s*(\d{1,9})\s*)?", inner)
        if not match:
            return text
        left, sign, right = int(match[1]), match[2], int(match[3] or 0)
        if sign == "/" and right == 0:
            return text
        return str({"+": left + right, "-": left - right, "*": left * right, "/": left // (right or 1)}.get(sign, left))


def _plain(word: _Word) -> str:
    return "".join(part.text for part in word.parts if isinstance(part, Literal))


def _names(word: _Word) -> Iterator[str]:
    for part in word.parts:
        if isinstance(part, Variable):
            yield part.name
        elif part.text.startswith("$"):
            yield from re.findall(r"\$\{?([A-Za-z_]\w*)", part.text)


def _sbatch(lines: list[str]) -> dict[str, str]:
    """`#SBATCH --name=value` and `#SBATCH -N 2` lines before the first command, by long name."""
    options: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#SBATCH"):
            continue
        words = re.split(r"\s+#", line[7:].strip())[0].split()
        index = 0
        while index < len(words):
            name, equals, value = words[index].partition("=")
            index += 1
            if not equals and index < len(words) and not words[index].startswith("-"):
                value = words[index]
                index += 1
            if name.startswith("--"):
                options[name[2:]] = value
            elif re.match(r"-[A-Za-z]", name):
                options[_SBATCH_SHORT.get(name[1], name[1])] = value or name[2:]
    return options
