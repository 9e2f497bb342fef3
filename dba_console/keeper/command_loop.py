"""Runs one command until it has ended: starts it, reads and stamps its output, enforces its timeout, stops it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from dba_console.keeper.output_log import NO_LINES, LineStamper
from dba_console.keeper.proc import group_members

if TYPE_CHECKING:
    import resource

    from dba_console.core.stream_masking import Masker
    from dba_console.keeper.output_log import Block, OutputLog

READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 19
"""Size of the command's output pipes: what it can print while the keeper is busy; eight times the default."""
OUTPUT_CLOSE_S = 5.0
"""Wait after the command's end for processes it started that still hold its output open."""
PARTIAL_LINE_S = 1.0
"""How often a partial line that overwrites itself is logged."""
GROUP_CHECK_S = 0.5


class OutputStream:
    """One of the command's two output streams."""

    def __init__(self, letter: bytes, masker: Masker | None) -> None:
        self._stamper, self._masker = LineStamper(letter), masker
        self.lines = 0
        self.bytes = 0
        self.show_at: float | None = None
        """Monotonic seconds at which its partial line is logged."""

    def feed(self, raw: bytes, wall_us: int, now: float) -> Block:
        self.bytes += len(raw)
        block = self._stamper.feed(raw if self._masker is None else self._masker.feed(raw), wall_us)
        self.lines += block[1]
        if not self._stamper.has_partial_line:
            self.show_at = None
        elif self.show_at is None:
            self.show_at = now + PARTIAL_LINE_S
        return block

    def partial_line(self, now: float, wall_us: int, *, more: bool) -> Block:
        """Return the partial line if it has not changed for a while. `more`: it has just grown, so wait longer, unless
        it overwrites itself, which may go on for hours."""
        if self.show_at is not None and more and not self._stamper.overwrites:
            self.show_at = now + PARTIAL_LINE_S
        if self.show_at is None or now < self.show_at:
            return NO_LINES
        self.show_at = None
        return self._stamper.partial_line(wall_us)

    def close(self, wall_us: int) -> Block:
        held = b"" if self._masker is None else self._masker.flush()
        block, rest = self._stamper.feed(held, wall_us), self._stamper.close(wall_us)
        self.lines += block[1] + rest[1]
        return block[0] + rest[0], block[1] + rest[1]


class CommandLoop:
    """`run` returns when the command has ended and its output is read."""

    def __init__(
        self,
        command: ChildCommand,
        log: OutputLog,
        maskers: tuple[Masker | None, Masker | None],
        *,
        stdin: bytes,
        timeout_s: float | None,
        grace_s: float,
    ) -> None:
        self._command, self._log, self._grace_s = command, log, grace_s
        self.streams = {command.out: OutputStream(b"o", maskers[0]), command.err: OutputStream(b"e", maskers[1])}
        self._stdin = memoryview(stdin)
        self._open = set(self.streams)
        self._timeout_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._group_at = 0.0
        self.ended_at: float | None = None
        """Monotonic seconds at which the command itself ended."""
        self.ended_us = 0
        self.timed_out = False
        self.stop_requested = False
        """SIGTERM or SIGINT reached the keeper."""
        self.left_open = False
        """A process the command started still holds its output open; its further output is lost."""

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Blocked since the keeper's start: a signal that arrived meanwhile is delivered now.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        poll = select.poll()
        for descriptor in (wake_read, *self.streams):
            poll.register(descriptor, select.POLLIN)
        for descriptor in self.streams:
            _enlarge_pipe(descriptor)
        if self._command.stdin >= 0:
            poll.register(self._command.stdin, select.POLLOUT)
        while not self._finished():
            ready = {descriptor for descriptor, _ in poll.poll(self._poll_timeout_ms())}
            if wake_read in ready:
                os.read(wake_read, 512)
            if self._command.stdin in ready:
                self._write(poll)
            if ready & self._open:
                self._read(poll)
            self._check_timers(ready)
        signal.set_wakeup_fd(-1)
        for descriptor in self._open:
            os.close(descriptor)
        for stream in self.streams.values():
            self._log_block(stream.close(_wall_us()))

    def _on_stop_signal(self, *_: object) -> None:
        self.stop_requested = True

    def _finished(self) -> bool:
        if self.ended_at is None:
            if not self._command.ended():
                return False
            self.ended_at, self.ended_us = time.monotonic(), _wall_us()
        if self._kill_at is not None and self._killed_at is None and self._group_is_alive():
            return False
        if not self._open:
            return True
        self.left_open = time.monotonic() >= self._output_deadline()
        return self.left_open

    def _output_deadline(self) -> float:
        return max(self.ended_at or 0.0, self._killed_at or 0.0) + OUTPUT_CLOSE_S

    def _group_is_alive(self) -> bool:
        """Check for living processes in a stopped command's group: they get the grace time, then SIGKILL."""
        now = time.monotonic()
        if now < self._group_at:
            return True
        self._group_at = now + GROUP_CHECK_S
        return bool(group_members(self._command.pid))

    def _poll_timeout_ms(self) -> float | None:
        times = [stream.show_at for stream in self.streams.values()]
        if self._kill_at is None:
            times.append(self._timeout_at)
        elif self._killed_at is None:
            times += [self._kill_at, self._group_at if self.ended_at is not None else None]
        if self.ended_at is not None:
            times.append(self._output_deadline())
        set_times = [at for at in times if at is not None]
        # Rounded up: waking a millisecond early would be a wasted turn.
        return max(0.0, (min(set_times) - time.monotonic()) * 1000 + 1) if set_times else None

    def _check_timers(self, ready: set[int]) -> None:
        now = time.monotonic()
        if self._kill_at is None:
            self.timed_out = self._timeout_at is not None and now >= self._timeout_at and self.ended_at is None
            if self.timed_out or self.stop_requested:
                self._command.terminate()
                self._kill_at = now + self._grace_s
        elif now >= self._kill_at and self._killed_at is None:
            self._command.kill()
            self._killed_at = now
        for descriptor, stream in self.streams.items():
            self._log_block(stream.partial_line(now, _wall_us(), more=descriptor in ready))

    def _read(self, poll: select.poll) -> None:
        """Read what is available: stdout first, up to the size of its pipe. So an error message comes after the output
        before it, and is not rolled away by it."""
        for descriptor, times in ((self._command.out, PIPE_BYTES // READ_BYTES), (self._command.err, 1)):
            while times and descriptor in self._open and self._read_once(descriptor, poll):
                times -= 1

    def _read_once(self, descriptor: int, poll: select.poll) -> bool:
        try:
            raw = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not raw:
            poll.unregister(descriptor)
            os.close(descriptor)
            self._open.discard(descriptor)
            return False
        self._log_block(self.streams[descriptor].feed(raw, _wall_us(), time.monotonic()))
        return len(raw) == READ_BYTES

    def _write(self, poll: select.poll) -> None:
        try:
            self._stdin = self._stdin[os.write(self._command.stdin, self._stdin[:READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = memoryview(b"")  # the command does not read all of its input, which is not an error
        if not self._stdin:
            poll.unregister(self._command.stdin)
            os.close(self._command.stdin)

    def _log_block(self, block: Block) -> None:
        if block[1]:
            self._log.put(block)


def _enlarge_pipe(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # this user has reached the kernel's limit for pipes (pipe-user-pages-soft)


def _wall_us() -> int:
    return time.time_ns() // 1000


# The command itself: started in its own process group, stopped with the whole group, and its resource usage.

_DEFAULT_SIGNALS = sorted(set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP})
"""Reset to default: signals that the keeper, Python or its caller ignores must not be ignored by the command."""


class ChildCommand:
    """A running command. It stays a zombie until `reap`, so that its pid and group are not reused."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str | None, *, stdin: bool) -> None:
        """Raises OSError if it cannot be started. With `stdin` it gets a pipe, else /dev/null."""
        if cwd is not None:
            os.chdir(cwd)
        # The program is searched in the command's PATH, not in the keeper's.
        os.environ.clear()
        os.environ.update(env)
        out, err = os.pipe(), os.pipe()
        into = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                env,
                setpgroup=0,
                setsigmask=[],
                setsigdef=_DEFAULT_SIGNALS,
                file_actions=[(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate((into[0], out[1], err[1]))],
            )
        finally:
            for descriptor in (into[0], out[1], err[1]):
                os.close(descriptor)
            # The keeper must not keep a mount busy.
            os.chdir("/")
        self.out, self.err, self.stdin = out[0], err[0], into[1]
        for descriptor in (self.out, self.err, self.stdin):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    def ended(self) -> bool:
        """Check whether the command itself has ended, whatever remains in its group."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self) -> None:
        """Send SIGTERM to the group; also SIGCONT, for a stopped process handles no signal but SIGKILL."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Gone, or all of it runs as another user (sudo): then it ends only at its closed pipes.
            pass

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """Return the wait status and resource usage, including reaped children. Only after it has ended."""
        _, status, usage = os.wait4(self.pid, 0)
        return status, usage
