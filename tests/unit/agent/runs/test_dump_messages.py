"""What is made of the messages of a dump or restore: success only where they say so, errors with their objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.commands import AttachedCommand, outcome_of
from dba_console.agent.runs.dump_messages import (
    DumpMessages,
    apply_messages,
    make_dump_messages,
    observed_progress,
    progress_table,
    progress_values,
)
from dba_console.core.clock import SYSTEM
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.keeper.command_status import ExitRecord
from dba_console.keeper.launch import CommandSpec
from dba_console.keeper.output_log_reader import StampedLine
from dba_console.recording.plan import Block
from dba_console.runbooks.walk_requests import Outcome
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.rows import JobCounts, ObjectRow, PhaseRow, ProgressRow
from tests.clocks import HeldClock
from tests.unit.jobs.archives.made_archives import MB, plan_of_sizes

RESTORED = """\
pg_restore: connecting to database for restore
pg_restore: entering main parallel loop
pg_restore: launching item 3378 TABLE DATA orphans
pg_restore: finished item 3378 TABLE DATA orphans
pg_restore: launching item 3235 FK CONSTRAINT orphans orphans_id_fkey
pg_restore: while PROCESSING TOC:
pg_restore: from TOC entry 3235; 2606 16433 FK CONSTRAINT orphans orphans_id_fkey postgres
pg_restore: error: could not execute query: ERROR:  insert or update on table "orphans" violates foreign key constraint
pg_restore: finished item 3235 FK CONSTRAINT orphans orphans_id_fkey
pg_restore: finished main parallel loop
"""
IGNORED = "pg_restore: warning: errors ignored on restore: 2"
LOST = "pg_restore: error: connection to server was lost"


def made(directory: Path, program: str = "pg_restore", archive: str | None = None) -> DumpMessages:
    return DumpMessages(directory, program, archive, 2, SYSTEM)


def read(
    directory: Path, text: str, ended: ExitRecord, program: str = "pg_restore", archive: str | None = None
) -> Outcome:
    lines = [f"{1_000_000 * at} e {line}\n" for at, line in enumerate(text.splitlines(), 1)]
    (directory / "out.log").write_text("".join(lines))
    messages = made(directory, program, archive)
    try:
        return messages.outcome(outcome_of(ended, (0, 1)), 20_000_000)
    finally:
        messages.close()


def test_ignored_errors_end_it_with_errors_each_with_its_object(tmp_path: Path) -> None:
    outcome = read(tmp_path, RESTORED + IGNORED, ExitRecord(code=1, wall_s=12.0))
    assert outcome.state == "ok" and outcome.values["errors"] == 1
    assert "exit 1: 1 error: FK CONSTRAINT" in outcome.text and "orphans_id_fkey" in outcome.text
    assert outcome.values["data_s"] == 1.0 and outcome.values["wall_s"] == 12.0
    assert outcome.table is not None
    assert {row[0] for row in outcome.table.rows} >= {"phase", "longest", "error"}


def test_durations_are_reported_by_phase_and_object_and_errors_with_theirs() -> None:
    progress = ObjectProgress(plan_of_sizes([4 * MB, 2 * MB]), "pg_restore", 2)
    lines = (
        "pg_restore: launching item 1000 TABLE DATA t0",
        "pg_restore: launching item 1001 TABLE DATA t1",
        "pg_restore: finished item 1000 TABLE DATA t0",
        "pg_restore: error: \x1b[31mbad",
    )
    for second, line in enumerate(lines):
        progress.add_line(2_000_000 * (second + 1), line)
    progress.program_ended(10_000_000, 1)
    found = progress_table(progress)
    assert found is not None and found.rows == (
        ("phase", "data", "8.0s", "10s", "2, 1 failed", "6.0 MB", "768 kB/s"),
        ("phase", "indexes", "?", "0.0s", "6", "", ""),
        ("phase", "constraints", "?", "0.0s", "1", "", ""),
        ("decided", "TABLE DATA public.t1", "6.0s (estimated)", "", "", "2.0 MB", "341 kB/s"),
        ("longest", "TABLE DATA public.t1", "6.0s (estimated)", "", "", "2.0 MB", "341 kB/s"),
        ("longest", "TABLE DATA public.t0", "4.0s", "", "", "4.0 MB", "1.0 MB/s"),
        ("error", "TABLE DATA public.t1: ␛[31mbad", "", "", "", "", ""),
    )
    values = progress_values(progress)
    assert (values["objects"], values["wall_s"], values["data_s"], values["data_busy_s"]) == (1, 8.0, 8.0, 10.0)
    assert (values["indexes_s"], values["schema_s"]) == (None, 0.0)


def test_an_exit_code_of_one_without_that_summary_is_a_failure(tmp_path: Path) -> None:
    outcome = read(tmp_path, RESTORED + LOST, ExitRecord(code=1))
    assert outcome.state == "failed" and "connection to server was lost" in outcome.text
    assert read(tmp_path, "", ExitRecord(code=1)).state == "failed"
    assert read(tmp_path, "", ExitRecord(code=0)).state == "ok"


def test_a_failed_dump_is_reported_with_its_error_and_not_with_its_last_line(tmp_path: Path) -> None:
    message = 'pg_dump: error: query failed: ERROR:  canceling statement\npg_dump: detail: Query was: LOCK TABLE "x"'
    outcome = read(tmp_path, message, ExitRecord(code=2), "pg_dump")
    assert outcome.state == "failed"
    assert outcome.text == "exit 2: 1 error: query failed: ERROR:  canceling statement"


def test_an_unreadable_archive_costs_only_the_sizes(tmp_path: Path) -> None:
    outcome = read(tmp_path, RESTORED + IGNORED, ExitRecord(code=1), archive=str(tmp_path / "nowhere"))
    assert outcome.values["objects"] == 1


def test_the_progress_is_that_observed_of_its_command() -> None:
    frame = Frame()
    assert observed_progress(None, "R") == observed_progress(frame, "R") == ""
    objects = [ObjectRow(name=f"public.t{n}", what="TABLE DATA", phase="data", state="running", elapsed_s=9.0 + n)
               for n in range(4)]  # fmt: skip
    phase = PhaseRow(name="data", state="running", items=12, items_done=3)
    row = ProgressRow(
        kind="pg_restore", pid=7, run="R", scope="whole", pct=51.2, grade="estimated", eta_s=90.0,
        eta_grade="estimated", phases=[phase], objects=objects, counts=JobCounts(running=5), errors=2,
    )  # fmt: skip
    frame.progress.operations = [ProgressRow(kind="pg_restore", pid=8, run="other", pct=1.0), row]
    assert observed_progress(frame, "R") == (
        "51 % (estimated), about 1m30s left (estimated); data 3 of 12; running: TABLE DATA public.t0 (9.0s), "
        "TABLE DATA public.t1 (10s), TABLE DATA public.t2 (11s), 2 more; errors: 2"
    )


def test_the_progress_is_read_once_a_second(tmp_path: Path) -> None:
    clock, observed = HeldClock(), iter("12")
    messages = DumpMessages(tmp_path, "pg_restore", None, 2, clock, lambda: next(observed))
    try:
        assert [messages.progress(), messages.progress()] == ["1", "1"]
        clock.advance(1)
        assert messages.progress() == "2"
    finally:
        messages.close()


def followed(
    directory: Path, text: str, code: int, messages: DumpMessages | None = None
) -> tuple[Outcome, list[StampedLine], ActionControl]:
    """The end of a command that prints a text, and what was passed on of it."""
    message, fed, controls = directory.with_name("said"), list[StampedLine](), ActionControl(SYSTEM, lambda: None)
    message.write_text(text)
    command = AttachedCommand(directory, SYSTEM, controls, fed.extend, (0, 1), messages)
    argv = ("/bin/sh", "-c", f'cat "$1" >&2; exit {code}', "sh", str(message))
    try:
        assert command.start(CommandSpec(argv=argv, directory=str(directory), tag="T", host="h")) is None
        return command.follow(), fed, controls
    finally:
        command.close()


def test_a_resumed_command_is_read_including_its_earlier_output(tmp_path: Path) -> None:
    directory = tmp_path / "step.run.1"
    outcome, fed, controls = followed(directory, RESTORED + IGNORED + "\n", 1)
    assert outcome.state == "ok" and len(fed) >= len(RESTORED.splitlines())
    again = AttachedCommand(directory, SYSTEM, controls, fed.extend, (0, 1), made(directory))
    before = len(fed)
    outcome = again.settle()
    again.close()
    assert outcome.values["errors"] == 1 and "orphans_id_fkey" in outcome.text
    assert len(fed) == before, "told twice"


def test_archive_and_jobs_may_be_the_output_of_an_earlier_command(tmp_path: Path) -> None:
    block = Block(id="s/run", kind="run", line=1, language="sh", body="x",
                  settings={"reads": "pg_dump", "archive": "%(place)s", "jobs": "%(chosen)s"})  # fmt: skip
    values = {"place": {"exit": 0, "first_line": "/backup/x"}, "chosen": {"first_line": "4"}}
    messages = make_dump_messages(tmp_path, block, values, SYSTEM)
    messages.close()
    assert (messages.archive, messages.jobs) == ("/backup/x", 4)


# An error in reading costs what the messages tell: the command is attended to its end all the same.

SAID = "pg_restore: launching item 1 TABLE DATA t\npg_restore: finished item 1 TABLE DATA t\n"


def failing(*_: Any) -> str:
    raise ValueError("no such sign: \x1b[2J hostile")


class Failing(DumpMessages):
    """Fails when the messages are read."""

    _read_messages: Callable[..., Any] = failing


def test_an_unknown_progress_affects_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "step.run.1"
    outcome, _, controls = followed(directory, SAID, 0, DumpMessages(directory, "pg_restore", None, 2, SYSTEM, failing))
    assert outcome.state == "ok" and outcome.values["objects"] == 1 and outcome.text == "exit 0"
    assert "unknown: internal error" in controls.progress and "\x1b" not in controls.progress


def test_the_command_continues_to_its_end_and_its_output_is_passed_on(tmp_path: Path) -> None:
    directory = tmp_path / "step.run.1"
    outcome, fed, _ = followed(directory, SAID, 0, Failing(directory, "pg_restore", None, 2, SYSTEM))
    assert outcome.state == "ok" and outcome.values["exit"] == 0
    assert [line.text for line in fed if line.stream == "e"] == SAID.splitlines()
    assert outcome.text.startswith("exit 0; its messages were not read to the end: internal error")
    assert "ValueError: no such sign" in outcome.text and "(test_dump_messages.py:" in outcome.text
    assert "\x1b" not in outcome.text
    assert outcome.values["errors"] == 0, "pg_restore ends with 0 only where there were none"
    assert outcome.values["data_s"] is None and outcome.values["objects"] is None
    assert outcome.values["wall_s"] == outcome.values["seconds"]


@pytest.mark.parametrize(("program", "code", "state"), [("psql", 0, "ok"), ("pg_restore", 1, "failed")])
def test_uncounted_errors_are_unknown_and_not_a_success(tmp_path: Path, program: str, code: int, state: str) -> None:
    messages = Failing(tmp_path, program, None, 2, SYSTEM)
    try:
        outcome = messages.outcome(outcome_of(ExitRecord(code=code), (0, 1)), 1)
    finally:
        messages.close()
    assert outcome.state == state and outcome.values["errors"] is None
    assert ("unknown whether it finished" in outcome.text) is (state == "failed")


@pytest.mark.parametrize(("program", "errors"), [("psql", None), ("pg_restore", 0)])
def test_lost_lines_may_have_contained_errors(program: str, errors: int | None) -> None:
    progress = ObjectProgress(None, program)
    progress.program_ended(1, 0)
    outcome = apply_messages(outcome_of(ExitRecord(code=0), (0,)), progress, lost_lines=3)
    assert outcome.values["errors"] == errors and ("3 lines of its messages" in outcome.text) is (errors is None)
