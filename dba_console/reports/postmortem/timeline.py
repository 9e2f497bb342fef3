"""The timeline of an incident and the decisions in it, from the events of its sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.recording.backlog import Gap
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import StoredRun
from dba_console.reports.postmortem.facts import Decision, TimelineRow
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import LAST_EVENTS, derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.panels.findings import not_silenced, sort_by_urgency
from dba_console.watch.panels.overview import show_text
from dba_console.watch.samples.event import Event

MAX_ROWS = 400
MAX_TEXT = 600
MAX_NAME = 80
MAX_EXACT_LINES = 20
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
    """Its runs by id: an event has only the beginning of a long record."""


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
        rows += [_gap_row(gap, session) for gap in session.gaps if _in_span(gap, session.shift_us, from_us, to_us)]
    rows.sort(key=lambda row: row.at_us)
    return _limit(rows)


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
    return TimelineRow(
        at_us=at_us,
        recorded_us=None if recorded_us == at_us else recorded_us,
        session=session.number,
        who=_AGENT if event.who is None else text_of(event.who)[:MAX_NAME],
        kind=clean(event.kind)[:40],
        text=text_of(event.text),
        exact=_exact_text(event, session.runs),
        source=_source(event),
        severity=event.severity if event.severity in ("warning", "critical") else "info",
    )


def _source(event: Event) -> str:
    run = event.details.get("run")
    where = f", run {clean(str(run))[:80]}" if isinstance(run, str) else ""
    return f"event {event.seq}{where}"


def _gap_row(gap: Gap, session: SessionEvents) -> TimelineRow:
    seconds = max(0, gap.to_us - gap.from_us) / 1e6
    return TimelineRow(
        at_us=gap.from_us + session.shift_us,
        session=session.number,
        who=_AGENT,
        kind="gap",
        text=text_of(f"no samples for {seconds:.0f} s ({gap.samples} missing): {gap.reason}"),
        source="gaps of the session",
        severity="warning",
        last_us=gap.to_us + session.shift_us,
    )


def _exact_text(event: Event, runs: Mapping[str, StoredRun]) -> tuple[str, ...]:
    """Return the lines of the exact statement or command of an intent, as it was confirmed."""
    if event.kind != "block.intent":
        return ()
    run, seq = runs.get(str(event.details.get("run"))), event.details.get("seq")
    details = event.details
    if run is not None and isinstance(seq, int) and 0 < seq <= len(run.records):
        details = details | run.records[seq - 1].fields
    preview, parameters = details.get("action_preview"), details.get("params")
    exact = details.get("statement") or (preview.get("exact") if isinstance(preview, dict) else None)
    if not exact and run is not None and run.plan is not None:
        exact = next((block.body for _, block in run.plan.blocks() if block.id == event.details.get("block")), "")
    lines = str(exact).splitlines() if exact else []
    values = parameters.items() if isinstance(parameters, dict) else ()
    # Rows are in the exact text.
    if plain := [f"{name}={value}" for name, value in values if not isinstance(value, dict | list)]:
        lines.append(f"with {', '.join(plain)}")
    shown = [text_of(one) for one in lines[:MAX_EXACT_LINES]]
    return (*shown, "…") if len(lines) > MAX_EXACT_LINES else tuple(shown)


def _limit(rows: list[TimelineRow]) -> tuple[list[TimelineRow], list[tuple[str, int]]]:
    """Return at most MAX_ROWS rows, the most important ones, and the number of events left out by kind."""
    if len(rows) <= MAX_ROWS:
        return rows, []
    ranked = sorted(range(len(rows)), key=lambda at: (_importance(rows[at]), at))
    kept = set(ranked[:MAX_ROWS])
    left: Counter[str] = Counter()
    for at, row in enumerate(rows):
        if at not in kept:
            left[row.kind] += row.count
    return [row for at, row in enumerate(rows) if at in kept], left.most_common()


def _importance(row: TimelineRow) -> int:
    """Return 0 for what people did and critical findings, more for less important rows."""
    if row.kind in DECISION_KINDS or row.kind in _ACTS or row.severity == "critical":
        return 0
    if row.kind in ("finding.raised", "finding.cleared", "gap", "clock.jump") or row.kind.startswith("server."):
        return 1
    return 2 if row.severity == "warning" else 3


# Decisions of operators, each with what the screen showed at that moment.

MAX_DECISIONS = 60
MAX_SCREENS = 12
"""Screens of a report; further decisions have the findings that were open, and their time for `replay --at`."""
WIDTH = 100
HISTORY_US = 600_000_000
STALE_US = 60_000_000
"""A sample older than this does not show what was on the screen."""


def find_decisions(
    recording: Recording, events: Sequence[Event], span_us: tuple[int, int], session: int, shift_us: int
) -> tuple[list[Decision], int]:
    """Return the first decisions between two times of the recording, and how many there are; `shift_us` is added to
    their times."""
    found: list[Decision] = []
    count = 0
    questions: dict[tuple[str, str], str] = {}
    screens = _Screens(recording)
    for event in events:
        if event.kind != "block.asked" and event.kind not in DECISION_KINDS:
            continue
        key = str(event.details.get("run") or ""), str(event.details.get("block") or "")
        if event.kind == "block.asked":
            questions[key] = event.text
        elif event.who is not None and span_us[0] <= event.happened_us <= span_us[1]:
            count += 1
            if count > MAX_DECISIONS:
                continue
            question = questions.pop(key, "") if event.kind != "deviation" else ""
            found.append(screens.decision(event, event.happened_us, question, session, shift_us))
    return found, count


class _Screens:
    """Draws the overview as it was; one for decisions within one sample."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._shown: set[int] = set()

    def decision(self, event: Event, at_us: int, question: str, session: int, shift_us: int) -> Decision:
        picture = self._recording.picture_at(at_us)
        decision = Decision(
            at_us=at_us + shift_us, session=session, who=text_of(event.who or "")[:MAX_NAME], text=text_of(event.text),
            asked=text_of(question),
        )  # fmt: skip
        if picture is None or at_us - picture.wall_us > STALE_US:
            return replace(decision, missing="no sample was recorded within the minute before")
        screen_us = picture.wall_us + shift_us
        if picture.wall_us in self._shown:
            return replace(decision, screen_us=screen_us, repeated=True)
        drawn = len(self._shown) < MAX_SCREENS
        self._shown.add(picture.wall_us)
        history = ChartHistory()
        if drawn:
            history.extend(self._recording.points(picture.wall_us - HISTORY_US, picture.wall_us))
        events = self._recording.events(to_us=picture.wall_us, limit=LAST_EVENTS) if drawn else []
        # Notes about that time may have been added later: they were not on the screen.
        events = [one for one in events if one.wall_us <= picture.wall_us]
        frame = derive(picture, history, events)
        decision = replace(decision, screen_us=screen_us, findings=tuple(_sentences(frame)))
        if not drawn:
            why = f"not one of the first {MAX_SCREENS} of the report; `dba-console replay --at` shows it"
            return replace(decision, missing=why)
        lines = show_text(frame, None, WIDTH, history).splitlines()
        return replace(decision, screen=tuple(clean(one) for one in lines))


def _sentences(frame: Frame) -> list[str]:
    found = sort_by_urgency(not_silenced(frame.findings))
    return [text_of(f"{one.severity}: {one.text}") for one in found]
