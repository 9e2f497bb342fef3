"""Masks the secrets that stand in command lines where their program takes them: `curl -su bob:…`, `sshpass -p …`."""

from __future__ import annotations

import re

from dba_console.core.redaction.programs import PROGRAMS, Place, Program

MASK = "********"
_PROGRAM = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, PROGRAMS), key=len, reverse=True))})(?:\.exe)?(?=[ \t\\])"
)
_NAMES = frozenset(
    (
        *PROGRAMS,
        *(f"{name}.exe" for name in PROGRAMS),
        "echo",
        "printf",
        "expect",
        "spawn",
        "su",
        "sudo",
        "kinit",
        "passwd",
        "chpasswd",
        "smbpasswd",
        "cryptsetup",
    )
)
_WORD = re.compile(r"""(?:[^\s'"|;&()<>`\\]|\\[^\n]|'[^'\n]*+'|"(?:[^"\\\n]|\\.)*+")++""")
_BLANK = re.compile(r"(?:[ \t]|\\\n)*+")
_UNCLOSED = re.compile(r"['\"](?=[^\s'\",;:)\]}])[^'\"\n]*+(?=\n|$)")
_LETTERS = 6
"""Most letters of options in one word."""
_PIPED = re.compile(
    r"(\b(?:echo|printf)\s+(?:-\w{1,4}\s+)?)([^|\n]{1,500}?)(\s{0,8}\|)"
    r"(?=[^|\n]{0,200}?(?:\bchpasswd|\bkinit|\bsmbpasswd|\bpasswd\b|\bcryptsetup|\bsudo\s+-\w{0,4}S|--password-stdin"
    r"|--passphrase-fd|--with-token|\bsu\b|--stdin\b|\bpass(?:in|out)?\s+stdin))"
)
"""A secret that a program reads from the output of another."""
_HERE = re.compile(
    r"(\b(?:chpasswd|kinit|smbpasswd|passwd|cryptsetup|sudo\s+-\w{0,4}S|docker\s+login|su)\b[^|;\n<]{0,200}<<<\s*)(\S+)"
)
_SENT = re.compile(
    r"""(\bsend(?:_user)?\s+(?:--\s+)?)("(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\\"(?:[^"\\\n]|\\[^"])*+(?:\\")?)"""
)
"""A line that an expect script types."""


_AROUND = "'\"()/=`|;&\\"


def names_program(text: str) -> bool:
    """Whether the text names a program of the table; quicker than a search for all of them."""
    for sign in _AROUND:  # quicker than translate()
        if sign in text:
            text = text.replace(sign, " ")
    return not _NAMES.isdisjoint(text.split())


def mask_command_lines(text: str) -> str:
    """Return the text with the secrets masked that programs of the table take."""
    if "echo" in text or "printf" in text:
        text = _PIPED.sub(rf"\1{MASK}\3", text)
    if "<<<" in text:
        text = _HERE.sub(rf"\1{MASK}", text)
    if "send" in text and ("spawn" in text or "expect" in text):
        text = _SENT.sub(rf"\1{MASK}", text)
    spans: list[tuple[int, int]] = []
    at = 0
    while (found := _PROGRAM.search(text, at)) is not None:
        command = _Command(text, found[0], spans)
        at = command.read(found.end(), len(text))
    if not spans:
        return text
    parts, at = [], 0
    for begin, end in sorted(spans):
        if begin >= at:
            parts += [text[at:begin], MASK]
            at = end
    return "".join([*parts, text[at:]])


class _Command:
    """Reads the words of one command line, and of the commands that are its arguments, to the next separator."""

    def __init__(self, text: str, name: str, spans: list[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._within = False
        """In a command that is an argument, as of `lftp -e`."""
        self._begin(PROGRAMS[name.removesuffix(".exe")])

    def _begin(self, program: Program) -> None:
        self._program = program
        self._awaited: Place | None = None
        self._seen: set[str] = set()
        self._operands: dict[str, list[tuple[int, int]]] = {"": []}

    def read(self, at: int, until: int) -> int:
        """Read the words from `at`; return where the command line ends."""
        while True:
            at = _BLANK.match(self._text, at, until).end()  # type: ignore[union-attr]
            word = _WORD.match(self._text, at, until)
            end = at if word is None else word.end()
            if (rest := _UNCLOSED.match(self._text, end, until)) is not None and (
                word is None or self._text[at] == "-"
            ):
                end = rest.end()  # the server cuts long statements: the closing quote may be missing
            if end == at:
                self._end()
                return at
            self._read_word(at, end)
            at = end

    def _read_word(self, begin: int, end: int) -> None:
        word = self._text[begin:end]
        if word[0] in "'\"" and len(word) > 1 and word[-1] == word[0]:
            begin, end, word = begin + 1, end - 1, word[1:-1]
            if " " in word and self._awaited is None and not self._within:
                self._within = True
                self.read(begin, end)
                self._within = False
                return
        if (place := self._awaited) is not None:
            self._awaited = None
            self._hide(place, begin, end, word)
        elif word[:1] == "-" or (word[:1] == "/" and self._is_slash_option(word)):
            self._read_option(begin, end, word)
        elif (program := PROGRAMS.get(word.rpartition("/")[2])) is not None:
            self._end()
            self._begin(program)
        else:
            self._read_operand(begin, end, word)

    def _is_slash_option(self, word: str) -> bool:
        return any(place.option and word.lower().startswith(place.option) for place in self._program.places) or (
            word.lower().startswith(("/user:", "/add", "/persistent:"))
        )

    def _hide(self, place: Place, begin: int, end: int, word: str) -> None:
        """Mask the word, or its part after the sign."""
        if place.sign:
            user, sign, secret = word.partition(place.sign)
            if not sign or secret.startswith("//"):
                return
            begin += len(user) + 1
            if word[-1] in "'\"" and word[-1] in user:
                end -= 1
            elif word.endswith('\\"') and '\\"' in user:
                end -= 2
        if begin < end:
            self._spans.append((begin, end))

    def _applies(self, place: Place) -> bool:
        return not place.after or place.after in self._seen

    def _read_option(self, begin: int, end: int, word: str) -> None:
        self._seen.add(word)
        if not word.startswith("--") and not self._program.words:
            self._seen |= {f"-{letter}" for letter in word[1:_LETTERS]}
        for place in self._program.places:
            name = place.option
            if len(name) < 2 or place.keyword or not self._applies(place):
                continue
            bare = word if name[0] == "/" else word.lstrip("-")
            if bare == name and not place.attached:
                self._awaited = place
                return
            if bare.startswith(name) and (place.attached or bare[len(name)] in "=:"):
                start = begin + len(word) - len(bare) + len(name) + (not place.attached)
                self._hide(place, start, end, self._text[start:end])
                return
        if not word.startswith("--"):
            self._read_letters(begin, end, word)

    def _read_letters(self, begin: int, end: int, word: str) -> None:
        """Read options of one letter, as in `-sSu bob:…`."""
        letters = {place.option: place for place in self._program.places if len(place.option) == 1}
        for at, letter in enumerate(word[1:_LETTERS], 1):
            place = letters.get(letter)
            if place is not None and not place.keyword and self._applies(place):
                start = at + 1 + (word[at + 1 : at + 2] == "=")
                if self._program.words and len(word) > 2:
                    return
                if start < len(word):
                    self._hide(place, begin + start, end, word[start:])
                elif not place.attached:
                    self._awaited = place
                return
            if letter in self._program.with_value or not letter.isalnum():
                return

    def _read_operand(self, begin: int, end: int, word: str) -> None:
        self._seen.add(word)
        for place in self._program.places:
            if place.keyword and place.option == word:
                self._awaited = place
                return
            if place.sign == "/" and not place.option and re.match(r"[\w$.]+/[^/]", word):
                self._hide(place, begin, end, word)
        for after in self._operands:
            self._operands[after].append((begin, end))
        self._operands.setdefault(word, [])

    def _end(self) -> None:
        """Mask operands, whose position from the end is known now."""
        for place in self._program.places:
            if not place.operand or not self._applies(place):
                continue
            operands = self._operands.get("" if place.after[:1] == "-" else place.after, [])
            index = place.operand - 1 if place.operand > 0 else place.operand
            if -len(operands) <= index < len(operands):
                self._spans.append(operands[index])
