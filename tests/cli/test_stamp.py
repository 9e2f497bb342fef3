"""`dba-console stamp` at the end of a pipe: what it writes, when, and what does not make it end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.cli.stamp.command import parse
from dba_console.cli.stamp.lines import LineDestination, LinePrefix, copy_lines
from dba_console.core.errors import UsageError
from dba_console.keeper.output_log_reader import LogReader
from tests.background import wait_until
from tests.cli.console import Console

LIMIT_S = 120.0
HOST = os.uname().nodename.partition(".")[0]


class StampProcess:
    """A stamp whose input the test writes and whose output it reads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._seen = b""

    def write(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def read_until(self, sign: bytes) -> bytes:
        """All output so far, once `sign` is in it."""
        assert self.process.stdout is not None
        while sign not in self._seen:
            assert select.select([self.process.stdout], [], [], LIMIT_S)[0], self._seen
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, self._seen
            self._seen += more
        return self._seen

    def end(self) -> tuple[int, bytes, bytes]:
        """End its input: exit code, the rest of stdout, stderr."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err


@contextmanager
def stamp_process(console: Console, *arguments: str, **environ: str) -> Iterator[StampProcess]:
    with subprocess.Popen(
        console.command("stamp", "-t", "TAG", *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=console.environ(**environ),
    ) as process:  # fmt: skip
        try:
            yield StampProcess(process)
        finally:
            process.kill()


def texts(out: str) -> list[str]:
    return [line.split("TAG: ", 1)[1] for line in out.splitlines()]


def test_lines_are_stamped_in_syslog_format(console: Console) -> None:
    done = console.run("stamp", "--tag", "PGRESTORE", stdin="creating TABLE a\n\n  b: c\n")
    assert (done.code, done.err) == (0, "")
    head = rf"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d {re.escape(HOST)} PGRESTORE: "
    assert re.fullmatch(f"{head}creating TABLE a\n{head}\n{head}  b: c\n", done.out)


def test_a_day_before_the_tenth_is_padded_with_a_space() -> None:
    stamps = LinePrefix("db2", "X", iso=False, utc=True)
    assert stamps.at_time(1_783_047_804_000_000) == b"Jul  3 03:03:24 db2 X: "
    assert stamps.at_time(1_784_864_204_999_999) == b"Jul 24 03:36:44 db2 X: "


def test_iso_stamps_carry_zone_and_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XST-5:30")
    time.tzset()
    try:
        at = 1_784_864_204_000_001
        assert (
            LinePrefix("db2", "50%", iso=True, utc=False).at_time(at) == b"2026-07-24T09:06:44.000001+05:30 db2 50%: "
        )
        assert LinePrefix("db2", "50%", iso=True, utc=True).at_time(at) == b"2026-07-24T03:36:44.000001Z db2 50%: "
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_line_is_written_as_soon_as_it_arrives(console: Console) -> None:
    with stamp_process(console) as stamp:
        stamp.write(b"first\nhal")
        seen = stamp.read_until(b"first\n")
        assert b"hal" not in seen
        stamp.write(b"f\n")
        assert stamp.read_until(b"half\n").count(b"TAG: ") == 2
        assert stamp.end()[0] == 0


def test_bytes_are_preserved_and_an_unterminated_last_line_is_a_line(console: Console) -> None:
    with stamp_process(console) as stamp:
        stamp.write(b"a\xff\x00\r\tb\n\xc3")
        code, out, err = stamp.end()
    assert (code, err) == (0, b"")
    assert [line.split(b"TAG: ")[1] for line in out.split(b"\n")[:-1]] == [b"a\xff\x00\r\tb", b"\xc3"]


def test_large_input_passes_unchanged(console: Console) -> None:
    lines = [f"line {number} {'x' * (number % 300)}" for number in range(50_000)]
    done = console.run("stamp", "-t", "TAG", stdin="\n".join(lines) + "\n")
    assert texts(done.out) == lines


def test_lines_of_any_length_pass_in_any_chunks(tmp_path: Path) -> None:
    class KeptLines(LineDestination):
        def __init__(self) -> None:
            self.lines: list[bytes] = []

        def write(self, lines: bytes, wall_us: int) -> None:
            self.lines += lines.split(b"\n")

    text = b"\n".join(b"y" * length for length in (0, 1, 65535, 65536, 65537, 200_000, 0)) + b"\nend"
    (tmp_path / "in").write_bytes(text)
    kept = KeptLines()
    with open(tmp_path / "in", "rb", buffering=0) as file:
        copy_lines(file.fileno(), [kept])
    assert kept.lines == text.split(b"\n")


def test_the_summary_names_the_lines_with_the_longest_delay_after_them(console: Console) -> None:
    with stamp_process(console, "--summary") as stamp:
        stamp.write(b"quick\nslow \x1b[2J\n")
        stamp.read_until(b"slow")
        stamp.write(b"last\n")
        stamp.read_until(b"last\n")
        code, _, err = stamp.end()
    assert code == 0
    head, *rows = err.decode().splitlines()
    assert head.startswith("3 lines in ")
    assert sorted(row.rpartition("TAG: ")[2] for row in rows) == ["last", "slow ␛[2J"]


def test_a_reader_that_closes_ends_it_quietly(console: Console) -> None:
    command = " ".join(console.command("stamp", "-t", "TAG"))
    script = f"yes | {command} | head -2; exit ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=console.environ())
    assert (done.returncode, done.stderr, texts(done.stdout)) == (0, "", ["y", "y"])


def test_lines_for_a_closed_standard_output_are_counted_as_lost(console: Console) -> None:
    script = f"echo x | {' '.join(console.command('stamp', '-t', 'TAG'))} >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=console.environ())
    assert done.returncode == 2 and "1 line could not be written to standard output" in done.stderr


def test_ctrl_c_waits_for_the_last_output_of_the_command_before_it(console: Console) -> None:
    with stamp_process(console) as stamp:
        stamp.write(b"working\n")
        stamp.read_until(b"working\n")
        stamp.process.send_signal(signal.SIGINT)
        stamp.write(b"cancelled\n")
        stamp.read_until(b"cancelled\n")
        assert stamp.end()[0] == 130


def test_a_second_ctrl_c_ends_it(console: Console) -> None:
    with stamp_process(console) as stamp:
        stamp.write(b"working\n")
        stamp.read_until(b"working\n")
        stamp.process.send_signal(signal.SIGINT)
        # Two signals at once would be one: a line comes through in between.
        stamp.write(b"once\n")
        stamp.read_until(b"once\n")
        stamp.process.send_signal(signal.SIGINT)
        assert stamp.process.wait(LIMIT_S) == 130


def test_a_lost_terminal_does_not_end_the_command_before_it(console: Console) -> None:
    """As in `nohup pg_restore | dba-console stamp`: the restore must not end for want of a reader."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            console.command("stamp", "-t", "TAG"), stdin=subprocess.PIPE, stdout=slave, stderr=slave,
            env=console.environ(), start_new_session=True,
        ) as process:  # fmt: skip
            os.close(slave)
            slave = -1
            assert process.stdin is not None
            process.stdin.write(b"seen\n")
            process.stdin.flush()
            assert b"seen" in os.read(master, 1000)
            os.close(master)
            master = -1
            process.send_signal(signal.SIGHUP)
            for _ in range(100):
                process.stdin.write(b"x" * 70_000 + b"\n")
            process.stdin.close()
            assert process.wait(LIMIT_S) == 0
    finally:
        for descriptor in (master, slave):
            if descriptor >= 0:
                os.close(descriptor)


def test_a_full_disk_does_not_end_the_command_before_it_and_is_reported(console: Console) -> None:
    with open("/dev/full", "wb") as full, subprocess.Popen(
        console.command("stamp", "-t", "TAG"), stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE,
        env=console.environ(),
    ) as process:  # fmt: skip
        _, err = process.communicate(b"a line\n" * 100_000, timeout=LIMIT_S)
        assert process.returncode == 2
    assert err == b"error: 100,000 lines could not be written to standard output: No space left on device\n"


def test_syslog_gets_each_line_with_priority_and_tag(console: Console) -> None:
    path = console.home / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(path))
        daemon.settimeout(LIMIT_S)
        done = console.run("stamp", "-t", "TAG", f"--syslog={path}", stdin="one\ntwo\n")
        messages = [daemon.recv(1000).decode() for _ in range(2)]
    assert (done.code, done.err, texts(done.out)) == (0, "", ["one", "two"])
    assert [re.sub(r"[A-Z][a-z]{2} [ \d]\d [\d:]{8}", "WHEN", message) for message in messages] == [
        "<13>WHEN TAG: one",
        "<13>WHEN TAG: two",
    ]


def test_a_missing_log_daemon_is_reported_once_and_the_lines_continue(console: Console) -> None:
    done = console.run("stamp", "-t", "TAG", f"--syslog={console.home}/none", stdin="one\ntwo\n")
    assert (done.code, texts(done.out)) == (0, ["one", "two"])
    first, last = done.err.splitlines()
    assert first.startswith("warning: lines do not reach the log daemon at ")
    assert last == "warning: 2 lines did not reach the log daemon: No such file or directory"


def test_a_log_daemon_that_does_not_read_blocks_nothing(console: Console) -> None:
    path = console.home / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(path))
        done = console.run("stamp", "-t", "TAG", f"--syslog={path}", stdin="line\n" * 5000)
    assert (done.code, len(texts(done.out))) == (0, 5000)
    assert "it does not accept messages" in done.err


def test_the_lines_are_stored_in_a_session_and_recorded_in_it(console: Console) -> None:
    console.write_config("")
    with console.running("record", "host=/nowhere port=1") as agent:
        wait_until(lambda: sessions(console), LIMIT_S, what="the session")
        session = sessions(console)[0]
        wait_until(lambda: "session.start" in console.run("session", "show", "last", "--json").out, LIMIT_S)
        done = console.run("stamp", "-t", "PG RESTORE", "--session", "last", stdin="one\ntwo\n")
        assert (done.code, done.err) == (0, "")
        log = session / "session.log"
        wait_until(lambda: "PG RESTORE: 2 lines in " in log.read_text(), LIMIT_S, what="the note")
        agent.terminate()
        agent.wait(LIMIT_S)
    (kept,) = (session / "out").iterdir()
    assert re.fullmatch(r"PG_RESTORE-\d{8}T\d{6}Z-\d+\.log", kept.name)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [line.text for line in LogReader(kept.parent, name=kept.name.removesuffix(".log")).read()] == ["one", "two"]
    assert console.run("session", "verify", "last").code == 0


def test_a_missing_session_is_an_error_before_a_line_is_read(console: Console) -> None:
    done = console.run("stamp", "-t", "TAG", "--session", "last", stdin="one\n")
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("error: no session in ")


def sessions(console: Console) -> list[Path]:
    return [path for path in console.sessions.glob("*") if (path / "session.log").exists()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no tag"),
        (["-t"], "requires a value"),
        (["-t", "a\nb"], "control"),
        (["-t", "X", "--sumary"], "no such option"),
    ],
)
def test_errors_are_reported(arguments: list[str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse(arguments)


def test_a_wrong_option_is_reported_with_the_probable_one(console: Console) -> None:
    done = console.run("stamp", "-t", "X", "--sumary")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: no such option: --sumary\nhint: did you mean --summary?\n"


def test_it_loads_only_what_it_needs(console: Console) -> None:
    code = (
        "import sys; sys.argv = ['dba-console', 'stamp', '-t', 'X']; from dba_console.__main__ import main; main();"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'typer', 'rich', 'msgspec', 'socket', 'threading', 'dataclasses', 'json', 'platform'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(Path.cwd())!r}); {code}"], input="",
        capture_output=True, text=True, check=True, env=console.environ(),
    )  # fmt: skip
    assert done.stdout == "[]\n"
