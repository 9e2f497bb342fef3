"""The timeline of an incident, from the events of its sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from dba_console.actions.action_preview import recorded_preview
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.recording.backlog import Gap
from dba_console.recording.run_reader import StoredRun
from dba_console.reports.postmortem.brief_lines import brief_line
from dba_console.reports.postmortem.facts import TimelineRow
from dba_console.watch.samples.event import Event

MAX_ROWS = 400
MAX_TEXT = 600
MAX_NAME = 80
MAX_EXACT_LINES = 20
_NEAR_US = 60_000_000
_HIDDEN = frozenset(
    ("heartbeat", "block.asked", "block.seen", "block.started", "step.started", "wait.began", "rows.chosen",
     "journal.began", "undo.offered", "block.skipped", "input.given", "console.detach")
)  # fmt: skip
"""Kinds whose next event says the same, or that only show that something runs."""
DECISION_KINDS = frozenset(
    ("run.started", "run.paused", "run.resumed", "block.answered", "deviation", "person.took",
     "undo.began", "finding.acknowledged", "finding.silenced", "finding.unsilenced")
)  # fmt: skip
_ACTS = frozenset(("block.intent", "block.result", "block.settled", "run.started", "run.ended", "note", "mark"))
_AGENT = "console"
_NUMBERS = re.compile(r"\d+")


class SessionEvents(NamedTuple):
    """Events of a session, on the axis of the report."""

    number: int
    """Number of the session."""
    events: Sequence[Event]
    gaps: Sequence[Gap]
    shift_us: int
    """Added to their times."""
    runs: Mapping[str, StoredRun] = {}
    """Runs by id: an event has only the beginning of a long record."""
    related: Container[str] = ()
    """Ids of the runs and findings that the report is about: the acts of these runs are in the short timeline."""


def text_of(text: str) -> str:
    """Return text for the report: masked, sanitized, of limited length."""
    shown = clean(redact(text))
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + "…"


def build_timeline(
    sessions: Iterable[SessionEvents], from_us: int, to_us: int
) -> tuple[list[TimelineRow], list[tuple[str, int]]]:
    """Return the rows in the order of their time, and the kinds with the number of events left out."""
    rows: list[TimelineRow] = []
    for session in sessions:
        rows += _event_rows(session, from_us - session.shift_us, to_us - session.shift_us)
        gaps = [gap for gap in session.gaps if _in_span(gap, session.shift_us, from_us, to_us)]
        rows += [_gap_row(near, session) for near in _near_gaps(gaps)]
    rows.sort(key=lambda row: row.at_us)
    return limit_rows(rows, MAX_ROWS, _importance)


def _event_rows(session: SessionEvents, from_us: int, to_us: int) -> Iterator[TimelineRow]:
    """Yield the events between two times of the session; equal ones in a row, which may be very many, as one row.

    Sentences that differ only in their numbers are equal.
    """
    shown = [one for one in session.events if one.kind not in _HIDDEN and from_us <= one.happened_us <= to_us]
    for _, grouped in groupby(sorted(shown, key=lambda one: one.happened_us), _fold_key):
        group = list(grouped)
        row = _row(group[0], session)
        if len(group) > 1:
            row = replace(row, last_us=group[-1].happened_us + session.shift_us, count=len(group))
        yield row


def _fold_key(event: Event) -> tuple[object, ...]:
    if event.kind in _ACTS:
        return (event.seq, event.wall_us)
    return event.kind, event.who, _NUMBERS.sub("", event.text)


def _in_span(gap: Gap, shift_us: int, from_us: int, to_us: int) -> bool:
    return gap.from_us + shift_us <= to_us and gap.to_us + shift_us >= from_us


def _row(event: Event, session: SessionEvents) -> TimelineRow:
    at_us, recorded_us = event.happened_us + session.shift_us, event.wall_us + session.shift_us
    text, exact, name = text_of(event.text), _exact_text(event, session.runs), str(event.details.get("run"))
    related = (str(event.details.get("id")) if event.kind.startswith("finding.") else name) in session.related
    brief = brief_line(event, text, session.runs.get(name), related=related, exact=exact)
    return TimelineRow(
        at_us=at_us,
        recorded_us=None if recorded_us == at_us else recorded_us,
        session=session.number,
        who=_AGENT if event.who is None else text_of(event.who)[:MAX_NAME],
        kind=clean(event.kind)[:40],
        text=text,
        brief=text_of(brief.text),
        rank=brief.rank,
        exact=exact,
        source=_source(event),
        severity=event.severity if event.severity in ("warning", "critical") else "info",
    )


def _source(event: Event) -> str:
    run = event.details.get("run")
    where = f", run {clean(str(run))[:80]}" if isinstance(run, str) else ""
    return f"event {event.seq}{where}"


def _near_gaps(gaps: Sequence[Gap]) -> Iterator[list[Gap]]:
    """Yield gaps with one reason that follow each other within a minute."""
    found: list[Gap] = []
    for gap in gaps:
        if found and (gap.reason != found[-1].reason or gap.from_us - found[-1].to_us > _NEAR_US):
            yield found
            found = []
        found.append(gap)
    if found:
        yield found


def _gap_row(gaps: Sequence[Gap], session: SessionEvents) -> TimelineRow:
    seconds = sum(max(0, gap.to_us - gap.from_us) for gap in gaps) / 1e6
    several = f" in {len(gaps)} gaps" if len(gaps) > 1 else ""
    text = text_of(
        f"no samples for {seconds:.0f} s{several} ({sum(gap.samples for gap in gaps)} missing): {gaps[0].reason}"
    )
    return TimelineRow(
        at_us=gaps[0].from_us + session.shift_us,
        session=session.number,
        who=_AGENT,
        kind="gap",
        text=text,
        brief=text,
        rank=2,
        source="gaps of the session",
        severity="warning",
        last_us=gaps[-1].to_us + session.shift_us,
    )


def _exact_text(event: Event, runs: Mapping[str, StoredRun]) -> tuple[str, ...]:
    """Return the lines of the exact statement or command of an intent, as it was confirmed."""
    if event.kind != "block.intent":
        return ()
    run, seq = runs.get(str(event.details.get("run"))), event.details.get("seq")
    details = event.details
    if run is not None and isinstance(seq, int) and 0 < seq <= len(run.records):
        details = details | run.records[seq - 1].fields
    preview, parameters = recorded_preview(details), details.get("params")
    exact = details.get("statement") or (preview and preview.exact)
    if not exact and run is not None and run.plan is not None:
        exact = next((block.body for _, block in run.plan.blocks() if block.id == event.details.get("block")), "")
    lines = str(exact).splitlines() if exact else []
    values = parameters.items() if isinstance(parameters, dict) else ()
    # Rows are in the exact text.
    if plain := [f"{name}={value}" for name, value in values if not isinstance(value, dict | list)]:
        lines.append(f"with {', '.join(plain)}")
    shown = [text_of(one) for one in lines[:MAX_EXACT_LINES]]
    return (*shown, "…") if len(lines) > MAX_EXACT_LINES else tuple(shown)


def limit_rows(
    rows: list[TimelineRow], most: int, importance: Callable[[TimelineRow], int]
) -> tuple[list[TimelineRow], list[tuple[str, int]]]:
    """Return at most that many rows, the most important ones, and the number of events left out by kind.

    `importance` is 0 for the most important rows.
    """
    if len(rows) <= most:
        return rows, []
    ranked = sorted(range(len(rows)), key=lambda at: (importance(rows[at]), at))
    kept = set(ranked[:most])
    left: Counter[str] = Counter()
    for at, row in enumerate(rows):
        if at not in kept:
            left[row.kind] += row.count
    return [row for at, row in enumerate(rows) if at in kept], left.most_common()


def _importance(row: TimelineRow) -> int:
    """Return 0 for what people did, critical findings, more for less important rows."""
    if row.kind in DECISION_KINDS or row.kind in _ACTS or row.severity == "critical":
        return 0
    if row.kind in ("finding.raised", "finding.cleared", "gap", "clock.jump") or row.kind.startswith("server."):
        return 1
    return 2 if row.severity == "warning" else 3
