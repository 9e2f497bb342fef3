"""What a run gets from the agent: clock, configuration, latest frame, target, and a function that emits events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.core.clock import Clock
from dba_console.core.config import Config
from dba_console.core.redact import redact
from dba_console.core.target import Target
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.action_control import ActionControl
    from dba_console.recording.journal import LogLine
    from dba_console.watch.frames.model import Frame

LOCALITY_WAIT_S = 5.0
"""Maximum wait of an act on this host for the proof that the server runs here."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The agent's services. Every call is thread-safe and returns at once unless stated otherwise."""

    target: Target
    config: Config
    clock: Clock
    session: Callable[[], Path | None]
    """Directory of the recording; None if there is none."""
    recording_error: Callable[[], str | None]
    """Why there can be no recording; None if there is one, or it is still being opened."""
    frame: Callable[[int], Frame | None]
    """The latest frame if read after that monotonic time; waits some seconds; None without one."""
    is_server_here: Callable[[], bool]
    """Whether the server is proven to run on this host."""
    emit: Callable[[Event], None]
    """Record and show an event."""
    put_lines: Callable[[Sequence[LogLine]], None]
    """Record the output lines of commands."""

    def wait_until_server_here(self, controls: ActionControl) -> bool:
        """Return whether the server is here; after a restart the proof takes a moment longer than its first answer."""
        until_us = self.clock.mono_us() + int(LOCALITY_WAIT_S * 1e6)
        while not (is_here := self.is_server_here()):
            if self.clock.mono_us() >= until_us or controls.wait(0.05):
                break
        return is_here


# Text of an internal error, for a run's journal and for consoles.


def internal_error_text(error: Exception) -> str:
    """Return the error and its place in the code, without values of variables, which may be secret."""
    import traceback  # loaded only when needed

    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return redact(f"{type(error).__name__}: {error}"[:500]) + location
