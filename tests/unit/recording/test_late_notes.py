"""Notes added after a recording has ended: shown when they happened, verified, and reported as later."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.late_notes import append_notes
from dba_console.recording.recording import Recording
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from tests.build import NOW_US
from tests.disks import fill, mounted
from tests.unit.recording.recordings import meta, record, record_samples, recorder, ticks

LATER_US = NOW_US + 86_400_000_000


def note(text: str, occurred_s: int | None = None) -> Event:
    occurred_us = None if occurred_s is None else NOW_US + occurred_s * 1_000_000
    return Event(wall_us=LATER_US, kind="note", text=text, occurred_us=occurred_us, who="anna")


def events_of(directory: Path, **span: int) -> list[str]:
    with closing(Recording.open(directory)) as recording:
        return [event.text for event in recording.events(**span) if event.kind in ("mark", "note")]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    made = recorder(tmp_path)
    record_samples(made, ticks(12))
    for second in (2, 4, 6):
        made.put_event(Event(wall_us=NOW_US + second * 1_000_000, kind="mark", text=f"mark {second}"))
    made.close("done")
    return made.directory


def test_notes_appear_at_the_time_they_happened(session: Path) -> None:
    append_notes(session, [note("b", 5), note("summary")])
    append_notes(session, [note("a", 3)])
    assert events_of(session) == ["mark 2", "a", "mark 4", "b", "mark 6", "summary"]
    assert events_of(session, to_us=NOW_US + 5_000_000) == ["mark 2", "a", "mark 4", "b"]
    assert events_of(session, from_us=NOW_US + 3_000_000, to_us=NOW_US + 4_000_000) == ["a", "mark 4"]
    assert events_of(session, limit=4) == ["b", "mark 6", "summary"]


def test_events_keep_their_order_if_the_clock_was_set_back(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    for place, second in enumerate((5, 10, 3, 8)):
        made.put_event(Event(wall_us=NOW_US + second * 1_000_000, kind="mark", text=f"mark {place}"))
    made.close("done")
    append_notes(made.directory, [note("a", 7), note("b", 1)])
    assert events_of(made.directory) == ["b", "mark 0", "a", "mark 1", "mark 2", "mark 3"]
    assert verify(made.directory).ok


def test_a_session_with_later_notes_is_verified_and_says_so(session: Path) -> None:
    append_notes(session, [note("a", 3)])
    append_notes(session, [note("b", 5), note("c")])
    found = verify(session)
    assert (found.ok, found.first_bad) == (True, None)
    assert found.notes == ["3 notes added after the recording had ended, in its chain of events"]


def test_a_note_records_both_times_and_is_harmless_in_the_log(session: Path) -> None:
    append_notes(session, [note("x\n<b>\x1b[2J password=geheim", 3)])
    with closing(Recording.open(session)) as recording:
        [added] = [event for event in recording.events() if event.kind == "note"]
    assert (added.wall_us, added.occurred_us) == (LATER_US, NOW_US + 3_000_000)
    assert added.text == "x␊<b>␛[2J password=********"
    last = (session / "session.log").read_text().splitlines()[-1]
    assert last.endswith("x␊<b>␛[2J password=******** (happened 2026-11-20T14:57:32Z)")


def _execute(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / "session.db")) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM journal WHERE seq = 7", "event 7: missing; notes were added up to number 7"),
        ("UPDATE journal SET line = replace(line, 'note a', 'note x') WHERE seq = 6", "event 6: changed"),
        ("UPDATE meta SET value = replace(value, '6', '7') WHERE key = 'later_notes'", "does not match the events"),
        ("DELETE FROM meta WHERE key = 'later_notes'", "2 events added after the session was closed"),
    ],
)
def test_changed_or_removed_later_notes_are_detected(session: Path, statement: str, problem: str) -> None:
    append_notes(session, [note("note a", 3), note("note b", 5)])
    _execute(session, statement)
    found = verify(session)
    assert not found.ok
    assert problem in " ".join([found.first_bad or "", *found.notes])


def test_only_notes_may_follow_the_end_of_a_session(session: Path) -> None:
    append_notes(session, [Event(wall_us=LATER_US, kind="mark", text="forged")])
    assert verify(session).first_bad == "event 6: added after the recording had ended (mark)"


def test_a_session_left_by_a_killed_agent_takes_notes(tmp_path: Path) -> None:
    made = recorder(tmp_path / "a")
    record_samples(made, ticks(17))
    left = tmp_path / made.directory.name
    shutil.copytree(made.directory, left)
    made.close("done")
    append_notes(left, [note("a", 3)])
    found = verify(left)
    assert found.ok
    assert found.notes[0] == "1 note added after the recording had ended, in its chain of events"
    assert events_of(left)[-1] == "a"


def test_a_session_being_recorded_or_damaged_takes_no_note(tmp_path: Path) -> None:
    made = recorder(tmp_path, meta())
    with pytest.raises(SessionError, match="no note was added: another process writes"):
        append_notes(made.directory, [note("a")])
    made.close("done")
    damaged = record(tmp_path / "b", ticks(5))
    with open(damaged / "session.db", "r+b") as file:
        file.truncate(damaged.joinpath("session.db").stat().st_size // 2)
    before = (damaged / "session.db").read_bytes()
    with pytest.raises(SessionError, match="no note was added"):
        append_notes(damaged, [note("a")])
    assert (damaged / "session.db").read_bytes() == before


def test_a_note_is_added_where_only_samples_are_damaged(session: Path) -> None:
    with open(session / "session.samples", "r+b") as file:
        file.truncate(100)
    append_notes(session, [note("a", 3)])
    assert "a" in events_of(session)


def test_nothing_in_a_foreign_session_runs_or_redirects_a_note(session: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "session.db").symlink_to(session / "session.db")
    with pytest.raises(SessionError, match="is a link"):
        append_notes(linked, [note("x")])
    # A journal can name a file that SQLite deletes when it rolls back.
    (session / "session.db-journal").write_bytes(b"x")
    with pytest.raises(SessionError, match="interrupted"):
        append_notes(session, [note("x")])
    (session / "session.db-journal").unlink()
    with closing(sqlite3.connect(session / "session.db")) as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON journal BEGIN DELETE FROM journal WHERE seq < new.seq; END"
        )
    with pytest.raises(SessionError, match="triggers"):
        append_notes(session, [note("x")])
    assert events_of(session) == ["mark 2", "mark 4", "mark 6"]


@pytest.mark.root
def test_a_full_disk_leaves_the_session_as_it_was(session: Path, tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        copy = shutil.copytree(session, small / session.name)
        filler = fill(small)
        before = events_of(copy)
        with pytest.raises(SessionError, match=r"no note was added: .*(full|space)"):
            append_notes(copy, [note("x" * 7000, 3)] * 100)
        assert events_of(copy) == before
        assert verify(copy).ok
        filler.unlink()
        append_notes(copy, [note("a", 3)])
        assert "a" in events_of(copy)


def test_a_session_is_verified_while_notes_are_added(session: Path) -> None:
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            append_notes(session, [note("x")])

    thread = threading.Thread(target=add)
    thread.start()
    try:
        assert [verify(session).first_bad for _ in range(30)] == [None] * 30
    finally:
        stop.set()
        thread.join()


@pytest.mark.root
def test_a_note_of_root_leaves_the_session_to_its_owner(session: Path) -> None:
    for path in (session, *session.iterdir()):
        os.chown(path, 65534, 65534)
    (session / "session.lock").unlink(missing_ok=True)
    append_notes(session, [note("x")])
    assert {path.name: path.stat().st_uid for path in session.iterdir() if path.stat().st_uid != 65534} == {}
