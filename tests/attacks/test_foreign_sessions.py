"""Directories named like sessions, made by another user to make the reader wait or run their code."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.cli.runbook.run_history import _print_run as story_of
from dba_console.core.errors import SessionError
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import read_run
from dba_console.recording.session_lookup import list_sessions
from dba_console.recording.shared_file import Manifest, pack
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


def test_a_table_with_more_rows_than_any_recording_is_refused(session: Path) -> None:
    _rewrite(session, f"INSERT INTO journal VALUES ({10**12}, 0, '{{}}')")
    for read in (verify, Recording.open):
        with pytest.raises(SessionError, match="journal has too many rows"):
            read(session)


def test_lines_of_output_numbered_otherwise_are_not_read_for_ever(session: Path) -> None:
    _rewrite(session, *(f"INSERT INTO output (rowid, text) VALUES ({number}, 'x')" for number in (1, 40_000_000)))
    with closing(Recording.open(session)) as recording:
        assert len(list(recording.output())) <= 1


def test_a_huge_value_costs_no_memory(session: Path) -> None:
    _rewrite(session, "INSERT INTO journal SELECT max(seq) + 1, 0, zeroblob(400000000) FROM journal")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not verify(session).ok
    list_sessions(session.parent)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 100


def test_events_by_the_million_are_refused_before_they_fill_the_memory(session: Path) -> None:
    line = "{" + "x" * 4000
    many = f"WITH n(x) AS (VALUES (1000) UNION ALL SELECT x + 1 FROM n WHERE x < 90000) SELECT x, 0, '{line}' FROM n"
    _rewrite(session, f"INSERT INTO journal {many}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = verify(session)
    assert "more than 256 MB at once" in " ".join([found.first_bad or "", *found.notes])
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 600


@pytest.fixture
def shared(session: Path, tmp_path: Path) -> Path:
    path = tmp_path / "shared.zip"
    with path.open("wb") as file:
        pack(session, Manifest(session=session.name, level="none", program_version="1"), file)
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_was_extracted_of_a_shared_file_is_removed_after_a_signal(
    number: signal.Signals, shared: Path, tmp_path: Path
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    reader = start_reader(shared, place)
    reader.send_signal(number)
    reader.communicate(timeout=60)
    assert list(place.iterdir()) == []


def test_what_a_killed_process_extracted_is_removed_by_the_next_one(shared: Path, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    reader, other = start_reader(shared, place), start_reader(shared, place)
    reader.kill()
    reader.communicate(timeout=60)
    assert len(list(place.iterdir())) == 2
    third = start_reader(shared, place)
    assert len(list(place.iterdir())) == 2, "the one in use is kept"
    for one in (other, third):
        one.terminate()
        one.communicate(timeout=60)
    assert list(place.iterdir()) == []


def start_reader(shared: Path, place: Path) -> subprocess.Popen[bytes]:
    """A process that has opened a shared file and waits."""
    script = (
        "import sys; from pathlib import Path; from dba_console.recording.shared_file import open_shared\n"
        "open_shared(Path(sys.argv[1])); print('open', flush=True)\n"
        "try: sys.stdin.read()\nexcept KeyboardInterrupt: pass"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", script, str(shared)], env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert reader.stdout is not None and reader.stdout.readline() == b"open\n"
    return reader
