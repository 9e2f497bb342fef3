"""Dumps and restores that ended, as they are told: every run of every job known on one target.

Where they come from (the agent's file) is not known here; what is not known of a run is None.
"""

from __future__ import annotations

from msgspec import Struct

from dba_console.frames.job_sessions import job_name


class PastPhase(Struct, frozen=True, kw_only=True):
    """One phase of a run that ended."""

    name: str
    wall_s: float | None = None
    """From its first object's start to its last one's end; phases overlap with -j."""
    busy_s: float | None = None
    """Of all its objects together."""
    bytes: float | None = None


class PastRun(Struct, frozen=True, kw_only=True):
    """One run that ended."""

    started_us: int
    """Host wall time."""
    seconds: float
    counts: bool = True
    """It takes part in what is usual: not one cancelled at once."""
    size_bytes: float | None = None
    """Of what was dumped or read."""
    bytes: float | None = None
    """Written by a dump, read by a restore."""
    rate_per_s: float | None = None
    """Bytes a second."""
    format: str | None = None
    version: str | None = None
    jobs: int | None = None
    exit: int | None = None
    """None: nobody saw it."""
    errors: int | None = None
    """None: its messages could not be read."""
    last_error: str | None = None
    phases: tuple[PastPhase, ...] = ()
    whole: bool | None = None
    """Whether it did all it set out to, as far as that was seen."""
    exit_tells: bool = True
    """An exit status of 0 means success; psql's does not, for it goes on after errors."""

    @property
    def ended_us(self) -> int:
        return self.started_us + int(self.seconds * 1e6)

    @property
    def ending(self) -> str:
        """`good`, `failed`, or `unknown`: to have ended is not to have succeeded.

        Errors that a program ignored are errors, whatever its exit status says.
        """
        if self.errors or self.exit or self.whole is False:
            return "failed"
        return "good" if self.whole or (self.exit == 0 and (self.exit_tells or self.errors == 0)) else "unknown"


class PastRuns(Struct, frozen=True, kw_only=True):
    """All runs of one job, oldest first."""

    kind: str
    database: str | None
    """None for a base backup, which is of all of them."""
    user: str | None
    runs: tuple[PastRun, ...] = ()
    usual_s: float | None = None
    watched_since_us: int | None = None
    """Since then no run can have gone unseen."""

    @property
    def name(self) -> str:
        """`pg_dump of appdb`: as sentences and the configuration name it."""
        return job_name(self.kind, self.database)


class TargetJobHistory(Struct, frozen=True, kw_only=True):
    """What is known of one target."""

    jobs: tuple[PastRuns, ...] = ()
    until_us: int | None = None
    """Until then it was kept up to date."""
    note: str | None = None
    """Why nothing is known, or not all of it."""
