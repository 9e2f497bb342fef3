"""What changed among the findings between two ticks, and how it is told as an event. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dba_console.samples.event import Event
from dba_console.samples.findings import FindingNow
from dba_console.units import human_duration

Kind = Literal["raised", "changed", "joined", "cleared", "acknowledged", "silenced", "unsilenced"]


@dataclass(frozen=True, slots=True)
class FindingChange:
    """One thing that happened to a finding; `into` is the finding it was joined to."""

    kind: Kind
    finding: FindingNow
    into: FindingNow | None = None


def changes_between(before: Mapping[str, FindingNow], after: Mapping[str, FindingNow]) -> list[FindingChange]:
    """Cleared first, then raised, then changed and joined: a reader of the events sees no finding twice."""
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
    """The change as an event of the session. A silenced finding is remembered and does not call."""
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
            return f"finding {row.id} is part of {change.into.id if change.into else '?'} now"
        case "cleared":
            # A clock that was set back in between leaves no duration to tell.
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
