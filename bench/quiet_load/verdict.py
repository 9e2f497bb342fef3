"""Findings of a quiet hour, with the activities at their time. Pure: events and diary in, counts and text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.quiet_load.diary import INCIDENT, Spell, activities_at
from dba_console.core.units import human_duration
from dba_console.watch.samples.event import Event

SEVERITIES = ("critical", "warning", "info")
STANDING = ("wal-beside-backups", "discard-mount", "checksums-off", "memory-settings", "wal-on-tmpfs")
"""Rules about the configuration of the host, which no activity triggers."""


@dataclass(slots=True)
class Found:
    """One finding from raise to clear, with its highest severity and the sentence at that time."""

    id: str
    rule: str
    severity: str
    text: str
    raised_us: int
    ended_us: int | None = None
    chain: list[str] = field(default_factory=list)


def findings_of(events: Iterable[Event]) -> list[Found]:
    """Return the findings of the events in the order raised. A finding joined to another ends there."""
    open_now: dict[str, Found] = {}
    found: list[Found] = []
    for event in events:
        name = str(event.details.get("id", ""))
        if event.kind == "finding.raised":
            row = Found(name, str(event.details.get("name", name)), "", "", event.wall_us)
            open_now[name] = row
            found.append(row)
        if event.kind in ("finding.raised", "finding.changed") and name in open_now:
            _raise_severity(open_now[name], event)
        elif event.kind in ("finding.cleared", "finding.joined") and name in open_now:
            open_now.pop(name).ended_us = event.wall_us
    return found


def split_incidents(found: Iterable[Found], spells: Iterable[Spell]) -> tuple[list[Found], list[Found]]:
    """Split into findings of the quiet hour, and those raised during a real incident or in the half minute after."""
    incidents = [spell for spell in spells if spell.activity.startswith(INCIDENT)]
    quiet: list[Found] = []
    wrong: list[Found] = []
    for row in found:
        explained = row.rule not in STANDING and activities_at(incidents, row.raised_us)
        (wrong if explained else quiet).append(row)
    return quiet, wrong


def quiet_s(spells: Iterable[Spell], first_us: int, last_us: int) -> float:
    """Return the seconds between the two times without a real incident.

    >>> quiet_s([Spell(INCIDENT + "a", 10_000_000, 30_000_000), Spell(INCIDENT + "b", 20_000_000, None)], 0, 60_000_000)
    10.0
    """
    at_us, quiet_us = first_us, 0
    for spell in sorted(spells, key=lambda one: one.began_us):
        if spell.activity.startswith(INCIDENT):
            quiet_us += max(0, min(spell.began_us, last_us) - at_us)
            at_us = max(at_us, last_us if spell.ended_us is None else spell.ended_us)
    return (quiet_us + max(0, last_us - at_us)) / 1e6


def count(found: Iterable[Found], severity: str) -> Counter[str]:
    """Count the findings of this severity by rule.

    >>> count([Found("a:1", "a", "info", "", 0), Found("a:2", "a", "info", "", 0)], "info")
    Counter({'a': 2})
    """
    return Counter(row.rule for row in found if row.severity == severity)


def by_rule(counts: Counter[str]) -> str:
    """Return the counts as text, most frequent first.

    >>> by_rule(Counter({"slot-retention": 1, "io-slow": 3}))
    'io-slow 3, slot-retention 1'
    """
    return ", ".join(f"{rule} {times}" for rule, times in sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def report(found: Sequence[Found], spells: Sequence[Spell], start_us: int) -> str:
    """List each finding with the time since the start, its duration, its sentence and the activities then."""
    lines = []
    quiet, wrong = split_incidents(found, spells)
    for severity in SEVERITIES:
        lines += _listed(severity, [row for row in quiet if row.severity == severity], spells, start_us)
    if wrong:
        lines += _listed("during a real incident", wrong, spells, start_us)
    return "\n".join(lines)


def _listed(title: str, rows: Sequence[Found], spells: Sequence[Spell], start_us: int) -> list[str]:
    counts = Counter(row.rule for row in rows)
    lines = [f"{title}: {len(rows)}" + (f" ({by_rule(counts)})" if rows else "")]
    for row in rows:
        lines += _finding_lines(row, spells, start_us)
    return lines


def _raise_severity(row: Found, event: Event) -> None:
    severity = str(event.details.get("severity", event.severity))
    if not row.severity or SEVERITIES.index(severity) < SEVERITIES.index(row.severity):
        row.severity, row.text = severity, event.text.partition(": ")[2]
    row.chain = list(event.details.get("chain", []))


def _finding_lines(row: Found, spells: Sequence[Spell], start_us: int) -> list[str]:
    minutes, seconds = divmod((row.raised_us - start_us) // 1_000_000, 60)
    open_for = "to the end" if row.ended_us is None else human_duration((row.ended_us - row.raised_us) / 1e6)
    chain = f" [{' < '.join(row.chain)}]" if len(row.chain) > 1 else ""
    meanwhile = ", ".join(activities_at(spells, row.raised_us)) or "no activity"
    return [f"  +{minutes}:{seconds:02}  {row.id}  {open_for}{chain}", f"      {row.text}", f"      while: {meanwhile}"]
