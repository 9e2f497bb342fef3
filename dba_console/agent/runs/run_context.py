"""What a run needs of the agent it runs in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.clock import Clock
from dba_console.config import Config
from dba_console.samples.event import Event
from dba_console.target import Target

if TYPE_CHECKING:
    from dba_console.agent.runs.action_control import ActionControl
    from dba_console.frames.model import Frame
    from dba_console.session.loglines import LogLine


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
