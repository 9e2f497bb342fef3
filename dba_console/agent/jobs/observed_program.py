"""What one look found of one program. Declarations only."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dba_console.agent.jobs.observation import ObservationRequest
from dba_console.agent.jobs.session_matching import SessionMatch, program_key
from dba_console.probes.jobs.pipeline import DataFlow
from dba_console.probes.jobs.running_programs import RunningProgram
from dba_console.probes.jobs.stderr_reader import NewMessages
from dba_console.samples.postgres import Activity, Operation


@dataclass(frozen=True)
class ObservedProgram:
    """Everything there is of it now."""

    program: RunningProgram
    joined: SessionMatch
    flow: DataFlow
    words: NewMessages
    question: ObservationRequest
    at_us: int
    """Monotonic."""

    @cached_property
    def running_s(self) -> float:
        """How long it runs, by the clock no one sets."""
        ticks = self.program.start_ticks / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)

    @cached_property
    def rows(self) -> list[Activity]:
        """Its sessions, the one connected first at first."""
        rows = self.joined.sessions.get(program_key(self.program), [])
        return sorted(rows, key=lambda row: (row.backend_start or 0, row.pid))

    @cached_property
    def operations(self) -> Mapping[int, Operation]:
        """Session -> its row of a progress view."""
        pids = {row.pid for row in self.rows}
        return {row.pid: row for row in self.question.operations if row.pid in pids}
