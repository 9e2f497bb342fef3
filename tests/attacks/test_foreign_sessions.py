"""Directories named like sessions, made by another user to make the reader wait or run their code."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.cli.runbook.run_history import _print_run as story_of
from dba_console.core.errors import SessionError
from dba_console.recording.listing import list_sessions
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import read_run
from dba_console.recording.verify import verify
from dba_console.tui.known_runs import RecordedRunsArrived, read_runs
from tests.unit.recording.recordings import record, ticks
from tests.unit.recording.run_journals import INTENT, RUN, begin_journal

ENDLESS_QUERY = "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n) SELECT x AS {} FROM n"
COLUMNS = {
    "journal": (
        "seq", "wall_us", "line",
    ),
    "gaps": ("from_us", "to_us", "samples", "reason"), "meta": ("key", "value"),
    "blocks": ("first_seq", "samples", "first_us", "last_us", "at", "size", "points_size"),
}  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return record(tmp_path / "sessions", ticks(5))


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", ["session.db", "session.db-wal", "session.db-journal", "session.samples"])
@pytest.mark.parametrize("make", [_pipe, _device])
def test_something_that_is_not_a_file_is_not_waited_for(session: Path, name: str, make: Callable[[Path], None]) -> None:
    make(session / name)
    with pytest.raises(SessionError, match="not a regular file"):
        verify(session)
    rows = list_sessions(session.parent)
    assert [row.state for row in rows] in ([], ["unreadable"])


def _rewrite(session: Path, *statements: str) -> None:
    connection = sqlite3.connect(session / "session.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("table", COLUMNS)
def test_an_endless_view_in_place_of_a_table_is_refused(session: Path, table: str) -> None:
    columns = COLUMNS[table]
    view = ENDLESS_QUERY.format(columns[0]) if len(columns) == 1 else (
        f"SELECT {', '.join(f'x AS {name}' for name in columns)} FROM ({ENDLESS_QUERY.format('x')})"
    )  # fmt: skip
    _rewrite(session, "DROP VIEW IF EXISTS lines", f"DROP TABLE {table}", f"CREATE VIEW {table} AS {view}")
    with pytest.raises(SessionError, match=f"{table} is not a plain table"):
        Recording.open(session)


def test_a_table_with_computed_columns_is_refused(session: Path) -> None:
    _rewrite(
        session, "DROP TABLE gaps",
        "CREATE TABLE gaps (from_us INTEGER, to_us INTEGER, samples INTEGER, reason AS (hex(zeroblob(400000000))))",
        "INSERT INTO gaps VALUES (1, 2, 3)",
    )  # fmt: skip
    with pytest.raises(SessionError, match="gaps is not a plain table"):
        verify(session)


def test_tables_a_user_added_next_to_ours_are_accepted(session: Path) -> None:
    _rewrite(
        session,
        "CREATE TABLE mine (a)",
        "CREATE VIEW marks AS SELECT * FROM journal",
        "CREATE INDEX i ON journal (line)",
    )
    assert verify(session).ok


@pytest.mark.parametrize("others", [0, 1000])
def test_neither_spelling_nor_number_hides_a_view_in_place_of_a_table(session: Path, others: int) -> None:
    crowd = [f"CREATE VIEW v{number} AS SELECT 1" for number in range(others)]
    drop = ("DROP VIEW IF EXISTS lines", "DROP VIEW events", "DROP VIEW steps", "DROP VIEW findings")
    name = "journal" if others else '"Journal"'
    view = f"CREATE VIEW {name} AS {ENDLESS_QUERY.format('seq')}"
    _rewrite(session, *drop, "DROP TABLE journal", *crowd, view)
    with pytest.raises(SessionError, match=r"(?i)journal is not a plain table"):
        Recording.open(session)


def test_a_virtual_table_with_a_long_leading_comment_is_refused(session: Path) -> None:
    _rewrite(session, "DROP TABLE gaps", f"CREATE /* {'-' * 60} */ VIRTUAL TABLE gaps USING fts5(a)")
    with pytest.raises(SessionError, match="gaps is not a plain table"):
        Recording.open(session)


def _misses_nothing_countable(path: Path) -> None:
    path.write_bytes(b"1 o before\n17 K missing\n")


@pytest.mark.parametrize("make", [_pipe, _device, _misses_nothing_countable])
def test_a_command_without_a_valid_log_hides_no_other_one(session: Path, make: Callable[[Path], None]) -> None:
    journal = begin_journal(session)
    journal.append(INTENT)
    journal.close()
    steps = session / "runs" / RUN / "steps"
    for name in ("a.run.1", "b.run.1"):
        (steps / name).mkdir(parents=True)
    make(steps / "a.run.1" / "out.log")
    (steps / "b.run.1" / "out.log").write_bytes(b"2 o printed\n")
    reported: list[RecordedRunsArrived] = []
    read_runs(session, reported.append)
    ((run,),) = (one.runs for one in reported)
    assert "printed" in [line.text for line in run.output]


@pytest.mark.parametrize("make", [_pipe, _device])
def test_run_summaries_that_are_not_files_are_not_waited_for(session: Path, make: Callable[[Path], None]) -> None:
    begin_journal(session).close()
    make(session / "runs" / RUN / "summary.json")
    assert story_of(read_run(session / "runs" / RUN), json=False) == 0
