"""The recorder: takes every sample and event the moment it exists, and never makes its caller wait.

    caller -> bounded queue -> this room's thread (differences, blocks) -> backlog -> the writer's thread -> disk

The caller only appends to a queue. What is dropped is counted, and stands in the recording as a gap with its reason.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import SessionError
from dba_console.core.paths import private_dir
from dba_console.core.target import with_host
from dba_console.recording.backlog import Backlog, Gap, SealedBlock, TailRow
from dba_console.recording.block_format import BlockHead
from dba_console.recording.block_writer import BlockWriter
from dba_console.recording.journal import LogLine
from dba_console.recording.layout import DATABASE, SessionLock, SessionMeta
from dba_console.recording.points import Point, default_point_of, pack_points
from dba_console.recording.store import Store, Writer, explain
from dba_console.recording.unsealed_samples import TailWriter, key_sample
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, encode_sample

# What the recorder itself has to say: events of its own, into the recording and to whoever listens live.


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


# How a recording stands, in a word and a sentence.

LAGGING_US = 5_000_000
"""A recording this far behind is said to lag: five ticks, more than a busy disk needs for a commit."""


class RecorderStatus(Struct, frozen=True):
    """How the recording stands."""

    state: Literal["ok", "lagging", "failed"]
    note: str | None
    """One sentence where the state is not ok."""
    lag_us: int
    """Age of the oldest sample that is not on the disk."""
    recorded: int
    dropped: int


def recorder_status(
    *, now_us: int, oldest_us: int | None, failure: str | None, busy_since_us: int | None, recorded: int, dropped: int
) -> RecorderStatus:
    """The status from monotonic times in microseconds: of the oldest sample not on the disk, of the write under way.

    >>> recorder_status(
    ...     now_us=9_000_000, oldest_us=None, failure=None, busy_since_us=1_000_000, recorded=3, dropped=0
    ... ).note
    'a write has not returned for 8 s: the disk of the recording is stalled'
    """
    lag_us = 0 if oldest_us is None else max(0, now_us - oldest_us)
    if failure is not None:
        return RecorderStatus("failed", failure, lag_us, recorded, dropped)
    if busy_since_us is not None and now_us - busy_since_us > LAGGING_US:
        seconds = (now_us - busy_since_us) // 1_000_000
        note = f"a write has not returned for {seconds} s: the disk of the recording is stalled"
        return RecorderStatus("lagging", note, lag_us, recorded, dropped)
    if lag_us > LAGGING_US:
        return RecorderStatus("lagging", f"{lag_us // 1_000_000} s behind", lag_us, recorded, dropped)
    return RecorderStatus("ok", None, lag_us, recorded, dropped)


# Ticks that are missing: told from the numbers and times of the samples that came.

SILENCE = 5
"""Intervals without a sample that count as a gap: less is a slow tick, which its own times show."""


class TickWatch:
    """Compares each sample with the one before."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._before: Sample | None = None
        self._dropped = 0

    def next(self, sample: Sample, dropped: int) -> list[Gap]:
        """The gap between the last sample and this one, if there is one. `dropped`: all that the queue gave up."""
        before, self._before = self._before, sample
        lost_here, self._dropped = dropped - self._dropped, dropped
        if before is None:
            return []
        missing = max(0, sample.seq - before.seq - 1) if sample.boot == before.boot else 0
        silent_us = sample.mono_us - before.mono_us
        if lost_here > 0:
            reason = "the recorder could not keep up"
            return [Gap(before.wall_us, sample.wall_us, max(missing, lost_here), reason)]
        if missing:
            return [Gap(before.wall_us, sample.wall_us, missing, "ticks were skipped before they reached the recorder")]
        if silent_us > SILENCE * self._interval_us:
            return [Gap(before.wall_us, sample.wall_us, 0, f"no sample came for {silent_us / 1e6:.0f} s")]
        return []


# The block that is being filled: every sample becomes a row at once, and a sealed block when there are enough.

BLOCK_SAMPLES = 60
"""A minute at 1 Hz. Larger blocks are smaller in sum (a fifth at 120) and slower to seek in."""


class OpenBlock:
    """Used by the recorder's thread alone."""

    def __init__(self, backlog: Backlog, point_of: Callable[[Picture], Point], samples: int = BLOCK_SAMPLES) -> None:
        self._backlog = backlog
        self._point_of = point_of
        self._limit = samples
        self._picture = Picture()
        self.recorded = 0
        """Samples taken in since the start."""
        self.restart()

    def restart(self) -> None:
        """Begin an empty block; samples not sealed stay the rows they are."""
        self._block = BlockWriter()
        self._tail = TailWriter()
        self._walls: list[int] = []
        self._points: list[Point] = []
        self._last_seq = 0

    def add(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        """Take a sample in. The first of each segment of a block becomes a key sample.

        `point` holds its chart values where somebody has made them already.
        """
        self._picture = self._picture.with_sample(sample)
        if self._walls and sample.wall_us < self._walls[-1]:
            self.seal()  # the clock was set back: within a block times ascend
        if self._block.wants_key:
            sample = key_sample(sample, self._picture)
            encoded = encode_sample(sample)
        self._block.add(sample)
        self._walls.append(sample.wall_us)
        self._points.append(self._point() if point is None else point)
        self._last_seq = sample.seq
        data = self._tail.pack(sample.seq, sample.wall_us, encoded)
        self._backlog.put_row(TailRow(sample.seq, sample.wall_us, sample.mono_us, data))
        self.recorded += 1
        if self._block.samples >= self._limit:
            self.seal()

    def seal(self) -> None:
        """Hand over what there is as a block, and begin another."""
        block = self._block
        if block.samples == 0:
            return
        head = BlockHead(block.samples, block.first_seq, block.first_us, block.last_us)
        points = pack_points(self._walls, self._points)
        self._backlog.put_block(SealedBlock(head, self._last_seq, block.seal(), points))
        self.restart()

    def _point(self) -> Point:
        try:
            return self._point_of(self._picture)
        except Exception:
            # A chart value that cannot be made must not cost the sample it is made from.
            return {}


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
