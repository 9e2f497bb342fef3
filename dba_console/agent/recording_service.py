"""The recording service: opens the recording, retries if that fails, and never blocks the agent.

Monitoring works without a recording; every sample and every screen reports that it is missing, and why.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dba_console import __version__
from dba_console.core import paths
from dba_console.core.clock import Clock
from dba_console.core.config import RecordingConfig
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Target
from dba_console.core.units import parse_duration, parse_size
from dba_console.recording.layout import SessionMeta, directory_name, new_meta
from dba_console.watch.probes.deadline_lane import PolledCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample

if TYPE_CHECKING:
    from dba_console.recording.journal import LogLine
    from dba_console.recording.points import Point
    from dba_console.recording.recorder import Recorder

RETRY_US = 60_000_000
"""Interval between attempts to open a recording."""
EARLY_LIMIT = 60
"""Samples and events kept until the recording is open: a minute of a disk that stalls at the start."""


LAGGING_US = 5_000_000
"""A recording that is not open after this time is reported as lagging."""


class RecordingService:
    """Owns the recorder, if there is one. Used by the tick and by the listener's thread."""

    def __init__(
        self, sessions: Path, target: Target, config: RecordingConfig, interval_s: float, clock: Clock
    ) -> None:
        self.sessions, self._target, self._clock = sessions, target, clock
        self._interval_us = int(interval_s * 1e6)
        self._keep_s, self._max_bytes = parse_duration(config.keep), parse_size(config.max_size)
        self._limits = f"{config.keep} and {config.max_size}"
        self._lock = threading.Lock()
        self._recorder: Recorder | None = None
        self._early_samples: deque[tuple[Sample, bytes, Point | None]] = deque(maxlen=EARLY_LIMIT)
        self._early_events: deque[Event] = deque(maxlen=EARLY_LIMIT)
        self._error: str | None = None
        self._begun_us = 0
        self._run = ""
        self._open_call: Callable[[], None] | None = None
        self._opening: PolledCall[None] = PolledCall("recording", clock)
        self.announce: Callable[[Event], None] = lambda event: None
        """Receives the recorder's own events: start, gaps, lagging, end. Called on its threads."""
        self.directory: str | None = None
        """The session being written, or about to be; None if there can be none."""

    def begin(self, run: str) -> None:
        """Name a session for the agent run `run`. It is opened after the first sample was shown, so that the screen
        does not wait for a file.
        """
        self._run, self._begun_us, self._error = run, self._clock.mono_us(), None
        meta = new_meta(
            target=self._target.name,
            target_key=self._target.key,
            host=socket.gethostname(),
            program_version=__version__,
            run=run,
            interval_us=self._interval_us,
            clock=self._clock,
        )
        path = self.sessions / directory_name(meta)
        self.directory = str(path)
        self._open_call = lambda: self._open(path, meta)

    def put_sample(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        if self._error is not None and sample.mono_us - self._begun_us > RETRY_US:
            self.begin(self._run)
        with self._lock:
            if self._recorder is None:
                self._early_samples.append((sample, encoded, point))
            else:
                self._recorder.put_sample(sample, encoded, point)
        if self._open_call is not None:
            self._start_opening(self._open_call)

    @property
    def error(self) -> str | None:
        """Why there is no recording; None if there is one, or before the first attempt."""
        return self._error if self._recorder is None else None

    @property
    def open_directory(self) -> Path | None:
        """Directory of the recording once it exists; None before, and if there can be none."""
        return None if self._recorder is None or self.directory is None else Path(self.directory)

    def put_event(self, event: Event) -> None:
        with self._lock:
            if self._recorder is None:
                self._early_events.append(event)
            else:
                self._recorder.put_event(event)

    def put_lines(self, lines: Sequence[LogLine]) -> None:
        """Record output lines of a command; without a recording they are only in the output's own file."""
        with self._lock:
            if self._recorder is not None:
                self._recorder.put_lines(lines)

    def self_part_fields(self) -> dict[str, Any]:
        """Return the fields of the part `self` about the recording."""
        recorder = self._recorder
        if recorder is not None:
            status = recorder.status()
            return {
                "recording": status.state,
                "recording_note": status.note,
                "recorder_lag_us": status.lag_us,
                "recorded": status.recorded,
                "dropped": status.dropped,
            }
        if self._error is not None:
            return {"recording": "failed", "recording_note": self._error}
        lag_us = self._clock.mono_us() - self._begun_us
        if lag_us < LAGGING_US:
            return {"recording": "ok", "recorder_lag_us": lag_us}
        note = f"the recording is not open after {lag_us // 1_000_000} s: its disk is stalled"
        return {"recording": "lagging", "recording_note": note, "recorder_lag_us": lag_us}

    def close(self, reason: str) -> None:
        """Complete the recording."""
        if self._recorder is None:
            self._opening.idle(self._clock.mono_us() + LAGGING_US)
        if self._recorder is not None:
            self._recorder.close(reason)

    def _start_opening(self, call: Callable[[], None]) -> None:
        # In a lane, because the disk may be stalled.
        self._open_call = None
        if not self._opening.start(call):
            self._error = "not recording: the disk of the sessions does not answer"

    def _open(self, path: Path, meta: SessionMeta) -> None:
        # Loaded here, so that the first picture does not wait for it.
        from dba_console.recording.recorder import Recorder
        from dba_console.recording.session_lookup import continued_by

        try:
            paths.private_dir(self.sessions)
            meta = structs.replace(meta, continues=continued_by(self.sessions, meta.target_key))
            recorder = Recorder(path, meta, self._clock, announce=lambda event: self.announce(event))
        except (ConsoleError, OSError) as error:
            why = error.message if isinstance(error, ConsoleError) else str(error)
            self._error, self.directory = f"not recording: {why}", None
            return
        with self._lock:
            self._recorder = recorder
            for event in self._early_events:
                recorder.put_event(event)
            for sample, encoded, point in self._early_samples:
                recorder.put_sample(sample, encoded, point)
            self._early_events.clear()
            self._early_samples.clear()
        self._apply_retention()

    def _apply_retention(self) -> None:
        """Apply retention after the recording has started, because it may take long on a slow disk."""
        from dba_console.recording.retention import prune

        removed = prune(
            self.sessions, keep_s=self._keep_s, max_bytes=self._max_bytes, now_us=self._clock.wall_us()
        ).removed
        if removed:
            text = f"{len(removed)} old sessions removed; limits {self._limits}; pinned sessions are kept"
            self.put_event(
                Event(wall_us=self._clock.wall_us(), mono_us=self._clock.mono_us(), kind="session.pruned", text=text)
            )
