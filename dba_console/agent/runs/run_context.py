"""What a run needs of the agent it runs in."""

from __future__ import annotations

import traceback
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
"""An act on this host waits so long for the proof that the server runs here."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Every call is safe in any thread, and returns at once unless it says otherwise."""

    target: Target
    config: Config
    clock: Clock
    session: Callable[[], Path | None]
    """Directory of the recording; None where there is none."""
    frame: Callable[[int], Frame | None]
    """The newest frame if it was read after that monotonic time, waited for some seconds; None where none came."""
    is_server_here: Callable[[], bool]
    """Whether the server is proven to run on this host."""
    emit: Callable[[Event], None]
    """Have an event recorded and shown."""
    put_lines: Callable[[Sequence[LogLine]], None]
    """Have what commands print recorded."""

    def wait_until_server_here(self, controls: ActionControl) -> bool:
        """Whether it is; a server that was just started anew is proven to run here only a moment after it answers."""
        until_us = self.clock.mono_us() + int(LOCALITY_WAIT_S * 1e6)
        while not (here := self.is_server_here()):
            if self.clock.mono_us() >= until_us or controls.wait(0.2):
                break
        return here


# A defect of this program in words, for a run's journal and for whoever looks on.


def internal_error_text(error: Exception) -> str:
    """What went wrong, and where in the code; no value of a variable, which may be a secret."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return redact(f"{type(error).__name__}: {error}"[:500]) + place
