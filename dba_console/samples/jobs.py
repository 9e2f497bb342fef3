"""Long jobs: which dumps, restores and the like run now, and what is known of the ones before.

The agent sees jobs begin and end among the sessions and keeps their durations; what it knows goes into the sample, so
that replay shows what was usual then. Structs are stored by position (`array_like`): a field may be added at the end
with a default, never moved or removed.
"""

from __future__ import annotations

from msgspec import Struct

JobKey = tuple[str, str | None, str | None]
"""Program, database, user: whose runs are compared with each other."""


class PastJob(Struct, array_like=True, frozen=True, gc=False):
    """What is known of the runs of one job: a program, as one user, in one database."""

    kind: str
    """pg_dump, pg_restore, ...: the program."""
    database: str | None
    """None for a base backup, which is of all of them."""
    user: str | None
    runs: int
    """Runs that count: neither cancelled at once nor seen in part only."""
    usual_s: float | None
    """Median duration, seconds; None with fewer than three runs that count."""
    interval_s: float | None
    """Median time from one start to the next, seconds; only where everything between the two was watched."""
    intervals: int
    """How many such distances are known."""
    longest_interval_s: float | None
    """The longest of them, of eight and more the second longest: one holiday makes no rule."""
    last_ended_us: int | None
    """Host wall time at which the last run that counts ended."""
    last_s: float | None
    """Its duration, seconds."""
    watched_since_us: int
    """Host wall time since which no run can have gone unseen."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class RunningJob(Struct, array_like=True, frozen=True, gc=False):
    """A job that runs now."""

    kind: str
    database: str | None
    user: str | None
    pid: int
    """Backend of the session connected first, as far as it is still there."""
    started: int | None
    """Server's clock; None where this role may not see it."""
    elapsed_s: float | None
    """As of the reading, by the clock no one sets; None where the start is not known."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class Jobs(Struct, array_like=True, frozen=True):
    """Everything known of long jobs on one target."""

    now_us: int
    """Host wall time of the reading."""
    past: list[PastJob]
    running: list[RunningJob]

    def before(self, key: JobKey) -> PastJob | None:
        """The past of one job, None where there is none."""
        return next((one for one in self.past if one.key == key), None)
