"""The recording's side of the agent: begun where it can be, tried again where it cannot, never in the way.

Live goes on without a recording; that there is none, and why, is in every sample and on every screen.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dba_console import __version__, paths
from dba_console.clock import Clock
from dba_console.config import RecordingConfig
from dba_console.errors import ConsoleError
from dba_console.probes.lane import Lane
from dba_console.samples.event import Event
from dba_console.samples.sample import Sample
from dba_console.session.layout import directory_name
from dba_console.session.listing import crashed_before
from dba_console.session.meta import SessionMeta, new_meta
from dba_console.session.recorder import Recorder
from dba_console.session.retention import prune
from dba_console.target import Target
from dba_console.units import parse_duration, parse_size

RETRY_US = 60_000_000
"""Between two tries to begin a recording that could not be begun."""


class RecordingSide:
    """Owns the recorder, where there is one."""

    def __init__(
        self, sessions: Path, target: Target, config: RecordingConfig, interval_s: float, clock: Clock
    ) -> None:
        self._sessions, self._target, self._config, self._clock = sessions, target, config, clock
        self._interval_us = int(interval_s * 1e6)
        self._keep_s, self._max_bytes = parse_duration(config.keep), parse_size(config.max_size)
        self._recorder: Recorder | None = None
        self._trouble: str | None = None
        self._next_try_us = 0
        self.announce: Callable[[Event], None] = lambda event: None
        """Gets the events the recorder writes of itself: start, gaps, lagging, end. Called on its threads."""
        self._housekeeping = Lane("retention", clock)
        self.directory: str | None = None
        """The session being written, None while there is none."""

    def begin(self, run: str) -> None:
        """Begin a session for the agent run `run`; a failure is remembered and told, not raised."""
        self._run = run
        self._next_try_us = self._clock.mono_us() + RETRY_US
        try:
            sessions = paths.private_dir(self._sessions)
            meta = self._meta(sessions)
            self._recorder = Recorder(
                sessions / directory_name(meta), meta, self._clock, announce=lambda event: self.announce(event)
            )
        except (ConsoleError, OSError) as error:
            self._trouble = f"not recording: {error.message if isinstance(error, ConsoleError) else error}"
            return
        self.directory, self._trouble = str(sessions / directory_name(meta)), None
        # Not waited for: removing old sessions may take long on a sick disk.
        self._housekeeping.start(lambda: prune(sessions, keep_s=self._keep_s, max_bytes=self._max_bytes))

    def put_sample(self, sample: Sample, encoded: bytes) -> None:
        if self._recorder is None and sample.mono_us >= self._next_try_us:
            self.begin(self._run)
        if self._recorder is not None:
            self._recorder.put_sample(sample, encoded)

    def put_event(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.put_event(event)

    def own_fields(self) -> dict[str, Any]:
        """What the part `self` says of the recording."""
        if self._recorder is None:
            return {"recording": "failed" if self._trouble else "off", "recording_note": self._trouble}
        status = self._recorder.status()
        return {
            "recording": status.state,
            "recording_note": status.note,
            "recorder_lag_us": status.lag_us,
            "recorded": status.recorded,
            "dropped": status.dropped,
        }

    def close(self, reason: str) -> None:
        """Complete the recording."""
        if self._recorder is not None:
            self._recorder.close(reason)

    def _meta(self, sessions: Path) -> SessionMeta:
        return new_meta(
            target=self._target.name,
            target_key=self._target.key,
            host=socket.gethostname(),
            program_version=__version__,
            run=self._run,
            interval_us=self._interval_us,
            continues=crashed_before(sessions, self._target.key),
            clock=self._clock,
        )
