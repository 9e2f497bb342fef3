"""What is made of the messages of a dump or restore: success only where they say so, errors with their objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.agent.runs import message_progress as course_module
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.commands import AttachedCommand, outcome_of
from dba_console.agent.runs.dump_messages import DumpMessages, make_dump_messages
from dba_console.agent.runs.message_progress import MessageProgress
from dba_console.core.clock import SYSTEM
from dba_console.keeper.command_status import ExitRecord, StampedLine
from dba_console.keeper.launch import CommandSpec
from dba_console.recording.plan import Block
from dba_console.runbooks.requests import Outcome
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


def read(text: str, ended: ExitRecord, program: str = "pg_restore") -> Outcome:
    reading = DumpMessages(program, None, 2, SYSTEM)
    try:
        reading.feed([StampedLine(1_000_000 * at, "e", line) for at, line in enumerate(text.splitlines(), 1)])
        return reading.ended(outcome_of(ended, (0, 1)), 20_000_000)
    finally:
        reading.close()


def test_errors_that_were_ignored_are_an_end_with_errors_each_with_its_object() -> None:
    outcome = read(RESTORED + IGNORED, ExitRecord(code=1, wall_s=12.0))
    assert outcome.state == "ok" and outcome.values["errors"] == 1
    assert "exit 1: 1 error: FK CONSTRAINT" in outcome.text and "orphans_id_fkey" in outcome.text
    assert outcome.values["data_s"] == 1.0 and outcome.values["wall_s"] == 12.0
    assert outcome.table is not None
    assert {row[0] for row in outcome.table.rows} >= {"phase", "longest", "error"}


def test_the_durations_are_told_by_phase_and_object_and_its_errors_with_theirs() -> None:
    progress = MessageProgress(plan_of_sizes([4 * MB, 2 * MB]), "pg_restore", 2)
    lines = (
        "pg_restore: launching item 1000 TABLE DATA t0",
        "pg_restore: launching item 1001 TABLE DATA t1",
        "pg_restore: finished item 1000 TABLE DATA t0",
        "pg_restore: error: \x1b[31mbad",
    )
    for second, line in enumerate(lines):
        progress.see(2_000_000 * (second + 1), line, "e")
    progress.ended(10_000_000, 1)
    found = progress.table()
    assert found is not None and found.rows == (
        ("phase", "data", "8.0s", "10s", "2, 1 failed", "6.0 MB", "768 kB/s"),
        ("phase", "indexes", "?", "0.0s", "6", "", ""),
        ("phase", "constraints", "?", "0.0s", "1", "", ""),
        ("decided", "TABLE DATA public.t1", "6.0s (estimated)", "", "", "2.0 MB", "341 kB/s"),
        ("longest", "TABLE DATA public.t1", "6.0s (estimated)", "", "", "2.0 MB", "341 kB/s"),
        ("longest", "TABLE DATA public.t0", "4.0s", "", "", "4.0 MB", "1.0 MB/s"),
        ("error", "TABLE DATA public.t1: ␛[31mbad", "", "", "", "", ""),
    )
    values = progress.values()
    assert (values["objects"], values["wall_s"], values["data_s"], values["data_busy_s"]) == (1, 8.0, 8.0, 10.0)
    assert (values["indexes_s"], values["schema_s"]) == (None, 0.0)


def test_an_exit_of_one_without_that_word_is_a_failure() -> None:
    outcome = read(RESTORED + LOST, ExitRecord(code=1))
    assert outcome.state == "failed" and "connection to server was lost" in outcome.text
    assert read("", ExitRecord(code=1)).state == "failed"
    assert read("", ExitRecord(code=0)).state == "ok"


def test_a_dump_that_fails_is_told_by_its_error_and_not_by_its_last_line() -> None:
    said = 'pg_dump: error: query failed: ERROR:  canceling statement\npg_dump: detail: Query was: LOCK TABLE "x"'
    outcome = read(said, ExitRecord(code=2), "pg_dump")
    assert outcome.state == "failed"
    assert outcome.text == "exit 2: 1 error: query failed: ERROR:  canceling statement"


def test_how_far_it_is_is_told_while_it_runs() -> None:
    reading = DumpMessages("pg_restore", None, 2, SYSTEM)
    try:
        assert reading.told() == ""
        reading.feed([StampedLine(1_000_000 * at, "e", line) for at, line in enumerate(RESTORED.splitlines()[:3], 1)])
        assert "running: TABLE DATA orphans" in reading.told()
    finally:
        reading.close()


def test_the_share_of_the_panels_is_told_and_no_other_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, panels, shares = HeldClock(), [""], list[str | None]()

    def told(course: MessageProgress, now_us: int, share: str | None = None) -> str:
        shares.append(share)
        return "told"

    monkeypatch.setattr(MessageProgress, "told", told)
    reading = DumpMessages("pg_restore", None, 2, clock, lambda: panels[0])
    try:
        reading.feed([StampedLine(1_000_000 * at, "e", line) for at, line in enumerate(RESTORED.splitlines()[:3], 1)])
        for seconds, seen in ((0, ""), (11, ""), (2, "51 % (estimated)"), (60, "")):
            clock.advance(seconds)
            panels[0] = seen
            reading.told()
    finally:
        reading.close()
    assert shares == ["", None, "51 % (estimated)", ""]


def test_no_end_is_foretold_where_the_panels_tell_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def foretold(*_: object, **__: object) -> None:
        raise AssertionError("an end is foretold that nobody is told")

    monkeypatch.setattr(course_module, "forecast", foretold)
    reading = DumpMessages("pg_restore", None, 2, SYSTEM, lambda: "51 % (estimated)")
    try:
        reading.feed([StampedLine(1_000_000 * at, "e", line) for at, line in enumerate(RESTORED.splitlines()[:5], 1)])
        assert reading.told().startswith("51 % (estimated); constraints 0 of 1; running: FK CONSTRAINT orphans ")
    finally:
        reading.close()


def test_an_archive_that_cannot_be_read_takes_nothing_but_the_shares(tmp_path: Path) -> None:
    reading = DumpMessages("pg_restore", str(tmp_path / "nowhere"), 2, SYSTEM)
    try:
        reading.feed([StampedLine(at, "e", line) for at, line in enumerate((RESTORED + IGNORED).splitlines(), 1)])
        assert reading.ended(outcome_of(ExitRecord(code=1), (0, 1)), 99).values["objects"] == 1
    finally:
        reading.close()


def test_who_finds_a_command_again_reads_what_was_passed_on_before_too(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_text(RESTORED + IGNORED + "\n")
    place, fed = tmp_path / "step.run.1", list[StampedLine]()
    first = AttachedCommand(place, SYSTEM, ActionControl(SYSTEM, lambda: None), fed.extend, (0, 1))
    spec = CommandSpec(
        argv=("/bin/sh", "-c", 'cat "$1" >&2; exit 1', "sh", str(said)), directory=str(place), tag="T", host="h"
    )
    assert first.start(spec) is None
    assert first.follow().state == "ok" and len(fed) >= len(RESTORED.splitlines())
    first.close()
    again = AttachedCommand(place, SYSTEM, ActionControl(SYSTEM, lambda: None), fed.extend, (0, 1),
                       DumpMessages("pg_restore", None, 2, SYSTEM))  # fmt: skip
    before = len(fed)
    outcome = again.settle()
    again.close()
    assert outcome.values["errors"] == 1 and "orphans_id_fkey" in outcome.text
    assert len(fed) == before, "told twice"


def test_archive_and_jobs_may_be_what_an_earlier_command_printed_first() -> None:
    block = Block(id="s/run", kind="run", line=1, language="sh", body="x",
                  settings={"reads": "pg_dump", "archive": "%(place)s", "jobs": "%(chosen)s"})  # fmt: skip
    values = {"place": {"exit": 0, "first_line": "/backup/x"}, "chosen": {"first_line": "4"}}
    reading = make_dump_messages(block, values, SYSTEM)
    assert reading is not None
    reading.close()
    assert (reading.archive, reading.jobs) == ("/backup/x", 4)
    assert make_dump_messages(Block(id="s/run", kind="run", line=1, language="sh", body="x"), {}, SYSTEM) is None
