"""`session export` of screens and logs, as a user types it: times, options, output, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.cli.app import run
from tests.disks import mounted
from tests.requirements import require_root
from tests.unit.recording.recordings import ticks
from tests.unit.reports.cast_reader import read_cast
from tests.unit.reports.sessions import event, recorded


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty seconds from 14:57:30 UTC."""
    return recorded(tmp_path_factory.mktemp("session"), ticks(20), [event(5, "mark", "release 4.2")])


def export(session: Path, format: str, out: Path | str, *options: str) -> int:
    return run(["session", "export", str(session), "--format", format, "--out", str(out), *options])


def test_a_cast_has_a_span_a_size_and_a_version(session: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.cast"
    options = [
        "--from",
        "mark:release",
        "--to",
        "+15s",
        "--size",
        "100x30",
        "--cast-version",
        "3",
        "--idle-limit",
        "5s",
    ]
    assert export(session, "asciicast", out, *options) == 0
    cast = read_cast(out.read_bytes())
    assert cast.size == (100, 30) and cast.header["version"] == 3 and cast.header["idle_time_limit"] == 5.0
    assert cast.events[-1].at_ms == 11_000 and os.stat(out).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("options", "shown"), [
    ([], "14:57:49Z"), (["--at", "+4s"], "14:57:34Z"), (["--from", "-2s"], "14:57:47Z"),
    (["--at", "mark:release"], "14:57:34Z"),
])  # fmt: skip
def test_a_picture_is_of_the_named_moment_or_of_the_end(
    session: Path, options: list[str], shown: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert export(session, "svg", "-", *options) == 0
    assert shown.encode() in capsysbinary.readouterr().out


@pytest.mark.parametrize(("format", "options", "said"), [
    ("svg", ["--at", "+4s", "--from", "+2s"], "--at names one moment"),
    ("svg", ["--cast-version", "3"], "--cast-version is not an option of svg"),
    ("syslog", ["--panel", "locks"], "--panel is not an option of syslog"),
    ("asciicast", ["--size", "20x20"], "not a size of the screen"),
    ("text", ["--panel", "lokcs"], "no such panel"),
])  # fmt: skip
def test_what_a_format_cannot_do_is_refused(
    session: Path, tmp_path: Path, format: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(session, format, tmp_path / "out", *options) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_half_file(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_root()
    with mounted("tmpfs", tmp_path / "small", "-o", "size=16k") as small:
        assert export(session, "asciicast", small / "a.cast") != 0
        assert list(small.iterdir()) == []
    assert "No space left on device" in capsys.readouterr().err


def test_a_damaged_session_is_exported_with_a_warning(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / session.name
    copy.mkdir()
    for file in session.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    (copy / "session.db").write_bytes(b"\0" * 4096 + (copy / "session.db").read_bytes()[4096:])
    for format in ("asciicast", "svg", "text", "syslog", "journald"):
        assert export(copy, format, tmp_path / format) == 0
        assert "warning: the recording is damaged" in capsys.readouterr().err
    assert "release 4.2" in (tmp_path / "syslog").read_text()
