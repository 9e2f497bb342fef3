"""Detect what the terminal can do, before Textual is loaded; end the console when the terminal is gone.

TERM is trusted and never changed, NO_COLOR is respected, and an unusable terminal is refused with a hint to the text
command. Pure, except `configure_textual`, which sets Textual's switches (Textual reads them at import), and
`with_idle_time`.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Literal

from dba_console.core.errors import ExitCode, Unsupported, UsageError
from dba_console.core.units import human_duration

if TYPE_CHECKING:
    from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
    from dba_console.core.config import JobsConfig

Colours = Literal["mono", "16", "256", "truecolor"]

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this size no useful layout is possible, and the screen shows a message."""

_NO_SCREEN = frozenset({"", "dumb", "unknown", "network"})
_CHOICES = {"none": "mono", "16": "16", "256": "256", "truecolor": "truecolor"}
_COLOR_SYSTEM = {"mono": "standard", "16": "standard", "256": "256", "truecolor": "truecolor"}


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """The operator's options for the screen: configuration and command line."""

    mouse: bool = True
    colours: str = "auto"
    """auto, 16, 256, truecolor, none."""
    ascii: bool = False
    at: str | None = None
    """Replay: the TIME to start at."""
    runbooks: tuple[str, ...] = ()
    """Directories of runbooks besides the shipped ones."""
    jobs: JobsConfig | None = None
    """How long dumps and restores may take."""
    run_request: RunBegin | RunResume | RunWatch | None = None
    """Sent after attaching to the agent; the screen then shows that run."""


def colour_depth(environ: Mapping[str, str], *, not_terminals: Sequence[str] = (), wanted: str = "auto") -> Colours:
    """Return the number of colours of this terminal. `not_terminals` names standard streams that are not a terminal.

    Determined as Rich does: COLORTERM, else the ending of TERM, else 16; ssh does not forward COLORTERM, so most
    sessions have 16. Raises Unsupported if no screen can be drawn, UsageError for an unknown `wanted`.

    >>> colour_depth({"TERM": "screen"}), colour_depth({"TERM": "xterm-256color", "NO_COLOR": "1"})
    ('16', 'mono')
    """
    term = environ.get("TERM", "").strip().lower()
    if not_terminals:
        raise _refusal(
            f"standard {' and '.join(not_terminals)} {'is' if len(not_terminals) == 1 else 'are'} not a terminal"
        )
    if term in _NO_SCREEN:
        raise _refusal(f"the terminal type {term!r} cannot show a full screen" if term else "TERM is not set")
    if wanted != "auto":
        return _configured_depth(wanted)
    if environ.get("NO_COLOR"):
        return "mono"
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if term.endswith("256color") else "16"


def require_terminal(wanted: str = "auto") -> Colours:
    """Return the number of colours of this process's terminal. Raises Unsupported if it cannot show a screen."""
    # Check stderr too: Textual draws on standard error.
    streams = {"input": sys.stdin, "output": sys.stdout, "error": sys.stderr}
    return colour_depth(
        os.environ, not_terminals=[name for name, one in streams.items() if not one.isatty()], wanted=wanted
    )


def _configured_depth(wanted: str) -> Colours:
    chosen = _CHOICES.get(wanted)
    if chosen is None:
        raise UsageError(f"not a colour depth: {wanted!r}", hint="one of auto, 16, 256, truecolor, none")
    return chosen  # type: ignore[return-value]  # the table's values are exactly these words


def _refusal(why: str) -> Unsupported:
    return Unsupported(
        f"the console needs a terminal: {why}",
        hint="`dba-console show` prints the panels as text, `dba-console show --json` for programs",
    )


def configure_textual(colours: Colours, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set Textual's switches: few frames, no animation, this depth of colour, no debugging features."""
    environ.setdefault("TEXTUAL_FPS", "30")  # at 15 the first data appeared 33 ms later
    environ["TEXTUAL_ANIMATIONS"] = "none"
    environ["TEXTUAL_SMOOTH_SCROLL"] = "0"
    environ["TEXTUAL_COLOR_SYSTEM"] = _COLOR_SYSTEM[colours]
    environ.pop("TEXTUAL", None)  # its devtools feature would send the screen content to another process


def too_small(width: int, height: int) -> bool:
    """Check whether the screen shows a sentence instead of panels."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def with_idle_time(console: str) -> str:
    """Return the operator of another console with the time since the last key there, if at least a minute.

    `anna on pts/3 (idle 5m00s) from 10.0.0.1`. As `w` does, it goes by the last access to the terminal's device.
    """
    found = re.search(r" on ((?:pts/|tty)\w+)", console)
    if found is None:
        return console
    try:
        idle_s = time.time() - os.stat(f"/dev/{found[1]}").st_atime
    except OSError:
        return console
    idle = f" (idle {human_duration(idle_s)})" if idle_s >= 60 else ""
    return console[: found.end()] + idle + console[found.end() :]


# End the console when its terminal is gone or does not accept output.
#
# No orphaned process, no busy loop on a lost terminal, no exit that waits for a reader. Textual handles neither SIGHUP
# nor SIGTERM, its input thread spins at end of file, and its output queue blocks the event loop when the terminal is
# not read; so our own thread watches the terminal, and ends the process if the orderly exit is blocked.

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
    terminal is gone and must not be written to.
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
