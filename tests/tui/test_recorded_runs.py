"""Runs of a recording, shown at moments that follow one another quickly."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dba_console.recording.plan import JournalRecord
from dba_console.runbooks.run_view import OutputLine
from dba_console.runbooks.walk_context import planned
from dba_console.tui.known_runs import RecordedRun
from tests.unit.recording.run_journals import ENDED, PLAN, RUN

STARTED = JournalRecord(kind="run.started", text="started by ann", who="ann")
STEP = JournalRecord(kind="step.started", text="step drop-it", step="drop-it")


def at(second: int, record: JournalRecord) -> JournalRecord:
    return replace(record, wall_us=second * 1_000_000)


def recorded() -> RecordedRun:
    first = planned(PLAN, run=RUN, mode="run", target="db2", identity="id", who="ann")
    records = (at(1, first), at(2, STARTED), at(3, STEP), at(10, ENDED))
    output = tuple(OutputLine(second * 1_000_000, "o", "DROP", f"line {second}") for second in (4, 8, 12))
    return RecordedRun(Path("runs") / RUN, PLAN, records, output)


def test_a_run_is_shown_in_its_past_state_whatever_was_shown_before() -> None:
    run, moments = recorded(), (0, 5, 20, 9, 11, 1, 20)
    for second in moments:
        again, fresh = run.at(second * 1_000_000), recorded().at(second * 1_000_000)
        assert (again is None) == (fresh is None)
        if again is not None and fresh is not None:
            assert (again.view, again.summary, again.output) == (fresh.view, fresh.summary, fresh.output)


def test_the_view_of_an_ended_run_is_cached_and_the_time_of_an_active_one_continues() -> None:
    run = recorded()
    ended = run.at(11_000_000)
    assert ended is not None and run.at(20_000_000) is ended
    assert [line.text for line in ended.output] == ["line 4", "line 8", "line 12"]
    early, late = run.at(5_000_000), run.at(9_000_000)
    assert early is not None and early.view is not None and late is not None and late.view is not None
    assert (early.view.steps[0].elapsed_s, late.view.steps[0].elapsed_s) == (2.0, 6.0)
