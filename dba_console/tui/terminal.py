"""What the terminal can do, read from the environment before Textual is loaded.

TERM is trusted and never changed, NO_COLOR is respected, and an unusable terminal is refused with a hint to the text
command. Pure, except `configure_textual`, which sets Textual's switches (Textual reads them at import), and
`with_idle_time`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dba_console.core.errors import Unsupported, UsageError
from dba_console.core.units import human_duration

if TYPE_CHECKING:
    from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
    from dba_console.core.config import JobsConfig

Colours = Literal["mono", "16", "256", "truecolor"]

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this size no useful layout is possible, and the screen says so."""

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
