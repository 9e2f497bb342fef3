"""Decisions of operators, each with what the screen showed at that moment."""

from __future__ import annotations

from collections.abc import Container, Sequence

from msgspec.structs import replace

from dba_console.core.sanitize import clean
from dba_console.recording.recording import Recording
from dba_console.reports.postmortem.facts import Decision
from dba_console.reports.postmortem.timeline import DECISION_KINDS, MAX_NAME, text_of
from dba_console.watch.console.panel import LAST_EVENTS
from dba_console.watch.drawing.findings import not_silenced, sort_by_urgency
from dba_console.watch.drawing.overview import show_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.samples.event import Event

MAX_DECISIONS = 60
MAX_SCREENS = 12
"""Drawn for a report; further decisions have the findings that were open, and their time for `replay --at`."""
WIDTH = 100
HISTORY_US = 600_000_000
STALE_US = 60_000_000
"""A sample older than this does not show what was on the screen."""


def find_decisions(
    recording: Recording,
    events: Sequence[Event],
    span_us: tuple[int, int],
    session: int,
    shift_us: int,
    related: Container[str],
) -> tuple[list[Decision], int]:
    """Return the first decisions between two times of the recording, and how many there are; `shift_us` is added to
    their times. `related`: ids of runs and findings that the report is about."""
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
            made = screens.decision(event, event.happened_us, question, session, shift_us)
            about = event.details.get("id" if event.kind.startswith("finding.") else "run")
            routine = event.kind == "block.answered" and event.details.get("question") == "ack"
            found.append(replace(made, related=about in related, routine=routine))
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
