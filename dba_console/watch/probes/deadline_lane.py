"""Deadline lanes: threads that run calls which may hang, so that the tick never waits for them.

A lane is a daemon thread that runs one job at a time. A job that misses its deadline is abandoned together with its
thread, because a thread stuck in the kernel cannot be ended. The lane then starts a new thread, at most `REPLACEMENTS`
of them, so a dead mount costs a few sleeping threads and not one a second. Late results are discarded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dba_console.core.clock import SYSTEM, Clock

T = TypeVar("T")

CLOSE_S = 1.0
"""Maximum wait at the end for a connection to be closed."""
REPLACEMENTS = 3
"""Threads of one lane that may be stuck at once. Above this the lane refuses jobs until one of them returns."""


class LaneTimeout(Exception):
    """The job did not end before its deadline; its thread was abandoned."""


class _Job:
    """A call and its result: set by one thread, awaited by another."""

    __slots__ = ("call", "done", "error", "value")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.done = threading.Event()
        self.value: object = None
        self.error: BaseException | None = None


class _Worker:
    """The thread of a lane. Runs jobs one after another; ends when it is closed or was abandoned."""

    def __init__(self, name: str) -> None:
        self._wake = threading.Semaphore(0)
        self._job: _Job | None = None
        self.abandoned = False
        self.ended = False
        threading.Thread(target=self._run, name=f"lane-{name}", daemon=True).start()

    def assign(self, job: _Job | None) -> None:
        self._job = job
        self._wake.release()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            job, self._job = self._job, None
            if job is None:
                break
            try:
                job.value = job.call()
            except BaseException as error:
                job.error = error
            job.done.set()
            del job
            if self.abandoned:
                break
        self.ended = True


class PendingCall(Generic[T]):
    """A job that runs in a lane."""

    __slots__ = ("_job", "_lane")

    def __init__(self, lane: Lane, job: _Job) -> None:
        self._lane = lane
        self._job = job

    def ready(self, until_us: int) -> bool:
        """Wait until monotonic `until_us` and return whether the job has ended; a job that has not continues."""
        return self._job.done.wait(max(0.0, (until_us - self._lane.clock.mono_us()) / 1e6))

    def result(self, until_us: int) -> T:
        """Return the job's result, or raise its exception. Raises LaneTimeout if it is not ready by `until_us`."""
        if not self.ready(until_us):
            self._lane.abandon()
            raise LaneTimeout(self._lane.name)
        if self._job.error is not None:
            raise self._job.error
        return self._job.value  # type: ignore[return-value] # the result is untyped, the job that sets it is typed


class Lane:
    """Runs calls that may hang, one at a time. Not thread-safe."""

    def __init__(self, name: str, clock: Clock = SYSTEM) -> None:
        self.name = name
        self.clock = clock
        self._worker: _Worker | None = None
        self._abandoned: list[_Worker] = []

    @property
    def stuck(self) -> int:
        """The number of abandoned threads that have not ended yet."""
        self._abandoned = [worker for worker in self._abandoned if not worker.ended]
        return len(self._abandoned)

    def start(self, call: Callable[[], T]) -> PendingCall[T]:
        """Start `call`. Raises LaneTimeout at once if too many threads of this lane are already stuck."""
        if self.stuck >= REPLACEMENTS:
            raise LaneTimeout(self.name)
        if self._worker is None:
            self._worker = _Worker(self.name)
        job = _Job(call)
        self._worker.assign(job)
        return PendingCall(self, job)

    def call(self, call: Callable[[], T], timeout_s: float) -> T:
        """Run `call` in the lane, for at most `timeout_s` seconds. Raises LaneTimeout, or the exception of the call."""
        return self.start(call).result(self.clock.mono_us() + int(timeout_s * 1e6))

    def abandon(self) -> None:
        """Abandon the current thread."""
        if self._worker is not None:
            self._worker.abandoned = True
            self._abandoned.append(self._worker)
            self._worker = None

    def close(self) -> None:
        """End an idle thread. A stuck one is a daemon and does not keep the process alive."""
        if self._worker is not None:
            self._worker.assign(None)
            self._worker = None


class PolledCall(Generic[T]):
    """One call at a time in a lane of its own, polled by a tick that never waits: start, ended, take. Not thread-safe.

    A call that is pending for more than `timeout_us` counts as ended; `take` then abandons it.
    """

    def __init__(self, name: str, clock: Clock = SYSTEM, timeout_us: int | None = None) -> None:
        self.lane = Lane(name, clock)
        self.started_us = 0
        """Monotonic time of the last start, 0 before the first."""
        self._timeout_us = timeout_us
        self._call: PendingCall[T] | None = None

    @property
    def pending(self) -> bool:
        """Whether a call was started whose result has not been taken."""
        return self._call is not None

    @property
    def stuck(self) -> int:
        return self.lane.stuck

    def start(self, call: Callable[[], T], now_us: int | None = None) -> bool:
        """Start `call`, which must be the only one; return False if too many threads of the lane are stuck.

        `now_us` is the time of the tick, if that counts as the start.
        """
        try:
            self._call = self.lane.start(call)
        except LaneTimeout:
            return False
        self.started_us = self.lane.clock.mono_us() if now_us is None else now_us
        return True

    def ended(self, until_us: int = 0) -> bool:
        """Return whether a call is to be taken; wait for it until monotonic `until_us` at the latest."""
        if self._call is None:
            return False
        if self._call.ready(until_us):
            return True
        return self._timeout_us is not None and self.lane.clock.mono_us() - self.started_us > self._timeout_us

    def idle(self, until_us: int) -> bool:
        """Return whether no call runs; wait for the end of a running one until monotonic `until_us` at the latest."""
        return self._call is None or self._call.ready(until_us)

    def take(self) -> T:
        """Return the result of the call that ended, or raise its exception; LaneTimeout if it did not end in time."""
        assert self._call is not None
        call, self._call = self._call, None
        return call.result(0)

    def abandon(self) -> None:
        """Abandon the pending call."""
        self._call = None
        self.lane.abandon()

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Run `last` in the lane unless a call is pending, for at most CLOSE_S seconds; then end the thread."""
        if last is not None and not self.pending:
            try:
                self.lane.call(last, CLOSE_S)
            except LaneTimeout:
                pass
        self.lane.close()
