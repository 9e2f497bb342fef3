"""`session share` as a command: review, output, full disk; and what opens the file."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.watch.samples.event import Event
from tests.background import wait_until
from tests.build import NOW_US
from tests.cli.console import Console, own_console
from tests.disks import mounted
from tests.unit.recording.recordings import record_samples, recorder, ticks

NOTE = "orders-api on db2 was restarted by kim; mykiosk is up"


@pytest.fixture(scope="module")
def shared() -> Iterator[Console]:
    """A console with one session that has a note."""
    with own_console() as console:
        console.sessions.mkdir(parents=True, mode=0o700)
        made = recorder(console.sessions)
        record_samples(made, ticks(30))
        made.put_event(Event(wall_us=NOW_US, kind="note", text=f"application=orders-api: {NOTE}", who="kim"))
        assert made.close("done")
        yield console


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_the_file_opens_wherever_a_session_is_named(shared: Console, tmp_path: Path) -> None:
    file = tmp_path / "case.zip"
    done = shared.run("session", "share", "last", "--out", str(file), "--yes")
    assert done.code == 0, done.err
    assert "30 samples, 3 events, level names" in done.out
    assert files(tmp_path) == ["case.zip"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "verified" in shared.run("session", "verify", str(file)).out
    shown = shared.run("session", "show", str(file))
    assert "application_8 on host_1 was restarted by user_2" in shown.out and "redacted copy" in shown.out
    frame = shared.run("replay", str(file), "--show", "connections", "--json")
    assert frame.code == 0 and '"panels":{"connections"' in frame.out
    diff = shared.run("show", "--diff", "14:57:35", "14:57:55", "--session", str(file))
    assert diff.code == 0 and "largest change first" in diff.out, diff.err
    report = shared.run("report", "postmortem", str(file), "--out", str(tmp_path / "report"))
    assert report.code == 0 and "host_1" in (tmp_path / "report" / "postmortem.md").read_text(), report.err
    table = shared.run("session", "export", str(file), "--format", "csv", "--out", str(tmp_path / "report" / "x.csv"))
    assert table.code == 0, table.err
    shutil.rmtree(tmp_path / "report")
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("dba-console-*/*-host_1-*"))
    pinned = shared.run("session", "pin", str(file))
    assert pinned.code == 6 and "only a copy of its content would be changed" in pinned.err
    again = shared.run("session", "share", str(file), "--out", str(tmp_path / "x.zip"), "--yes")
    assert again.code == 6 and "redacted copy already" in again.err
    assert files(tmp_path) == ["case.zip"]


def test_the_map_is_private_and_beside_nothing_that_is_shared(shared: Console, tmp_path: Path) -> None:
    assert shared.run("session", "share", "last", "--out", str(tmp_path / "a.zip"), "--yes").code == 0
    [kept] = (shared.home / "state" / "dba-console" / "share-maps").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert "orders-api" in kept.read_text()
    own = tmp_path / "case.json"
    done = shared.run("session", "share", "last", "--out", str(tmp_path / "b.zip"), "--yes", "--map", str(own))
    assert done.code == 0 and own.stat().st_mode & 0o777 == 0o600


def test_notes_are_reviewed_before_anything_is_written(shared: Console, tmp_path: Path) -> None:
    file = tmp_path / "case.zip"
    refused = shared.run("session", "share", "last", "--out", str(file))
    assert refused.code == 8 and "1 note of people needs a review" in refused.err
    code, screen = in_terminal(shared, "session", "share", "last", "--out", str(file), typed="yes\n")
    assert code == 8 and "application_8 on host_1 was restarted" in screen and "not confirmed" in screen
    assert files(tmp_path) == []
    code, screen = in_terminal(shared, "session", "share", "last", "--out", str(file), typed="share\n")
    assert code == 0 and files(tmp_path) == ["case.zip"], screen


def in_terminal(console: Console, *arguments: str, typed: str) -> tuple[int, str]:
    """Run in a terminal; the answer is typed before it is asked for."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    process = subprocess.Popen(
        console.command(*arguments), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=console.environ(), encoding="utf-8",
    )  # fmt: skip
    os.close(theirs)
    with closing(os.fdopen(ours)):
        screen = process.communicate(timeout=60)[0]
    return process.returncode, screen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing(shared: Console, tmp_path: Path, number: signal.Signals) -> None:
    ours, theirs = pty.openpty()  # with the file open, it waits there for the review
    command = shared.command("session", "share", "last", "--out", str(tmp_path / "case.zip"))
    process = subprocess.Popen(
        ["env", "--default-signal", *command], stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=shared.environ(),
    )  # fmt: skip
    os.close(theirs)
    with closing(os.fdopen(ours)), process:
        wait_until(lambda: files(tmp_path), what="the unfinished file")
        process.send_signal(number)
        err = process.communicate(timeout=60)[1]
    assert (process.returncode, err, files(tmp_path)) == (130, b"", [])


@pytest.mark.parametrize(("level", "said"), [
    ("none", "names, addresses and query texts are as recorded"),
    ("secrets", "Passwords, keys and their paths are masked; other names"),
    ("names", "names, addresses and paths are pseudonyms, and values in statements are removed"),
    ("all", "statements and what people wrote are removed"),
])  # fmt: skip
def test_a_report_of_the_copy_says_what_was_replaced(shared: Console, tmp_path: Path, level: str, said: str) -> None:
    file = tmp_path / "case.zip"
    assert shared.run("session", "share", "last", "--out", str(file), "--yes", "--level", level).code == 0
    assert shared.run("report", "postmortem", str(file), "--out", str(tmp_path)).code == 0
    for name in ("postmortem.md", "postmortem.html"):
        text = (tmp_path / name).read_text()
        assert said in text and ("orders-api" in text) == (level in ("none", "secrets"))
        assert (f"is a redacted copy (level {level})" in text) == (level != "none")


def test_an_existing_file_stays_unless_forced(shared: Console, tmp_path: Path) -> None:
    file = tmp_path / "case.zip"
    file.write_text("mine")
    done = shared.run("session", "share", "last", "--out", str(file), "--yes")
    assert done.code == 2 and file.read_text() == "mine"
    assert shared.run("session", "share", "last", "--out", str(file), "--yes", "--force").code == 0
    assert shared.run("session", "share", "last", "--out", str(file), "--yes", "--level", "much").code == 2


def test_a_word_that_is_hidden_is_in_no_longer_word(shared: Console, tmp_path: Path) -> None:
    file = tmp_path / "case.zip"
    command = ("session", "share", "last", "--out", str(file), "--yes")
    assert shared.run(*command, "--hide", "kiosk", "--map", str(tmp_path / "map")).code == 0
    shown = shared.run("session", "show", str(file)).out
    assert "by user_2; my_word_1 is up" in shown
    for arguments in (("--hide", "events"), ("--hide", "x"), ("--hide", "acme", "--level", "secrets")):
        assert shared.run(*command, "--force", *arguments).code == 2


def test_nothing_is_written_before_it_was_searched(shared: Console, tmp_path: Path) -> None:
    done = shared.run("session", "share", "last", "--out", "-", "--yes")
    assert (done.code, done.out) == (2, "") and "name a file" in done.err
    file, no_map = tmp_path / "case.zip", tmp_path / "none" / "map"
    done = shared.run("session", "share", "last", "--out", str(file), "--yes", "--map", str(no_map))
    assert done.code == 6 and f"cannot write the map {no_map}" in done.err
    assert files(tmp_path) == []


@pytest.mark.root
@pytest.mark.parametrize("size", ["64k", "136k"])
def test_a_full_disk_leaves_nothing(size: str, shared: Console, tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", f"size={size}") as place:
        done = shared.run("session", "share", "last", "--out", str(place / "case.zip"), "--yes")
        assert done.code != 0 and "error: cannot " in done.err, done
        assert files(place) == []
