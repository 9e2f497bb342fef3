"""A look at the programs behind the sessions: what the tick asks, and what the lane answers. Declarations only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dba_console.agent.jobs.job_detection import ObservedJobPrograms
from dba_console.agent.jobs.job_history import ReportedProgress
from dba_console.agent.jobs.past_runs import JobRun, RunFacts
from dba_console.frames.job_sessions import ClientProgram
from dba_console.samples.jobs import JobKey, JobsNow
from dba_console.samples.postgres import Operation, Server, Sessions
from dba_console.samples.sample import Part


@dataclass(frozen=True, slots=True)
class ObservationRequest:
    """What the tick knows; nothing in it is changed any more."""

    sessions: Sessions
    operations: tuple[Operation, ...]
    server: Server | None
    conninfo: str
    here: bool
    """The server runs on this host: its sessions' processes are ours to see."""
    wall_us: int
    mono_us: int
    runs: Mapping[JobKey, tuple[JobRun, ...]] = field(default_factory=dict)
    """Runs before, of all jobs whose programs are under way."""
    shares: tuple[ReportedProgress, ...] = ()
    """What was last said of them: none goes back, whoever looks."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found."""

    at_us: int
    """Monotonic time at which it began."""
    took_us: int
    now: JobsNow
    part: Part
    programs: ObservedJobPrograms
    """Programs under way, with their sessions."""
    ended: Mapping[ClientProgram, RunFacts]
    """Programs that are gone since the look before, with what was known of them."""
