"""Truncate a file from its end in equal small cuts, with a pause after each that is doubled while commits are slow.

Freed space goes through the file system's journal, as all commits do: the commit of cuts takes as long as others wait
then. Size and number of cuts bound that, not the reaction to slow commits; cuts are committed soon, so that discards do
not accumulate. If commits without a cut are slow too, the disk is busy with other work, and the pause stays.

Works only on the open descriptor of the examined file; its name could be changed by another process meanwhile.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dba_console.actions.action import Control
from dba_console.core.errors import ConsoleError
from dba_console.core.units import human_bytes, human_duration

if TYPE_CHECKING:
    from dba_console.actions.acting_connection import ActingConnection

MIB = 1 << 20
STEP = 10 * MIB
COMMIT_EVERY = 4
"""Cuts that are committed together, unless commits are slow: then each is."""
PAUSE_S, MAX_PAUSE_S = 0.005, 0.64
"""Pause after a cut, and after many slow ones in a row."""
COMMIT_RATIO = 3.0
"""On a slow disk a commit of cuts may take this many times one without: it waits for the commit in progress, then for
its own, which is twice, as behind any other writer."""
TROUBLE_S = 0.5
"""If commits without a cut take this long, other work has saturated the disk: no cut while that lasts."""
BASELINE_COMMITS = 10
"""Commits timed before the first cut; a third of a second with the pauses between them."""
BASELINE_PAUSE_S = 0.02
PROGRESS_INTERVAL_S = 0.25
DATABASE_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """The pause after the next cut, and why it is long."""

    quiet_s: float
    """The commit time while nothing is cut."""
    pause_s: float = PAUSE_S
    reason: str = ""
    """Why it slows down; empty when it does not."""

    def allowed_s(self, limit_s: float) -> float:
        """Return how long a commit of cuts may take: `limit_s`, more on a slow disk."""
        return max(limit_s, COMMIT_RATIO * self.quiet_s)


def next_pace(pace: Pace, took_s: float, what: str, limit_s: float) -> Pace:
    """Return the pace after a cut whose commit, or that of `what`, took `took_s`.

    >>> slow = next_pace(Pace(0.001), 0.15, "a commit", 0.1)
    >>> slow.pause_s, slow.reason, next_pace(slow, 0.002, "a commit", 0.1)
    (0.01, 'a commit took 150 ms during a cut, 1.0 ms without one', Pace(quiet_s=0.001, pause_s=0.005, reason=''))
    """
    if took_s > pace.allowed_s(limit_s):
        reason = f"{what} took {_ms_text(took_s)} during a cut, {_ms_text(pace.quiet_s)} without one"
        return Pace(pace.quiet_s, min(MAX_PAUSE_S, pace.pause_s * 2), reason)
    pause_s = max(PAUSE_S, pace.pause_s / 2)
    return Pace(pace.quiet_s, pause_s, pace.reason if pause_s > PAUSE_S else "")


def _ms_text(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"


@dataclass(slots=True)
class TruncationProgress:
    """Progress of the truncation. Bytes are allocated bytes, fewer than the length of a sparse file."""

    total: int
    freed: int = 0
    cuts: int = 0
    worst_s: float = 0.0
    """The longest commit during a cut."""
    quiet_s: float | None = None
    largest_step: int = 0
    started_s: float = 0.0
    duration_s: float = 0.0
    """From the first measurement to the last cut, including pauses."""
    paused_s: float = 0.0
    """Paused by the operator, or waiting because of other load."""
    stopped: str = ""
    """Why it ended before the end of the file; empty at the end."""


def next_length(size: int, step: int, has_data: Callable[[int], bool]) -> int:
    """Return the length after the next cut. `has_data(at)`: whether any data is stored at `at` or after it.

    A hole costs nothing to cut, so all of it is cut at once; data is cut step by step.

    >>> next_length(100 * MIB, 10 * MIB, lambda at: True) // MIB
    90
    >>> next_length(100 * MIB, 10 * MIB, lambda at: at < 30 * MIB) // MIB
    60
    """
    target = _aligned(size - step)
    if target == 0 or has_data(target):
        return target
    span = step
    while target > 0:
        further = _aligned(size - 2 * span)
        if has_data(further):
            return target
        span, target = 2 * span, further
    return 0


def _aligned(length: int) -> int:
    """Round down to whole megabytes: a cut inside a block would first write the rest of the block."""
    return max(0, length // MIB * MIB)


class StepwiseTruncation:
    """Truncates one open file to 0. Raises OSError of the file system."""

    def __init__(
        self,
        fd: int,
        probe: DiskProbe,
        control: Control,
        *,
        step: int = STEP,
        commit_limit_s: float = 0.1,
        flags: Callable[[], str] = lambda: "",
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        status = os.fstat(fd)
        self._fd, self._probe, self._control, self._flags, self._now = fd, probe, control, flags, seconds
        self._step, self._limit_s = step, commit_limit_s
        self._size = status.st_size
        self._sparse = status.st_blocks * 512 < status.st_size
        self._reported_s = self._database_asked_s = self._baseline_s = 0.0
        self._database_quiet: float | None = None
        self.progress = TruncationProgress(total=status.st_blocks * 512)

    def measure_baseline(self) -> Pace:
        """Measure commits before the first cut; return the first pace."""
        self._control.report_progress("measuring the commit time before the first cut")
        baseline = []
        for _ in range(BASELINE_COMMITS):
            baseline.append(self._probe.commit())
            if self._control.wait(BASELINE_PAUSE_S):
                break
        self._database_quiet = self._probe.database_commit()
        self.progress.started_s = self._database_asked_s = self._now()
        self.progress.quiet_s = self._baseline_s = statistics.median(baseline)
        return Pace(self._baseline_s)

    def run(self, pace: Pace, before_first: Callable[[], str] = lambda: "") -> TruncationProgress:
        """Cut to the end, or until a stop is requested. `before_first`: a last check; a text it returns stops it."""
        while self._size > 0:
            if why := self._wait_while_paused(pace):
                self.progress.stopped = why
                break
            if self.progress.cuts == 0 and (why := before_first()):
                self.progress.stopped = why
                break
            pace = self._cut(pace)
            if self._size > 0 and self._pause(pace.pause_s):
                self.progress.stopped = "stopped by the operator"
                break
            # Slow without a cut too: then others keep the disk busy.
            slow = self._size > 0 and pace.reason
            pace = replace(pace, quiet_s=self._probe.commit() if slow else self._baseline_s)
        self.progress.duration_s = self._now() - self.progress.started_s
        return self.progress

    def _cut(self, pace: Pace) -> Pace:
        length = next_length(self._size, self._step, self._has_data)
        os.ftruncate(self._fd, length)
        cut, self._size = self._size - length, length
        progress = self.progress
        progress.cuts += 1
        progress.largest_step = max(progress.largest_step, cut)
        if progress.cuts % COMMIT_EVERY == 0 or pace.reason or length == 0:
            started = self._now()
            os.fsync(self._fd)
            took_s = self._now() - started
            progress.freed = progress.total - os.fstat(self._fd).st_blocks * 512
            progress.worst_s = max(progress.worst_s, took_s)
            pace = next_pace(pace, took_s, "a commit", self._limit_s)
        pace = self._with_database(pace)
        self._report(pace)
        return pace

    def _with_database(self, pace: Pace) -> Pace:
        """Time a commit of the database right after a cut, at intervals."""
        if self._database_quiet is None or self._now() - self._database_asked_s < DATABASE_INTERVAL_S:
            return pace
        self._database_asked_s = self._now()
        took_s, quiet_s = self._probe.database_commit(), self._database_quiet
        if took_s is None or took_s <= Pace(quiet_s).allowed_s(self._limit_s):
            return pace
        return next_pace(replace(pace, quiet_s=quiet_s), took_s, "the database's commit", self._limit_s)

    def _has_data(self, at: int) -> bool:
        if not self._sparse:
            return True
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA) < self._size
        except OSError:  # ENXIO: only a hole from here on
            return False

    def _wait_while_paused(self, pace: Pace) -> str:
        """Wait while it is paused, or the disk is saturated by other work. Return why to stop; empty: continue."""
        started = self._now()
        wait_s = 0.25
        while True:
            if self._control.stop_requested():
                return "stopped by the operator"
            flag = self._flags()
            if flag.startswith("stop"):
                return f"stopped by the file {flag.partition(' ')[2]}"
            if self._control.pause_requested():
                why = "paused by the operator"
            elif flag:
                why = f"paused until the file {flag.partition(' ')[2]} is gone"
            else:
                quiet_s = pace.quiet_s if wait_s == 0.25 else self._probe.commit()
                if quiet_s <= TROUBLE_S:
                    break
                why = f"commits take {_ms_text(quiet_s)} without any cut: waiting until they are faster"
            self._control.report_progress(
                f"{self._progress_text()}; {why}", self.progress.freed, self.progress.total, "bytes"
            )
            self._control.wait(wait_s)
            wait_s = min(2.0, wait_s * 2)
        self.progress.paused_s += self._now() - started
        return ""

    def _pause(self, seconds: float) -> bool:
        if seconds < 0.05:
            # Too short for a stop request, and checking for one costs as much.
            time.sleep(max(0.0, seconds))
            return False
        return self._control.wait(seconds)

    def _report(self, pace: Pace) -> None:
        if self._now() - self._reported_s < PROGRESS_INTERVAL_S:
            return
        self._reported_s = self._now()
        text = f"{self._progress_text()}; steps of {human_bytes(self._step)}"
        if pace.reason:
            text += f", slowed down: {pace.reason}"
        self._control.report_progress(text, float(self.progress.freed), float(self.progress.total), "bytes")

    def _progress_text(self) -> str:
        freed, total = self.progress.freed, self.progress.total
        spent = self._now() - self.progress.started_s - self.progress.paused_s
        text = f"{human_bytes(freed)} of {human_bytes(total)} freed"
        if freed <= 0 or spent <= 0:
            return text
        rate = freed / spent
        left = human_duration((total - freed) / rate)
        return f"{text}, {human_bytes(rate, per_s=True)}, about {left} left (estimated from the rate so far)"


# Measurements during the truncation: commits on the file system and of the database.

PAGE_BYTES = bytes(8192)
"""The minimum that the WAL writer writes."""
COMMIT_STATEMENT = "select pg_catalog.pg_logical_emit_message(true, 'dba-console', '')"
"""Writes about 70 bytes of WAL, for which the commit then waits; changes nothing else."""


class CommitProbe:
    """Writes and syncs a page on the file system of a directory, as a commit does.

    The file has no name, so nothing is left behind after a crash.
    """

    def __init__(self, directory: str) -> None:
        self._stamp = 0
        try:
            self._fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:  # a file system without unnamed files
            name = f"{directory}/.dba-console-probe-{os.getpid()}"
            self._fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.unlink(name)

    def time(self) -> float:
        """Write and sync; return the seconds. Raises OSError."""
        started = time.perf_counter()
        os.pwrite(self._fd, PAGE_BYTES, 0)
        # A new time stamp each time: otherwise (they are as coarse as the kernel's tick) the journal, through which
        # the cuts go, may have nothing to commit.
        self._stamp = (self._stamp + 1_000_000_007) % (1 << 60)
        os.utime(self._fd, ns=(self._stamp, self._stamp))
        os.fsync(self._fd)
        return time.perf_counter() - started

    def close(self) -> None:
        os.close(self._fd)


class DiskProbe:
    """Measurements during the truncation. Not thread-safe; the caller closes it."""

    def __init__(self, directory: str, connection: ActingConnection | None) -> None:
        """Raises OSError if the directory of the file cannot be written."""
        self._probe = CommitProbe(directory)
        self._link = connection
        self.database_note = "" if connection is None else "commits measured"

    def close(self) -> None:
        self._probe.close()

    def commit(self) -> float:
        """Return the seconds of a small write and fsync on the same file system."""
        return self._probe.time()

    def database_commit(self) -> float | None:
        """Return the seconds of a small transaction's commit; None without a database."""
        if self._link is None:
            return None
        started = time.perf_counter()
        try:
            self._link.execute_change(COMMIT_STATEMENT, timeout_s=5.0)
        except ConsoleError as error:
            # A standby, a server before 9.6, a lost connection: only the file system's commits are measured then.
            self._link = None
            self.database_note = f"commits no longer measured: {error.message}"
            return None
        return time.perf_counter() - started
