"""Notes added to a session from the command line: live through its agent, afterwards to its file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording
from dba_console.watch.samples.event import Event
from tests.cli.console import CompletedCommand, Console
from tests.unit.reports.test_comparison import FIXTURE

CHAT = (
    "Anna Schmidt\n  21:39\ncheckout times out\nis the disk slow?\n\n"
    "21:39:20 bob: password=geheim \x1b[2J <b>now</b>\nno time\n"
)


@pytest.fixture
def session(console: Console) -> Path:
    """A copy of a recorded incident in the console's sessions directory."""
    copy = console.sessions / "20261120T213844Z-db2-1a2b3c4d"
    shutil.copytree(FIXTURE, copy)
    return copy


def notes_of(directory: Path) -> list[Event]:
    recording = Recording.open(directory)
    try:
        return [event for event in recording.events() if event.kind == "note"]
    finally:
        recording.close()


def imported(console: Console, text: str, *options: str) -> CompletedCommand:
    done = console.run("session", "import-notes", "last", *options, stdin=text)
    assert done.code == 0, done.err
    return done


def test_a_note_on_a_closed_session_is_shown_when_it_happened(console: Console, session: Path) -> None:
    done = console.run("session", "note", "last", "--at", "finding:reclaim-stall", "failover", "announced")
    assert (done.code, done.out) == (0, f"note added to {session.name} at 2026-11-20 21:39:05\n")
    [note] = notes_of(session)
    assert note.who
    assert note.wall_us > (note.occurred_us or 0)
    [frame] = console.run("replay", "last", "--at", "+25s", "--json", "events").objects()
    rows = frame["panels"]["events"]["rows"]
    assert [row["text"] for row in rows[3:6] if row["kind"] == "note"] == ["failover announced"]
    assert "1 note added after the recording had ended" in console.run("session", "verify", "last").out


def test_pasted_lines_become_notes_at_their_times(console: Console, session: Path) -> None:
    text = CHAT + "99:99 nonsense\n"
    tried = imported(console, text, "--zone", "UTC", "--dry-run")
    assert notes_of(session) == []
    done = imported(console, text, "--zone", "UTC")
    assert done.out == tried.out
    assert done.out.splitlines() == [
        "2026-11-20 21:39:00  Anna Schmidt: checkout times out / is the disk slow?",
        "2026-11-20 21:39:20  bob: password=******** ␛[2J <b>now</b> / no time",
    ]
    assert "line 8: 99:99 nonsense" in done.err
    found = notes_of(session)
    assert [note.details.get("author") for note in found] == ["Anna Schmidt", "bob", None]
    assert found[-1].text == "without a time: 99:99 nonsense"
    assert found[-1].occurred_us is None
    again = imported(console, text, "--zone", "UTC")
    assert again.out == ""
    assert "0 of 3 notes added; the others are already in the session" in again.err
    assert len(notes_of(session)) == 3


def test_what_cannot_be_added_is_reported_in_one_sentence(console: Console, session: Path) -> None:
    refused = console.run("session", "import-notes", "last", stdin="21:39 hi")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: line 1: the time has no zone")
    assert console.run("session", "import-notes", "last", stdin="").code == 2
    assert console.run("session", "note", "last", " ").code == 2
    assert console.run("session", "note", "last", "--at", "tomorrow", "x").code == 2
    with open(session / "session.db", "r+b") as file:
        file.truncate((session / "session.db").stat().st_size // 2)
    damaged = console.run("session", "note", "last", "x")
    assert damaged.code == 6
    assert damaged.err.startswith("error: no note was added: ")


def test_notes_on_a_live_session_go_through_its_agent(console: Console, cluster: Cluster) -> None:
    with console.watching(cluster.dsn()) as agent:
        agent.until(lambda frame: frame.seq > 2, "samples")
        done = console.run("session", "note", "last", "--at", "-1s", "failover announced")
        assert done.code == 0, done.err
        lines = "\n".join(f"2001-02-03 04:05:{second:02d} anna: line {second}" for second in range(60))
        assert len(imported(console, lines, "--zone", "UTC").out.splitlines()) == 60
        shown = console.run("show", "events", "--json", cluster.dsn()).objects()[0]
        assert "failover announced" in [row["text"] for row in shown["panels"]["events"]["rows"]]
    [directory] = console.sessions.iterdir()
    assert len(notes_of(directory)) == 61
    assert notes_of(directory)[0].details == {"author": "anna"}
    verified = console.run("session", "verify", "last")
    assert verified.code == 0
    assert "added after" not in verified.out


def test_show_compares_two_times_of_a_recording(console: Console, session: Path) -> None:
    done = console.run("show", "--diff", "+5s", "-5s", "--session", "last")
    assert done.code == 0, done.err
    assert "active sessions rose from 1 to 137" in done.out
    [found] = console.run("show", "locks", "--diff", "+5s", "-5s", "--json").objects()
    changes = found["changes"]
    assert isinstance(changes, list)
    assert {change["area"] for change in changes} == {"locks"}
    assert console.run("show", "--diff", "+5s", "-5s", "host=db1").code == 2
    assert console.run("show", "--session", "last").code == 2
    assert console.run("show", "--diff", "2001-01-01", "-5s").code == 6


def test_a_summary_is_printed_or_written_as_three_files(console: Console, session: Path) -> None:
    printed = console.run("report", "summary", "last", "--since", "1h")
    assert printed.code == 0, printed.err
    assert printed.out.startswith("# Summary of 2026-11-20 to 2026-11-20\n")
    assert "| reclaim-stall | critical |" in printed.out
    written = console.run("report", "summary", "last", "--since", "1h", "--out", str(console.home / "out"))
    assert written.code == 0, written.err
    assert sorted(path.name for path in (console.home / "out").iterdir()) == [
        "summary.html",
        "summary.json",
        "summary.md",
    ]
    again = console.run("report", "summary", "last", "--out", str(console.home / "out"))
    assert again.code == 2
    assert "summary.md exists" in again.err
    assert console.run("report", "summary", "--since", "0s").code == 2
