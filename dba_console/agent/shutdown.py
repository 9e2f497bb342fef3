"""How long an agent lives, and what tells it to end. Signals reach the loop through a pipe, never through a lock."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType


class StopRequest:
    """The wish to end, with its reason. `wait` sleeps until it comes or the time is up."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def request(self, reason: str) -> None:
        """Ask the loop to end; the first reason stays. Safe in signal handlers and from any thread."""
        if self.reason is None:
            self.reason = reason
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # asked often enough

    def wait(self, seconds: float) -> bool:
        """True when asked to end."""
        if self.reason is None and seconds > 0:
            select.select([self._read], [], [], seconds)
        return self.reason is not None

    def install_signal_handlers(self, *, ignore_hangup: bool) -> None:
        """SIGTERM and SIGINT end the agent in order; a hangup does too unless it has no terminal to lose."""

        def asked(number: int, _frame: FrameType | None) -> None:
            self.request(f"asked to end by {signal.Signals(number).name}")

        signal.signal(signal.SIGTERM, asked)
        signal.signal(signal.SIGINT, asked)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore_hangup else asked)


class GracePeriod:
    """Ends an agent that nobody watches: `seconds` after the last console left, never where that is None."""

    def __init__(self, seconds: float | None, now_us: int) -> None:
        self.seconds = seconds
        self._alone_since: int | None = now_us

    def is_over(self, consoles: int, now_us: int) -> bool:
        """True when the last console left longer ago than the grace time."""
        if consoles:
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = now_us
        return self.seconds is not None and now_us - self._alone_since >= self.seconds * 1e6
