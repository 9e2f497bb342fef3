"""The diary of a quiet hour: start and end of each activity, one JSON object per line, wall time in microseconds.

Findings have wall times too, so each can be compared with the activities at its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

INCIDENT = "incident: "
"""Name prefix of real incidents on the host, which are not part of the quiet hour."""
Did = Literal["began", "ended", "failed"]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line; `note` is the result of the activity or why it failed."""

    at_us: int
    activity: str
    did: Did
    note: str = ""


class Spell(msgspec.Struct, frozen=True):
    """An activity from start to end; `ended_us` is None if the diary has no end."""

    activity: str
    began_us: int
    ended_us: int | None


class Diary:
    """Appends lines, from any thread; each is flushed before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, activity: str, did: Did, note: str = "") -> None:
        line = msgspec.json.encode(Line(time.time_ns() // 1000, activity, did, note)).decode()
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_diary(path: Path) -> list[Line]:
    """Return the lines of a diary. A truncated last line is skipped; a missing file is an empty diary."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError:
            continue
    return lines


def spells(lines: Iterable[Line]) -> list[Spell]:
    """Return the activities in order of start; of two with the same name the older one ends first."""
    waiting: dict[str, list[int]] = {}
    done: list[Spell] = []
    for line in lines:
        if line.did == "began":
            waiting.setdefault(line.activity, []).append(line.at_us)
        elif begun := waiting.get(line.activity):
            done.append(Spell(line.activity, begun.pop(0), line.at_us))
    done += [Spell(name, at_us, None) for name, begun in waiting.items() for at_us in begun]
    return sorted(done, key=lambda spell: spell.began_us)


def activities_at(happened: Iterable[Spell], at_us: int, before_s: float = 30.0) -> list[str]:
    """Return the activities at `at_us`, and those that ended at most `before_s` before it, with how long ago.

    >>> activities_at([Spell("build", 0, 10_000_000), Spell("dump", 5_000_000, None)], 18_000_000)
    ['build (ended 8 s before)', 'dump']
    """
    found = []
    for spell in happened:
        if spell.began_us > at_us:
            continue
        if spell.ended_us is None or spell.ended_us >= at_us:
            found.append(spell.activity)
        elif spell.ended_us >= at_us - int(before_s * 1e6):
            found.append(f"{spell.activity} (ended {(at_us - spell.ended_us) // 1_000_000} s before)")
    return found
