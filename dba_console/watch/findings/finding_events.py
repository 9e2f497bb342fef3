"""Changes of findings between two ticks as events, and the operators' acknowledgements and silences. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct, structs

from dba_console.core.units import human_duration
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow

Kind = Literal["raised", "changed", "joined", "cleared", "acknowledged", "silenced", "unsilenced"]


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A change of one finding; `into` is the finding it was merged into."""

    kind: Kind
    finding: FindingNow
    into: FindingNow | None = None


def changes_between(before: Mapping[str, FindingNow], after: Mapping[str, FindingNow]) -> list[FindingChange]:
    """Return cleared findings first, then raised, then changed and joined, so that no finding is listed twice."""
    return [*_ended_findings(before, after), *_new_findings(before, after)]


def _ended_findings(before: Mapping[str, FindingNow], after: Mapping[str, FindingNow]) -> Iterator[FindingChange]:
    absorbed = {part: row for row in after.values() for part in row.parts}
    for name, row in before.items():
        if name in after:
            continue
        into = absorbed.get(name)
        if into is not None:
            yield FindingChange("joined", row, into)
        else:
            yield FindingChange("cleared", row)


def _new_findings(before: Mapping[str, FindingNow], after: Mapping[str, FindingNow]) -> Iterator[FindingChange]:
    for name, row in after.items():
        known = before.get(name)
        if known is None:
            yield FindingChange("raised", row)
        elif known.state == "silenced" and row.state != "silenced":
            yield FindingChange("unsilenced", row)
        elif (known.severity, known.parts) != (row.severity, row.parts):
            yield FindingChange("changed", row)


def change_event(change: FindingChange, wall_us: int, mono_us: int) -> Event:
    """Return the change as a session event. A silenced finding is recorded with severity info."""
    row = change.finding
    calls = change.kind in ("raised", "changed") and row.state != "silenced"
    return Event(
        wall_us=wall_us, mono_us=mono_us, kind=f"finding.{change.kind}", text=_text(change, wall_us),
        severity=row.severity if calls else "info", who=row.who if change.kind in _BY_OPERATOR else None,
        details=_details(row),
    )  # fmt: skip


_BY_OPERATOR = ("acknowledged", "silenced", "unsilenced")


def _text(change: FindingChange, wall_us: int) -> str:
    row = change.finding
    match change.kind:
        case "joined":
            return f"finding {row.id} is now part of {change.into.id if change.into else '?'}"
        case "cleared":
            # After a clock was set back the duration is not known.
            lasted_s = (wall_us - row.since_us) / 1e6
            after = f" after {human_duration(lasted_s)}" if lasted_s >= 0 else ""
            return f"finding cleared{after}: {row.id}"
        case "acknowledged":
            return f"finding acknowledged by {row.who}: {row.id}" + (f": {row.note}" if row.note else "")
        case "silenced":
            left = human_duration(((row.until_us or wall_us) - wall_us) / 1e6)
            return f"finding silenced for {left} by {row.who}: {row.id}" + (f": {row.note}" if row.note else "")
        case "unsilenced":
            return f"finding no longer silenced: {row.id}"
        case _:
            severity = "" if row.severity == "info" else f", {row.severity}"
            return f"finding {change.kind}{severity}: {row.text}"


def _details(row: FindingNow) -> dict[str, Any]:
    return {
        "id": row.id, "name": row.rule, "severity": row.severity, "since_us": row.since_us, "at_us": row.at_us,
        "chain": row.chain, "also": row.also, "evidence": row.evidence, "runbook": row.runbook, "state": row.state,
    }  # fmt: skip


# Acknowledgements and silences.


class FindingMark(Struct, frozen=True, kw_only=True):
    """An acknowledgement (`until_us` None: as long as the finding lasts) or a silence until then."""

    who: str
    note: str
    until_us: int | None = None


RESTORED_GRACE_US = 120_000_000
"""Time for the next agent to see an acknowledged finding again: several of the slowest readings that rules use, plus
the time a signal must last before it is raised."""


class FindingMarks:
    """Acknowledgements and silences by finding id, silences also by rule name. A silence takes precedence."""

    def __init__(self) -> None:
        self._acknowledged: dict[str, FindingMark] = {}
        self._silenced: dict[str, FindingMark] = {}
        self._restored: set[str] = set()
        self._restored_until_us = 0

    def acknowledge(self, finding_id: str, who: str, note: str) -> None:
        self._acknowledged[finding_id] = FindingMark(who=who, note=note)

    def silence(self, name: str, until_us: int, who: str, note: str) -> None:
        self._silenced[name] = FindingMark(who=who, note=note, until_us=until_us)

    def remove(self, name: str) -> bool:
        """Remove its acknowledgement and silence. False if there was neither."""
        forgotten = [self._acknowledged.pop(name, None), self._silenced.pop(name, None)]
        return any(word is not None for word in forgotten)

    def prune(self, open_ids: Collection[str], wall_us: int) -> None:
        """Drop acknowledgements of closed findings and expired silences."""
        if self._restored:
            self._restored = self._restored - set(open_ids) if wall_us < self._restored_until_us else set()
        known = {*open_ids, *self._restored}
        self._acknowledged = {name: word for name, word in self._acknowledged.items() if name in known}
        self._silenced = {name: word for name, word in self._silenced.items() if (word.until_us or 0) > wall_us}

    def apply(self, row: FindingNow, wall_us: int) -> FindingNow:
        """Return the finding with its acknowledgement or silence."""
        silenced = self._silenced.get(row.id) or self._silenced.get(row.rule)
        if silenced is not None and (silenced.until_us or 0) > wall_us:
            return _with_mark(row, "silenced", silenced)
        known = self._acknowledged.get(row.id)
        if known is not None:
            return _with_mark(row, "acknowledged", known)
        if row.state == "open":
            return row
        return structs.replace(row, state="open", who=None, note=None, until_us=None)

    def to_save(self) -> dict[str, dict[str, FindingMark]]:
        """Return all marks, to be saved over a restart."""
        return {"acknowledged": dict(self._acknowledged), "silenced": dict(self._silenced)}

    def restore(self, words: dict[str, dict[str, FindingMark]], wall_us: int) -> None:
        """Start with the marks of an earlier agent, whose findings this one has not seen yet."""
        self._acknowledged = dict(words.get("acknowledged", {}))
        self._restored, self._restored_until_us = set(self._acknowledged), wall_us + RESTORED_GRACE_US
        self._silenced = dict(words.get("silenced", {}))


def _with_mark(row: FindingNow, state: str, word: FindingMark) -> FindingNow:
    mark = (state, word.who, word.note, word.until_us)
    if (row.state, row.who, row.note, row.until_us) == mark:
        return row
    return structs.replace(row, state=state, who=word.who, note=word.note or None, until_us=word.until_us)
