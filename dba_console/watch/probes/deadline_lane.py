"""Lanes: where anything that may hang is done, so that the tick never waits for it.

A lane is a daemon thread with room for one job. A job that misses its deadline is abandoned with its thread, for
nothing can end a thread stuck in the kernel; the lane then gets a new thread, at most `REPLACEMENTS` of them, so that a
dead mount costs a few sleeping threads and not one a second. What comes back late is thrown away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dba_console.core.clock import SYSTEM, Clock

T = TypeVar("T")

REPLACEMENTS = 3
"""Threads of one lane that may be stuck at once before it waits for one of them to come back."""


class LaneTimeout(Exception):
    """The job did not end in time; its lane is abandoned."""


@dataclass(frozen=True, slots=True)
class _Job:
    call: Callable[[], object]
    result: _JobResult


class _JobResult:
    """A box one thread fills and another waits for."""

    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: object = None
        self.error: BaseException | None = None


class _Worker:
    """The thread of a lane. Waits for a job, does it, waits again; ends when told to or when it was abandoned."""

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
                job.result.value = job.call()
            except BaseException as error:
                job.result.error = error
            job.result.done.set()
            del job
            if self.abandoned:
                break
        self.ended = True


class PendingCall(Generic[T]):
    """A job under way in a lane."""

    __slots__ = ("_lane", "_result")

    def __init__(self, lane: Lane, answer: _JobResult) -> None:
        self._lane = lane
        self._result = answer

    def ready(self, until_us: int) -> bool:
        """True when the job has ended, waited for until monotonic `until_us`; one that has not is left to go on."""
        return self._result.done.wait(max(0.0, (until_us - self._lane.clock.mono_us()) / 1e6))

    def result(self, until_us: int) -> T:
        """What the job returned, or its exception. Raises LaneTimeout when it has not ended by `until_us`."""
        if not self.ready(until_us):
            self._lane.abandon()
            raise LaneTimeout(self._lane.name)
        if self._result.error is not None:
            raise self._result.error
        return self._result.value  # type: ignore[return-value]  # the box is untyped, the job that fills it is not


class Lane:
    """One thing that may hang. Used by one thread at a time."""

    def __init__(self, name: str, clock: Clock = SYSTEM) -> None:
        self.name = name
        self.clock = clock
        self._worker: _Worker | None = None
        self._abandoned: list[_Worker] = []

    @property
    def stuck(self) -> int:
        """Threads abandoned and not come back yet."""
        self._abandoned = [worker for worker in self._abandoned if not worker.ended]
        return len(self._abandoned)

    def start(self, call: Callable[[], T]) -> PendingCall[T]:
        """Begin `call`. Raises LaneTimeout at once when too many of this lane's threads are stuck already."""
        if self.stuck >= REPLACEMENTS:
            raise LaneTimeout(self.name)
        if self._worker is None:
            self._worker = _Worker(self.name)
        answer = _JobResult()
        self._worker.assign(_Job(call, answer))
        return PendingCall(self, answer)

    def call(self, call: Callable[[], T], timeout_s: float) -> T:
        """`call` done in the lane, waited for at most `timeout_s` seconds. Raises LaneTimeout, or what it raised."""
        return self.start(call).result(self.clock.mono_us() + int(timeout_s * 1e6))

    def abandon(self) -> None:
        """Leave the current thread to whatever holds it."""
        if self._worker is not None:
            self._worker.abandoned = True
            self._abandoned.append(self._worker)
            self._worker = None

    def close(self) -> None:
        """Let an idle thread end. A stuck one is a daemon and does not keep the process."""
        if self._worker is not None:
            self._worker.assign(None)
            self._worker = None
