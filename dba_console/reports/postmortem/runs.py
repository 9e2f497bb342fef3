"""Runs of runbooks in an incident: planned, typical and actual times of each step, and output worth reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dba_console.core.errors import SessionError
from dba_console.recording.journal import LogLine
from dba_console.recording.run_paths import run_directories
from dba_console.recording.run_reader import StoredRun, read_run, row_of_run
from dba_console.reports.postmortem.facts import Measured, ReportedRun
from dba_console.reports.postmortem.timeline import MAX_NAME, text_of
from dba_console.runbooks.apply_records import record_errors, replay_records
from dba_console.runbooks.result_tables import format_value
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.run_summary import RunSummary, TypicalDuration, as_table, read_summary, summarize
from dba_console.runbooks.run_view import RunTable

MAX_OUTPUT = 40
"""Lines of output of a run."""
_LAST_LINES = 15
"""Of the output of a failed command."""


def runs_within(session: Path, from_us: int, to_us: int) -> tuple[list[StoredRun], list[str]]:
    """Return the runs of a session that were open between two times, oldest first, and why others cannot be read."""
    found, problems = [], []
    for directory in run_directories(session):
        try:
            run = read_run(directory)
        except SessionError as error:
            problems.append(text_of(error.message))
            continue
        began_us, ended_us = span_of(run)
        if began_us <= to_us and ended_us >= from_us:
            found.append(run)
    return sorted(found, key=lambda run: span_of(run)[0]), problems


def span_of(run: StoredRun) -> tuple[int, int]:
    """Return the times of its first and last record."""
    return run.records[0].wall_us, run.records[-1].wall_us


def run_facts(
    run: StoredRun, output: Sequence[LogLine], session: int, shift_us: int
) -> tuple[ReportedRun, list[Measured]]:
    """Return the run, and what its actions measured. Raises SessionError if its records cannot be replayed."""
    row, about = row_of_run(run), run.about
    notes = [text_of(note) for note in (*run.notes, *([f"damaged: {run.damage}"] if run.damage else []))]
    summary = None
    measured: list[Measured] = []
    if run.plan is None:
        notes.append("its plan cannot be read: the times of its steps are not known")
    else:
        with record_errors():
            state = replay_records(run.plan, run.records)
        stored = read_summary(run.directory)
        if stored is None:
            notes.append("no summary was stored: typical times of its steps are not known")
        summary = summarize(run.plan, state, _typical(stored))
        measured = _measured(state, run.directory.name)
    facts = ReportedRun(
        run=text_of(run.directory.name),
        runbook=text_of(about.runbook),
        title=text_of(about.title),
        mode=text_of(about.mode),
        state=text_of(row.state),
        who=text_of(about.who)[:MAX_NAME],
        session=session,
        began_us=None if row.began_us is None else row.began_us + shift_us,
        ended_us=None if row.ended_us is None else row.ended_us + shift_us,
        verdict=text_of(row.ending or row.state if summary is None else summary.verdict),
        inputs=() if summary is None else tuple((text_of(name), text_of(v)) for name, v in summary.inputs.items()),
        steps=None if summary is None else _clean_table(as_table(summary)),
        measures=None if summary is None or summary.measures is None else _clean_table(summary.measures),
        deviations=() if summary is None else tuple(text_of(one) for one in summary.deviations),
        output=tuple(_worth_reading(run, output)),
        notes=tuple(notes),
    )
    return facts, measured


def _typical(stored: RunSummary | None) -> dict[str, TypicalDuration]:
    """Return the typical durations as they were known at the time of the run."""
    return {
        step.id: TypicalDuration(step.usual_s, step.usual_runs, step.usual_s if step.last_s is None else step.last_s)
        for step in (() if stored is None else stored.steps)
        if step.usual_s is not None
    }


def _measured(state: RunState, run: str) -> list[Measured]:
    return [
        Measured(
            text_of(name.removesuffix("_s").replace("_", " ").capitalize()), format_value(name, value), f"run {run}"
        )
        for name, value in state.figures.items()
    ]


def _clean_table(table: RunTable) -> RunTable:
    rows = tuple(tuple(text_of(cell) for cell in row) for row in table.rows[:200])
    return RunTable(columns=tuple(text_of(name) for name in table.columns), rows=rows, title=text_of(table.title))


def _worth_reading(run: StoredRun, output: Iterable[LogLine]) -> list[str]:
    """Return the end of the output of each command that failed, and the error output of the others."""
    failed = {(one.block, one.execution) for one in run.records if one.kind == "block.result" and one.state != "ok"}
    by_act: dict[tuple[str, int], list[LogLine]] = {}
    for line in output:
        if line.run == run.directory.name:
            by_act.setdefault((line.block, line.execution), []).append(line)
    shown: list[str] = []
    for act, lines in by_act.items():
        worth = lines[-_LAST_LINES:] if act in failed else [line for line in lines if line.stream == "e"][-_LAST_LINES:]
        shown += [f"{text_of(act[0])}: {text_of(line.text)}" for line in worth]
    return shown[-MAX_OUTPUT:]
