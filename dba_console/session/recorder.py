"""The recorder: takes every sample and event the moment it exists, and never makes its caller wait.

    caller -> bounded queue -> this room's thread (differences, blocks) -> backlog -> the writer's thread -> disk

The caller only appends to a queue. What is dropped is counted, and stands in the recording as a gap with its reason.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dba_console.clock import SYSTEM, Clock
from dba_console.errors import SessionError
from dba_console.frames.picture import Picture
from dba_console.paths import private_dir
from dba_console.samples.event import Event
from dba_console.samples.sample import Sample
from dba_console.session.backlog import Backlog, Gap
from dba_console.session.current_block import BLOCK_SAMPLES, OpenBlock
from dba_console.session.layout import DATABASE
from dba_console.session.liveness import SessionLock
from dba_console.session.loglines import LogLine
from dba_console.session.meta import SessionMeta
from dba_console.session.missing_ticks import TickWatch
from dba_console.session.points import Point, default_point_of
from dba_console.session.recorder_events import RecorderEvents
from dba_console.session.recorder_status import LAGGING_US as LAGGING_US
from dba_console.session.recorder_status import RecorderStatus as RecorderStatus
from dba_console.session.recorder_status import recorder_status
from dba_console.session.store import Store
from dba_console.session.writer import Writer, explain
from dba_console.target import with_host

QUEUE = 120
"""Samples that may wait for the recorder's thread: two minutes at 1 Hz; normally none waits."""
EVENT_QUEUE = 2000
HEARTBEAT_US = 600_000_000


class QueuedSample(NamedTuple):
    """A sample on its way: with its encoding, and its chart values where they were made already."""

    sample: Sample
    encoded: bytes
    point: Point | None


class Recorder:
    """Records one session. Raises SessionError or PermissionDenied at once where the place cannot be used."""

    def __init__(
        self,
        directory: Path,
        meta: SessionMeta,
        clock: Clock = SYSTEM,
        *,
        point_of: Callable[[Picture], Point] | None = None,
        announce: Callable[[Event], None] | None = None,
        block_samples: int = BLOCK_SAMPLES,
    ) -> None:
        """`directory` is the session's own (layout.session_directory), made here. `announce` gets the events that the
        recorder itself writes (start, gaps, lagging, recovered, end), from its own threads.
        """
        self.directory = directory
        self.meta = meta
        self._clock = clock
        private_dir(directory)
        self._lock = SessionLock(directory)
        if (directory / DATABASE).is_file():
            self._lock.release()
            raise SessionError(f"{directory.name} already holds a session: a recorder never appends to another's")
        try:
            store = Store(directory, meta)
        except Exception as error:
            self._lock.release()
            raise SessionError(explain(error, directory), hint="name another directory with --sessions") from error
        self._backlog = Backlog()
        self._recorder_events = RecorderEvents(self._backlog, clock, announce)
        self._writer = Writer(store, self._backlog, clock, self._wake_waiters)
        self._block = OpenBlock(self._backlog, point_of or default_point_of(), block_samples)
        self._ticks = TickWatch(meta.interval_us)
        self._samples: deque[QueuedSample] = deque()
        self._events: deque[Event] = deque(maxlen=EVENT_QUEUE)
        self._in_hand: QueuedSample | None = None
        self._awake = threading.Condition()
        self._closing = False
        self._queue_dropped = 0
        self._refused = 0
        self._lagging = False
        self._beat_us = clock.mono_us()
        self._recorder_events.record_event(
            "session.start", f"recording {with_host(meta.target, meta.host)}", {"program": meta.program_version}
        )
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def put_sample(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        """Take a sample, its encoding, and its chart values where they are made already. Returns at once, whatever
        the disk does.
        """
        with self._awake:
            if len(self._samples) >= QUEUE:
                self._samples.popleft()
                self._queue_dropped += 1
            self._samples.append(QueuedSample(sample, encoded, point))
            self._awake.notify()

    def put_event(self, event: Event) -> None:
        """Take an event. Returns at once. Its number and hash are given when it is written."""
        with self._awake:
            self._events.append(event)
            self._awake.notify()

    def put_lines(self, lines: Sequence[LogLine]) -> None:
        """Take lines of a command's output. Returns at once; what there is no room for is in the output's own file."""
        self._backlog.put_lines(lines)

    def status(self) -> RecorderStatus:
        """How it stands now. Waits for nothing."""
        now = self._clock.mono_us()
        oldest = self._backlog.oldest_mono_us()
        with self._awake:
            waiting = self._in_hand or (self._samples[0] if self._samples else None)
        if oldest is None and waiting is not None:
            oldest = waiting.sample.mono_us
        return recorder_status(
            now_us=now,
            oldest_us=oldest,
            failure=self._writer.failure,
            busy_since_us=self._writer.busy_since_us,
            recorded=self._block.recorded,
            dropped=self._queue_dropped + self._refused + self._backlog.dropped,
        )

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything taken so far is on the disk. False where it is not in time."""
        changed = self._backlog.changed
        with self._awake:
            if not self._awake.wait_for(lambda: not (self._samples or self._events or self._in_hand), timeout_s):
                return False
        with changed:
            return changed.wait_for(self._backlog.empty, timeout_s)

    def close(self, reason: str, timeout_s: float = 3.0) -> bool:
        """Seal what is open, write the end, let go of the lock. False where the disk did not take it in time."""
        with self._awake:
            if self._closing:
                return self._writer.ended.is_set()
            self._closing = True
            self._awake.notify_all()
        self._thread.join(timeout_s)
        self._recorder_events.record_event("session.end", f"recording ended: {reason}", {})
        self._drain_events()
        self._writer.end(reason)
        ended = self._writer.ended.wait(timeout_s)
        self._lock.release()
        return ended and self._writer.failure is None

    def _run(self) -> None:
        while True:
            with self._awake:
                self._awake.wait_for(lambda: self._samples or self._events or self._closing, 1.0)
                closing = self._closing
            self._drain_events()
            self._drain_samples()
            self._watch_lag()
            if closing:
                break
        self._block.seal()

    def _drain_samples(self) -> None:
        while (queued := self._take()) is not None:
            sample = queued.sample
            for gap in self._ticks.next(sample, self._queue_dropped):
                self._backlog.put_gap(gap)
                details = {"from_us": gap.from_us, "to_us": gap.to_us, "samples": gap.samples}
                self._recorder_events.record_event("gap", f"not recorded: {gap.reason}", details)
            try:
                self._block.add(sample, queued.encoded, queued.point)
            except Exception as error:
                self._reject_sample(sample, error)
            self._write_heartbeat(sample)

    def _reject_sample(self, sample: Sample, error: Exception) -> None:
        """One sample that cannot be taken in must not end the recording of those that follow."""
        self._refused += 1
        self._block.restart()
        reason = f"a sample could not be taken in ({type(error).__name__})"
        self._backlog.put_gap(Gap(sample.wall_us, sample.wall_us, 1, reason))
        self._recorder_events.record_event("gap", f"not recorded: {reason}", {"samples": 1}, severity="warning")

    def _take(self) -> QueuedSample | None:
        """The next sample; until it is asked for again, the one before counts as in hand."""
        with self._awake:
            self._in_hand = self._samples.popleft() if self._samples else None
            self._awake.notify_all()
            return self._in_hand

    def _drain_events(self) -> None:
        with self._awake:
            events = list(self._events)
            for event in events:
                self._backlog.put_event(event)
            self._events.clear()
            self._awake.notify_all()

    def _write_heartbeat(self, sample: Sample) -> None:
        """A heartbeat now and then: it tells an idle server from a recorder that was not there."""
        if sample.mono_us - self._beat_us < HEARTBEAT_US:
            return
        self._beat_us = sample.mono_us
        status = self.status()
        text = f"recording: {status.recorded} samples, {status.dropped} dropped"
        self._recorder_events.record_event("heartbeat", text, {}, aloud=False)

    def _watch_lag(self) -> None:
        status = self.status()
        if status.state != "ok" and not self._lagging:
            self._lagging = True
            self._recorder_events.record_event(
                "recording.lagging", f"recording lags: {status.note}", {}, severity="warning"
            )
        elif status.state == "ok" and self._lagging and self._writer.failure is None:
            self._lagging = False
            lost = self._backlog.dropped_events
            dropped = f"{status.dropped} samples" + (f" and {lost} events" if lost else "")
            self._recorder_events.record_event(
                "recording.recovered", f"recording keeps up again, {dropped} dropped", {}
            )

    def _wake_waiters(self, failure: str) -> None:
        with self._awake:
            self._awake.notify_all()
