"""Runs of runbooks in an incident: planned, typical and actual times of each step, and output worth reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from dba_console.core.errors import SessionError
from dba_console.core.units import human_duration
from dba_console.recording.journal import LogLine
from dba_console.recording.layout import parse_name, session_directories
from dba_console.recording.plan import Plan
from dba_console.recording.run_paths import parse_run_id, run_directories, session_of
from dba_console.recording.run_reader import StoredRun, all_run_directories, read_run, row_of_run
from dba_console.reports.postmortem.facts import Measured, ReportedRun
from dba_console.reports.postmortem.timeline import MAX_NAME, text_of
from dba_console.runbooks.apply_records import record_errors, replay_records
from dba_console.runbooks.result_tables import WITH_UNIT, format_value
from dba_console.runbooks.run_summary import RunSummary, TypicalDuration, as_table, read_summary, summarize
from dba_console.runbooks.run_view import RunTable
from dba_console.watch.samples.event import Event

_PROBLEM = re.compile(
    r"\b(error|fatal|panic|warning|fail(s|ed|ure)?|cannot|could not|denied|refused|invalid|no such|timed? ?out)\b", re.I
)
"""In a line of error output of a command that ended well."""
MAX_NOTE = 170
MAX_OUTPUT = 40
"""Lines of output of a run."""
_LAST_LINES = 15
"""Of the output of a failed command."""


def runs_within(session: Path, events: Iterable[Event], from_us: int, to_us: int) -> tuple[list[StoredRun], list[str]]:
    """Return the runs of a session that were open between two times, oldest first, and why others cannot be read.

    A run that began in an earlier session is one of this session too if it has an event of it within that time.
    """
    named = {str(one.details.get("run")) for one in events if from_us <= one.wall_us <= to_us}
    found, problems = [], []
    for directory in _run_directories(session, named):
        try:
            run = read_run(directory)
        except SessionError as error:
            problems.append(text_of(error.message))
            continue
        began_us, ended_us = span_of(run)
        if directory.name in named or (began_us <= to_us and ended_us >= from_us):
            found.append(run)
    present = {run.directory.name for run in found}
    problems += [
        text_of(f"run {name} began in a session that is not beside this one")
        for name in sorted(named - present)
        if parse_run_id(name) is not None and not any(name in one for one in problems)
    ]
    return sorted(found, key=lambda run: span_of(run)[0]), problems


def _run_directories(session: Path, named: Iterable[str]) -> list[Path]:
    """Return the runs of a session, and those named that began in another session beside it."""
    present = run_directories(session)
    missing = {name for name in named if parse_run_id(name) is not None} - {one.name for one in present}
    return present + ([one for one in all_run_directories(session.parent) if one.name in missing] if missing else [])


def sessions_of_runs(runs: Iterable[StoredRun]) -> list[Path]:
    """Return the sessions in which these runs may have records: their own, and those that began before their end."""
    found: dict[Path, None] = {}
    for run in runs:
        own, last_us = session_of(run.directory), span_of(run)[1]
        began = parse_name(own.name)
        for session in session_directories(own.parent):
            named = parse_name(session.name)
            later = named is not None and began is not None and began.start_us <= named.start_us <= last_us
            if session == own or later:
                found[session] = None
    return list(found)


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
        if stored is None and run.ended is not None:
            notes.append("no summary was stored: typical times of its steps are not known")
        summary = summarize(run.plan, state, _typical(stored))
        measured = _measured(run, run.plan)
        if state.asked is not None and run.ended is None:
            notes.append(text_of(f"it waits for an answer to: {state.asked.text}"))
    problems, progress = _worth_reading(run, output)
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
        verdict=text_of(row.ending or row.state if summary is None else _verdict(summary)),
        inputs=() if summary is None else tuple((text_of(name), text_of(v)) for name, v in summary.inputs.items()),
        steps=None if summary is None else _clean_table(as_table(summary)),
        measures=None if summary is None or summary.measures is None else _named_values(summary.measures),
        deviations=() if summary is None else tuple(text_of(one) for one in summary.deviations),
        output=tuple(problems),
        error_output=tuple(progress),
        notes=tuple(notes),
    )
    return facts, measured


def _verdict(summary: RunSummary) -> str:
    stopped = f"; interrupted for {human_duration(summary.interrupted_s)}" if summary.interrupted_s else ""
    return summary.verdict + stopped


def _typical(stored: RunSummary | None) -> dict[str, TypicalDuration]:
    """Return the typical durations as they were known at the time of the run."""
    return {
        step.id: TypicalDuration(step.usual_s, step.usual_runs, step.usual_s if step.last_s is None else step.last_s)
        for step in (() if stored is None else stored.steps)
        if step.usual_s is not None
    }


def _measured(run: StoredRun, plan: Plan) -> list[Measured]:
    """Return what its actions measured last, each with their sentence; None where it says why it is not known."""
    actions = {block.id for _, block in plan.blocks() if block.action}
    found: dict[str, Measured] = {}
    for record in run.records:
        if record.kind != "block.result" or record.state != "ok" or record.block not in actions:
            continue
        note = text_of(str(record.fields.get("note") or ""))
        for name, value in (record.fields.get("values") or {}).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name.endswith(WITH_UNIT) and (number or value is None):
                shown = format_value(name, value) if number else None
                source = f"{_part_about(name, note)} (run {run.directory.name})"
                found[name] = Measured(text_of(_words(name).capitalize()), shown, text_of(source))
    return list(found.values())


def _part_about(name: str, note: str) -> str:
    """Return the part of a sentence that has the first word of the name, else all of it.

    >>> _part_about("read_outage_s", "clients could not write for 2 s; clients could not read for 1 s")
    'clients could not read for 1 s'
    """
    word = name.partition("_")[0]
    part = next((one for one in note.split("; ") if re.search(rf"\b{re.escape(word)}\b", one)), note)
    return part if len(part) <= MAX_NOTE else part[: MAX_NOTE - 1] + "…"


def _clean_table(table: RunTable) -> RunTable:
    rows = tuple(tuple(text_of(cell) for cell in row) for row in table.rows[:200])
    return RunTable(columns=tuple(text_of(name) for name in table.columns), rows=rows, title=text_of(table.title))


def _named_values(table: RunTable) -> RunTable:
    """Return measured values with names in words: their units are in the values."""
    rows = tuple((_words(row[0]), *row[1:]) for row in table.rows)
    return _clean_table(replace(table, rows=rows))


def _words(name: str) -> str:
    """Return a field's name in words.

    >>> _words("write_outage_s"), _words("took.errors")
    ('write outage', 'took errors')
    """
    unit = next((one for one in sorted(WITH_UNIT, key=len, reverse=True) if name.endswith(one)), "")
    return re.sub(r"[._]", " ", name.removesuffix(unit))


def _worth_reading(run: StoredRun, output: Iterable[LogLine]) -> tuple[list[str], list[str]]:
    """Return the end of the output of each command that failed, with warnings and errors of the others; and the end of
    the other lines of error output: many programs report their progress there."""
    failed = {(one.block, one.execution) for one in run.records if one.kind == "block.result" and one.state != "ok"}
    by_act: dict[tuple[str, int], list[LogLine]] = {}
    for line in output:
        if line.run == run.directory.name:
            by_act.setdefault((line.block, line.execution), []).append(line)
    problems: list[str] = []
    progress: list[str] = []
    for act, lines in by_act.items():
        errors = [line for line in lines if line.stream == "e"]
        worth = lines if act in failed else [line for line in errors if _PROBLEM.search(line.text)]
        problems += [f"{text_of(act[0])}: {text_of(line.text)}" for line in worth[-_LAST_LINES:]]
        left = [] if act in failed else [line for line in errors if not _PROBLEM.search(line.text)]
        progress += [f"{text_of(act[0])}: {text_of(line.text)}" for line in left[-_LAST_LINES:]]
    return problems[-MAX_OUTPUT:], progress[-MAX_OUTPUT:]
