"""A strict reader of asciicast 2 and 3, and a terminal that knows only the codes such a file may have.

It refuses what asciinema refuses (src/asciicast/v2.rs, v3.rs), and times that are not three decimals.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, NamedTuple

_TIME = re.compile(r"\[(0|[1-9]\d*)\.\d{3}, \"")
_CODE = re.compile(r"\x1b\[(?:(\d+);(\d+)H|([0-9;]*)m|(K|2J|\?25[lh]))")


class CastEvent(NamedTuple):
    at_ms: int
    """After the start, in both versions."""
    code: str
    data: str


class Cast(NamedTuple):
    header: dict[str, Any]
    events: list[CastEvent]

    @property
    def size(self) -> tuple[int, int]:
        term = self.header.get("term", {})
        return (term["cols"], term["rows"]) if term else (self.header["width"], self.header["height"])

    @property
    def chapters(self) -> list[CastEvent]:
        return [event for event in self.events if event.code == "m"]

    def screen(self, at_ms: int | None = None) -> list[str]:
        """What the terminal shows after the events until that time."""
        terminal = Terminal(*self.size)
        for event in self.events:
            if event.code == "o" and (at_ms is None or event.at_ms <= at_ms):
                terminal.feed(event.data)
        return terminal.rows()


def read_cast(data: bytes) -> Cast:
    """Raises ValueError for anything a player would not take."""
    if not data.endswith(b"\n"):
        raise ValueError("the last line is cut")
    first, *lines = data.decode("utf-8").removesuffix("\n").split("\n")
    header = json.loads(first)
    version = header["version"]
    numbers = [header["width"], header["height"]] if version == 2 else [header["term"]["cols"], header["term"]["rows"]]
    if version not in (2, 3) or not all(isinstance(number, int) and 0 < number < 65536 for number in numbers):
        raise ValueError(f"header: {first}")
    if not isinstance(header.get("timestamp"), int) or set(header) - {*_FIELDS, *_OF_VERSION[version]}:
        raise ValueError(f"header: {first}")
    events: list[CastEvent] = []
    for line in lines:
        time, code, text = json.loads(line)
        if not _TIME.match(line) or code not in ("o", "m", "r", "x", "i") or not isinstance(text, str):
            raise ValueError(f"event: {line[:100]}")
        at_ms = round(time * 1000) + (events[-1].at_ms if version == 3 and events else 0)
        if events and at_ms < events[-1].at_ms:
            raise ValueError(f"time runs back: {line[:100]}")
        events.append(CastEvent(at_ms, code, text))
    return Cast(header, events)


_FIELDS = ("version", "timestamp", "idle_time_limit", "title", "command", "env")
_OF_VERSION = {2: ("width", "height", "duration", "theme"), 3: ("term",)}


class Terminal:
    """Cells of a terminal. Raises ValueError for a control character that is not one of the few codes."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = columns
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0

    def rows(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _CODE.match(text, at)
                if found is None:
                    raise ValueError(f"not a code of ours: {text[at : at + 20]!r}")
                self._obey(found)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, sign: str) -> None:
        if not sign.isprintable():
            raise ValueError(f"a control character: {sign!r}")
        cells = 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1
        if self._column + cells > self._columns:
            raise ValueError(f"beyond the screen: {sign!r} in row {self._row + 1}")
        self._cells[self._row][self._column : self._column + cells] = [sign, ""][:cells]
        self._column += cells

    def _obey(self, code: re.Match[str]) -> None:
        if code[1]:
            self._row, self._column = int(code[1]) - 1, int(code[2]) - 1
        elif code[4] == "K":
            self._cells[self._row][self._column :] = [" "] * (self._columns - self._column)
        elif code[4] == "2J":
            self._cells = [[" "] * self._columns for _ in self._cells]
