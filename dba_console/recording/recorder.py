"""The recorder: records every sample and event without blocking its caller.

    caller -> bounded queue -> recorder thread (compression, blocks) -> backlog -> writer thread -> disk

The caller only appends to a queue. Dropped samples are counted and recorded as a gap with its reason.
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
from dba_console.recording.backlog import Backlog, BlockEnd, Gap, SampleRow
from dba_console.recording.journal import LogLine
from dba_console.recording.layout import DATABASE, SessionLock, SessionMeta
from dba_console.recording.points import Point, default_point_of, pack_points
from dba_console.recording.sample_block import BLOCK_BYTES, BlockWriter, key_sample
from dba_console.recording.store import Store, Writer, explain, require_space
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, encode_sample

# Status of a recording.

LAGGING_US = 5_000_000
"""A recording this far behind is lagging: five ticks, more than a busy disk needs for a commit."""


class RecorderStatus(Struct, frozen=True):
    """Status of the recording."""

    state: Literal["ok", "lagging", "failed"]
    note: str | None
    """Reason if the state is not ok."""
    lag_us: int
    """Age of the oldest sample that is not on disk."""
    recorded: int
    dropped: int


def recorder_status(
    *, now_us: int, oldest_us: int | None, failure: str | None, busy_since_us: int | None, recorded: int, dropped: int
) -> RecorderStatus:
    """Return the status. Times are monotonic, in microseconds: of the oldest sample not on disk, of the current write.

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


# Missing ticks, detected from the numbers and times of the received samples.

SILENCE = 5
"""Intervals without a sample that count as a gap; fewer are a slow tick, which its times show."""


class TickWatch:
    """Compares each sample with the previous one."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._before: Sample | None = None
        self._dropped = 0

    def next(self, sample: Sample, dropped: int) -> list[Gap]:
        """Return the gap between the last sample and this one, if any. `dropped`: total dropped by the queue."""
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
            return [Gap(before.wall_us, sample.wall_us, 0, f"no sample received for {silent_us / 1e6:.0f} s")]
        return []


# The open block: every sample becomes a record immediately; a full block ends with its chart values.

BLOCK_SAMPLES = 120
"""Two minutes at 1 Hz. Larger blocks need less space in total (4 % less at 240) and are slower to seek in."""


class OpenBlock:
    """The block that is being filled. Used only by the recorder's thread."""

    def __init__(self, backlog: Backlog, point_of: Callable[[Picture], Point], samples: int) -> None:
        self._backlog = backlog
        self._point_of = point_of
        self._limit = samples
        self._picture = Picture()
        self.recorded = 0
        """Samples added since the start."""
        self._block = BlockWriter()
        self._walls: list[int] = []
        self._points: list[Point] = []

    def add(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        """Add a sample. The first of each block becomes a key sample.

        `point`: its chart values, if already computed.
        """
        self._picture = self._picture.with_sample(sample)
        if self._walls and sample.wall_us < self._walls[-1]:
            self.seal()  # the clock was set back: times within a block must ascend
        if not self._walls:
            encoded = encode_sample(key_sample(sample, self._picture))
        point = self._point() if point is None else point
        data = self._block.add(sample.seq, sample.wall_us, encoded)
        self._backlog.put_sample(SampleRow(sample.seq, self._block.base_seq, sample.wall_us, sample.mono_us, data))
        self._walls.append(sample.wall_us)
        self._points.append(point)
        self.recorded += 1
        if len(self._walls) >= self._limit or self._block.size >= BLOCK_BYTES:
            self.seal()

    def seal(self) -> None:
        """End the current block and start another."""
        if self._walls:
            points = pack_points(self._block.base_seq, self._walls, self._points)
            self._backlog.put_sample(BlockEnd(self._block.base_seq, points))
        self._block.restart()
        self._walls, self._points = [], []

    def _point(self) -> Point:
        try:
            return self._point_of(self._picture)
        except Exception:
            # A failure to compute chart values must not lose the sample.
            return {}


QUEUE = 120
"""Maximum samples waiting for the recorder's thread: two minutes at 1 Hz; normally none waits."""
EVENT_QUEUE = 2000
HEARTBEAT_US = 600_000_000
CLOSE_S = 3.0
"""Maximum wait for each of the two threads at the end."""


class QueuedSample(NamedTuple):
    """A queued sample with its encoding, and its chart values if already computed."""

    sample: Sample
    encoded: bytes
    point: Point | None


class Recorder:
    """Records one session. Raises SessionError or PermissionDenied immediately if the directory cannot be used."""

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
        """`directory`: the session directory (layout.session_directory), created here. `announce` receives the events
        of the recorder itself (start, gaps, lagging, recovered, end), in its threads.
        """
        self.directory = directory
        self.meta = meta
        self._clock = clock
        try:
            require_space(directory)
        except OSError as error:
            raise SessionError(explain(error, directory), hint="name another directory with --sessions") from error
        private_dir(directory)
        self._lock = SessionLock(directory)
        if (directory / DATABASE).is_file():
            self._lock.release()
            raise SessionError(f"{directory.name} already contains a session: a recorder never appends to another one")
        try:
            store = Store(directory, meta)
        except Exception as error:
            self._lock.release()
            raise SessionError(explain(error, directory), hint="name another directory with --sessions") from error
        self._backlog = Backlog()
        self._announce = announce
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
        self._record_event(
            "session.start", f"recording {with_host(meta.target, meta.host)}", {"program": meta.program_version}
        )
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def put_sample(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        """Queue a sample, its encoding, and its chart values if already computed. Never waits for the disk."""
        with self._awake:
            if len(self._samples) >= QUEUE:
                self._samples.popleft()
                self._queue_dropped += 1
            self._samples.append(QueuedSample(sample, encoded, point))
            self._awake.notify()

    def put_event(self, event: Event) -> None:
        """Queue an event. Never waits. Its number and hash are assigned when it is written."""
        with self._awake:
            self._events.append(event)
            self._awake.notify()

    def put_lines(self, lines: Sequence[LogLine]) -> None:
        """Queue lines of a command's output. Never waits; lines that do not fit are only in the output file."""
        self._backlog.put_lines(lines)

    def status(self) -> RecorderStatus:
        """Return the current status. Never waits."""
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
        """Wait until everything queued so far is on disk. Return False on timeout."""
        changed = self._backlog.changed
        with self._awake:
            if not self._awake.wait_for(lambda: not (self._samples or self._events or self._in_hand), timeout_s):
                return False
        with changed:
            return changed.wait_for(self._backlog.empty, timeout_s)

    def close(self, reason: str) -> bool:
        """Seal the open block, write the end, release the lock. Return False if the disk timed out."""
        with self._awake:
            if self._closing:
                return self._writer.ended.is_set()
            self._closing = True
            self._awake.notify_all()
        self._thread.join(CLOSE_S)
        self._record_event("session.end", f"recording ended: {reason}", {})
        self._drain_events()
        self._writer.end(reason)
        ended = self._writer.ended.wait(CLOSE_S)
        self._lock.release()
        return ended and self._writer.failure is None

    def _record_event(
        self, kind: str, text: str, details: Mapping[str, object], severity: str = "info", *, aloud: bool = True
    ) -> None:
        """Record an event of the recorder itself now; without `aloud` it is not announced."""
        event = Event(
            wall_us=self._clock.wall_us(), mono_us=self._clock.mono_us(), kind=kind, text=text, severity=severity,
            details=dict(details),
        )  # fmt: skip
        self._backlog.put_event(event)
        if aloud and self._announce is not None:
            self._announce(event)

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
                self._record_event("gap", f"not recorded: {gap.reason}", details)
            try:
                self._block.add(sample, queued.encoded, queued.point)
            except Exception as error:
                self._reject_sample(sample, error)
            self._write_heartbeat(sample)

    def _reject_sample(self, sample: Sample, error: Exception) -> None:
        """Record a gap for a sample that cannot be added, and continue with the next ones."""
        self._refused += 1
        self._block.seal()
        reason = f"cannot record a sample ({type(error).__name__})"
        self._backlog.put_gap(Gap(sample.wall_us, sample.wall_us, 1, reason))
        self._record_event("gap", f"not recorded: {reason}", {"samples": 1}, severity="warning")

    def _take(self) -> QueuedSample | None:
        """Return the next sample; the previous one counts as in progress until this is called."""
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
        """Record a heartbeat regularly: it distinguishes an idle server from a missing recorder."""
        if sample.mono_us - self._beat_us < HEARTBEAT_US:
            return
        self._beat_us = sample.mono_us
        status = self.status()
        text = f"recording: {status.recorded} samples, {status.dropped} dropped"
        self._record_event("heartbeat", text, {}, aloud=False)

    def _watch_lag(self) -> None:
        status = self.status()
        if status.state != "ok" and not self._lagging:
            self._lagging = True
            self._record_event("recording.lagging", f"recording lags: {status.note}", {}, severity="warning")
        elif status.state == "ok" and self._lagging and self._writer.failure is None:
            self._lagging = False
            lost = self._backlog.dropped_events
            dropped = f"{status.dropped} samples" + (f" and {lost} events" if lost else "")
            self._record_event("recording.recovered", f"recording keeps up again, {dropped} dropped", {})

    def _wake_waiters(self) -> None:
        with self._awake:
            self._awake.notify_all()
