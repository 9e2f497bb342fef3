"""End the console when its terminal is gone or does not accept output.

No orphaned process, no busy loop on a lost terminal, no exit that waits for a reader. Textual handles neither SIGHUP
nor SIGTERM, its input thread spins at end of file, and its output queue blocks the event loop when the terminal is not
read; so our own thread watches the terminal, and ends the process if the orderly exit is blocked.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType

from dba_console.core.errors import ExitCode

END_TIMEOUT_S = 2.0
"""How long an orderly exit may take after it was requested."""
_RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?1004l\x1b[?2004l\x1b[?2048l\x1b[<u\x1b[?7h\x1b[?25h\x1b[?1049l"
)
"""Mouse, focus, paste, resize reports and keyboard protocol off, line wrap and cursor on, main screen back."""


class TerminalGuard:
    """Watches the terminal and the signals while the screen runs.

    `on_end` is called once, from the guard's thread, when the screen must end; `hung_up` tells the writer that the
    terminal is gone and must not be written to any more.
    """

    def __init__(self, on_end: Callable[[], None], descriptor: int | None = None) -> None:
        self._on_end = on_end
        self._descriptor = sys.__stdin__.fileno() if descriptor is None and sys.__stdin__ else descriptor or 0
        self._attributes = _terminal_attributes(self._descriptor)
        self._finished = threading.Event()
        self._signalled = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self.hung_up = False
        self.signal: int | None = None
        self._previous_handlers: dict[
            int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None
        ] = {}
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)

    def start(self) -> None:
        """Install the SIGTERM and SIGHUP handlers and start to watch; call from the main thread."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._previous_handlers[number] = signal.signal(number, self._signal)
        self._thread.start()

    def finish(self) -> None:
        """Stop watching: the screen has ended and the terminal is restored."""
        self._finished.set()
        self._wake_watcher()
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        if self.hung_up:
            _discard_terminal_output()

    def _signal(self, number: int, frame: FrameType | None) -> None:
        # Runs in the main thread even while that is blocked in a write; the guard's thread does the rest.
        self.signal = number
        if number == signal.SIGHUP:
            self.hung_up = True
        self._signalled.set()
        self._wake_watcher()

    def _wake_watcher(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._descriptor, 0)  # hang-up and errors are always reported
        while not self._finished.is_set() and not self._signalled.is_set():
            for descriptor, happened in poll.poll():
                if descriptor == self._descriptor and happened & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    self.hung_up = True
                    self._signalled.set()
        if not self._finished.is_set():
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(Exception):
            self._on_end()
        if not self._finished.wait(END_TIMEOUT_S):
            self._restore()
            os._exit(int(ExitCode.INTERRUPTED))

    def _restore(self) -> None:
        """Restore what can be restored without waiting for the terminal."""
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._attributes)
        if self.hung_up:
            return
        with contextlib.suppress(OSError):
            # A file description of our own: setting it non-blocking does not affect the shell's.
            own = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            os.write(own, _RESTORE)


def _discard_terminal_output() -> None:
    # The interpreter flushes both again at exit; output a dead terminal did not accept would change the exit code.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _terminal_attributes(descriptor: int) -> list[int | list[bytes | int]] | None:
    try:
        return termios.tcgetattr(descriptor)
    except (termios.error, OSError):
        return None
