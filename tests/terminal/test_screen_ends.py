"""How the screen ends when it is not asked to by its keys: signals, a lost terminal, one nobody reads, a crash."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.terminal.consoles import OVERVIEW, PROGRAM, Workspace, alive, recorded_s, shared_workspace, workspace
from tests.terminal.tmux import LIMIT_S, OF_THE_SIZE, Tmux

pytestmark = pytest.mark.terminal
__all__ = ["shared_workspace", "workspace"]


class Pty:
    """The console on a bare pseudo-terminal, read only when the test says so. No shell, no controlling terminal."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int = 80, lines: int = 24) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = b""

    def read_until(self, expected: bytes, timeout: float = LIMIT_S) -> bytes:
        """Read what the console writes until it holds `expected`."""

        def come() -> bool:
            while select.select([self.master], [], [], 0)[0]:
                self.seen += os.read(self.master, 1 << 16)
            return expected in self.seen

        wait_until(come, timeout, what=f"{expected!r} from the console")
        return self.seen

    @property
    def unread(self) -> int:
        """Bytes the console has written that were not read."""
        return int.from_bytes(fcntl.ioctl(self.master, termios.FIONREAD, bytes(4)), sys.byteorder)

    def wait(self, timeout: float = LIMIT_S) -> int:
        """The exit status, read on meanwhile so that it can write its last words."""
        stop = threading.Event()

        def drain() -> None:
            while not stop.is_set():
                try:
                    if select.select([self.master], [], [], 0.05)[0]:
                        self.seen += os.read(self.master, 1 << 16)
                except OSError:
                    return

        reader = threading.Thread(target=drain)
        reader.start()
        try:
            return self.process.wait(timeout)
        finally:
            stop.set()
            reader.join()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        try:
            os.close(self.master)
        except OSError:
            pass


@contextmanager
def console_on_pty(workspace: Workspace, *arguments: str, columns: int = 80, lines: int = 24) -> Iterator[Pty]:
    clean = {name: value for name, value in os.environ.items() if name not in OF_THE_SIZE}
    environment = {**clean, **workspace.environment, "TERM": "screen", "LC_ALL": "C.UTF-8"}
    made = Pty([*PROGRAM, *arguments], environment, columns, lines)
    try:
        yield made
    finally:
        made.close()


def test_sigterm_ends_the_screen_cleanly_and_the_agent_continues(cluster: Cluster, shared_workspace: Workspace) -> None:
    with shared_workspace.shell(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        child = int(Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGTERM)
        after = terminal.wait_for(r"(?s)code=130.*icanon")
        assert "─ Connections" not in after
        assert all(re.search(rf"(?<!-)\b{flag}\b", after) for flag in ("icanon", "echo", "isig"))
        assert len(shared_workspace.agents()) == 1


def test_a_terminal_closed_under_the_console_leaves_no_orphan_and_the_agent_continues(
    cluster: Cluster, shared_workspace: Workspace
) -> None:
    with shared_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        pid = terminal.pid
        terminal.hang_up()
        wait_until(lambda: not alive(pid), LIMIT_S, what="the end of the console")
        (agent,) = shared_workspace.agents()
        assert alive(agent.pid)


def test_a_hang_up_without_a_signal_ends_the_console_too(cluster: Cluster, shared_workspace: Workspace) -> None:
    with console_on_pty(shared_workspace, cluster.dsn()) as console:
        console.read_until(b"LIVE")
        # No controlling terminal, so no SIGHUP is sent: only the end of the terminal itself tells.
        os.close(console.master)
        assert console.process.wait(LIMIT_S) == 130


LEFT_OVER = """
import sys, threading
from dba_console.tui.terminal import TerminalGuard

ended = threading.Event()
guard = TerminalGuard(ended.set)
guard.start()
sys.stderr.write("LIVE")
sys.stderr.flush()
sys.stdout.write("not flushed before the terminal went")
ended.wait(120)
guard.finish()
sys.exit(130)
"""


def test_output_a_dead_terminal_did_not_accept_changes_no_exit_code() -> None:
    console = Pty([PROGRAM[0], "-c", LEFT_OVER], {**os.environ, "PYTHONUNBUFFERED": ""})
    try:
        console.read_until(b"LIVE")
        os.close(console.master)
        assert console.process.wait(120) == 130
    finally:
        console.close()


def test_leaving_turns_every_terminal_mode_off_again(cluster: Cluster, shared_workspace: Workspace) -> None:
    with console_on_pty(shared_workspace, cluster.dsn()) as console:
        console.read_until(b"LIVE")
        os.write(console.master, b"q")
        assert console.wait() == 0
        on = re.findall(rb"\x1b\[\?(\d+)h", console.seen)
        assert b"1049" in on and b"1003" in on
        for mode in {*on} - {b"7", b"25"}:
            assert console.seen.rfind(b"\x1b[?" + mode + b"l") > console.seen.rfind(b"\x1b[?" + mode + b"h"), mode
        assert console.seen.rfind(b"\x1b[?25h") > console.seen.rfind(b"\x1b[?25l")


def test_without_the_mouse_no_mouse_reports_are_requested(cluster: Cluster, shared_workspace: Workspace) -> None:
    with console_on_pty(shared_workspace, cluster.dsn(), "--no-mouse") as console:
        console.read_until(b"LIVE")
        assert not re.search(rb"\x1b\[\?(1000|1002|1003|1006|1016)h", console.seen)


def test_a_terminal_that_is_not_read_stalls_only_the_console_and_can_still_be_ended(
    cluster: Cluster, shared_workspace: Workspace
) -> None:
    with console_on_pty(shared_workspace, cluster.dsn(), columns=300, lines=100) as stalled:
        stalled.read_until(b"LIVE")
        # From here on nobody reads: keys make the console paint until the terminal's buffer is full.
        for _ in range(300):
            os.write(stalled.master, b"9\x1b[B0c1")
        wait_until(lambda: stalled.unread > 4000, LIMIT_S, what="a full terminal buffer")
        with shared_workspace.terminal(cluster.dsn()) as other:
            before = recorded_s(other.wait_for(OVERVIEW))
            other.wait_for(lambda shown: recorded_s(shown) > before + 2)
            assert "dropped" not in other.screen()
        assert stalled.process.poll() is None
        os.kill(stalled.process.pid, signal.SIGTERM)
        assert stalled.process.wait(LIMIT_S) == 130


CRASHING = """
import sys
from dba_console.tui.app import live_feed, run_console
from dba_console.tui.terminal import ScreenOptions
from dba_console.tui import view_stack

def broken(self, width, height):
    password = "hunter2-in-a-local"
    conninfo = f"host=db password={password}"
    raise RuntimeError(f"cannot lay out, connected by {conninfo}")

view_stack.ViewStack.lines = broken

def nobody():
    from dba_console.core.errors import ConnectError
    import threading
    threading.Event().wait(120)
    raise ConnectError("nobody")

sys.exit(run_console(live_feed(nobody, nobody), ScreenOptions()))
"""


def test_a_crash_prints_three_lines_and_reports_without_locals_or_secrets(workspace: Workspace, tmp_path: Path) -> None:
    program = tmp_path / "crashing.py"
    program.write_text(CRASHING)
    script = '"$@"; echo "code=$?"; stty -a; exec cat'
    command = ["sh", "-c", script, "sh", PROGRAM[0], str(program)]
    with Tmux(command, columns=160, environment=workspace.environment) as terminal:
        shown = terminal.wait_for(r"(?s)code=1.*icanon")
        assert "the screen failed: RuntimeError: cannot lay out" in shown
        assert "hunter2" not in shown and "Traceback" not in shown
        (report,) = workspace.state.glob("**/crash-*.txt")
        assert str(report) in shown.replace("\n", "")
        assert report.stat().st_mode & 0o777 == 0o600
        text = report.read_text()
        assert "in broken" in text and "hunter2" not in text
