"""One tick as the rules see it: what was read, the ten minutes before, and the panels, each derived when first asked.

Deriving a panel of hundreds of sessions costs more than all rules together may: a rule looks at `point` first, and asks
for a panel when the numbers there give it reason to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.connections import derive_connections
from dba_console.frames.console_usage import derive_own
from dba_console.frames.disks import derive_disks
from dba_console.frames.facts import PictureFacts
from dba_console.frames.io import derive_io
from dba_console.frames.locks import derive_locks
from dba_console.frames.memory import derive_memory
from dba_console.frames.model import (
    Connections,
    Disks,
    Io,
    Locks,
    Memory,
    Progress,
    Replication,
    Safety,
    SelfFrame,
    TargetFrame,
)
from dba_console.frames.picture import Picture
from dba_console.frames.progress import derive_progress
from dba_console.frames.replication import derive_replication
from dba_console.frames.safety import derive_safety
from dba_console.frames.target import derive_target
from dba_console.limits import Limits


class RuleContext:
    """What is known after one tick."""

    def __init__(
        self,
        picture: Picture,
        history: ChartHistory,
        point: Mapping[str, float],
        read: Collection[str],
        limits: Limits,
        memos: dict[str, dict[str, Any]] | None = None,
        open_ids: Collection[tuple[str, str]] = (),
    ) -> None:
        self.picture = picture
        self.history = history
        """The last ten minutes of chart values, this tick included."""
        self.point = point
        """Chart values read in this tick, by name; what is missing is unknown or was not read anew."""
        self.read = read
        """Names of the parts read anew in this tick."""
        self.limits = limits
        self._memos = {} if memos is None else memos
        self._open = open_ids

    @property
    def now_us(self) -> int:
        """Host wall time of the tick, microseconds."""
        return self.picture.wall_us

    @property
    def mono_us(self) -> int:
        """Monotonic time of the tick, microseconds: for durations, since no one sets this clock."""
        return self.picture.mono_us

    def memo(self, name: str) -> dict[str, Any]:
        """What a rule keeps between ticks, under a name of its own; begins empty with the agent."""
        return self._memos.setdefault(name, {})

    def is_open(self, rule: str, subject: str = "") -> bool:
        """Whether this is raised already: then the figure for clearing applies, not the one for raising."""
        return (rule, subject) in self._open

    def over(self, value: float | None, raise_at: float, clear_at: float, rule: str, subject: str = "") -> bool:
        """Whether the value is too high, with hysteresis; an unknown value is not."""
        if value is None:
            return False
        return value >= (clear_at if self.is_open(rule, subject) else raise_at)

    def host_us(self, server_us: int | None) -> int | None:
        """A time by the server's clock as one by the host's; None where either is unknown."""
        now = self.facts.server_now_us
        return None if server_us is None or now is None else self.now_us - (now - server_us)

    @cached_property
    def facts(self) -> PictureFacts:
        """Settings, sessions by pid, who waits behind whom."""
        return PictureFacts(self.picture, self.history)

    @cached_property
    def connections(self) -> Connections:
        return derive_connections(self.facts)

    @cached_property
    def io(self) -> Io:
        return derive_io(self.facts)

    @cached_property
    def memory(self) -> Memory:
        return derive_memory(self.facts)

    @cached_property
    def safety(self) -> Safety:
        return derive_safety(self.facts)

    @cached_property
    def progress(self) -> Progress:
        return derive_progress(self.facts)

    @cached_property
    def locks(self) -> Locks:
        return derive_locks(self.facts)

    @cached_property
    def replication(self) -> Replication:
        return derive_replication(self.facts)

    @cached_property
    def disks(self) -> Disks:
        return derive_disks(self.facts)

    @cached_property
    def console(self) -> SelfFrame:
        return derive_own(self.facts)

    @cached_property
    def target(self) -> TargetFrame:
        return derive_target(self.facts)
