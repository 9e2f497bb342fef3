"""What the recorder itself has to say: events of its own, into the recording and to whoever listens live."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dba_console.clock import Clock
from dba_console.samples.event import Event
from dba_console.session.backlog import Backlog


class RecorderEvents:
    """Used by the recorder's threads; `announce` is called on them."""

    def __init__(self, backlog: Backlog, clock: Clock, announce: Callable[[Event], None] | None) -> None:
        self._backlog = backlog
        self._clock = clock
        self._announce = announce

    def record_event(
        self, kind: str, text: str, details: Mapping[str, object], severity: str = "info", *, aloud: bool = True
    ) -> None:
        """Record the event now; without `aloud` it is not announced."""
        event = Event(
            wall_us=self._clock.wall_us(), mono_us=self._clock.mono_us(), kind=kind, text=text, severity=severity,
            details=dict(details),
        )  # fmt: skip
        self._backlog.put_event(event)
        if aloud and self._announce is not None:
            self._announce(event)
