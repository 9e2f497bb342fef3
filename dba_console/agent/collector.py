"""The collector: reads all sources once per tick, each with a deadline, and makes a sample of what arrived in time.

It does not depend on the display or on a disk, and neither a server nor a file system can block it, because lanes are
awaited only within the tick's budget.
"""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
from msgspec.structs import replace

from dba_console.agent.host_service import HostService
from dba_console.agent.lock_episode_service import LockEpisodeService
from dba_console.agent.server_service import ServerService
from dba_console.agent.source import TickSource, due_parts
from dba_console.agent.unreverted_settings_service import PendingRevertService
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.config import AgentConfig, Config
from dba_console.core.target import Target
from dba_console.core.units import parse_duration
from dba_console.watch.probes.host.kernel_files import STAT_SIZE, KernelFile, parse_stat
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part, Sample, make_part

if TYPE_CHECKING:
    from dba_console.agent.cluster_service import ClusterService

# The cost of the console on its host. Its CPU time is that of getrusage(2), in microseconds; psutil's is in 1/100 s.

_TICKS = os.sysconf("SC_CLK_TCK")


class OwnCost:
    """Reads the agent's own CPU and memory, and the CPU of the backend of its connection."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._backend: tuple[int, KernelFile] | None = None

    def read(
        self, counters: tuple[int, int, int], backend_pid: int | None, lanes: list[str], late_us: int
    ) -> AgentHealth:
        """Return a reading without recording and consoles, which the agent adds."""
        queries, query_us, received = counters
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return AgentHealth(
            cpu_us=int((usage.ru_utime + usage.ru_stime) * 1e6),
            rss=self._process.memory_info().rss,
            queries=queries,
            query_us=query_us,
            bytes_received=received,
            recorder_lag_us=0,
            recorded=0,
            dropped=0,
            stuck_lanes=len(lanes),
            lanes=lanes,
            consoles=0,
            late_us=late_us,
            backend_cpu_us=None if backend_pid is None else self._backend_cpu(backend_pid),
            recording="off",
        )

    def _backend_cpu(self, pid: int) -> int | None:
        """Return the CPU time in microseconds of a server process on this host; None if there is no such process."""
        if self._backend is None or self._backend[0] != pid:
            self.close()
            self._backend = pid, KernelFile(f"/proc/{pid}/stat")
        try:
            stat = parse_stat(self._backend[1].read_once(STAT_SIZE))
        except (OSError, ValueError, IndexError):
            return None
        return (stat.user_ticks + stat.system_ticks) * 1_000_000 // _TICKS

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        if self._backend is not None:
            self._backend[1].close()


# Limits of the monitor connection, from the configuration.


def monitor_options(config: AgentConfig, host_panels: bool | None) -> MonitorOptions:
    """Return the limits in seconds. Raises UsageError for an invalid duration."""
    return MonitorOptions(
        statement_timeout_s=parse_duration(config.statement_timeout),
        lock_timeout_s=parse_duration(config.lock_timeout),
        connect_timeout_s=parse_duration(config.connect_timeout),
        host_panels=host_panels,
        query_texts=config.query_texts,
    )


TICK_BUDGET_SHARE = 0.7
"""Share of the interval a tick waits for its lanes."""


class Collector:
    """Reads a target once per `tick`. Used by one thread; needs no agent (`show` reads through it too)."""

    def __init__(
        self, target: Target, config: Config, *, clock: Clock = SYSTEM, options: MonitorOptions | None = None
    ) -> None:
        """`options` None: from the configuration."""
        self._clock = clock
        self.interval_s = max(0.25, parse_duration(config.agent.interval))
        self.boot = secrets.token_hex(4)
        options = options or monitor_options(config.agent, target.host_panels)
        self.server = ServerService(target.conninfo, options, clock, self.interval_s)
        self.host = HostService(target, self.server, clock)
        self.pending_reverts = PendingRevertService(target, self.server, clock)
        self.cluster = _make_cluster_service(target, config, self.server, clock)
        self.sources: list[TickSource] = [
            self.server, self.host, self.pending_reverts, LockEpisodeService(self.server, self.interval_s),
        ]  # fmt: skip
        """In the order of their parts in the sample; those further below may use what the ones above have read."""
        if self.cluster is not None:
            self.sources.append(self.cluster)
        self._own = OwnCost()
        self._seq = 0
        self._tick = 0
        self.extend_self_part: Callable[[AgentHealth], AgentHealth] = lambda own: own
        """Lets the agent add the state of its recording and consoles to the part `self`."""

    def tick(self, late_us: int = 0) -> Sample:
        """Read everything that is due. Takes at most TICK_BUDGET_SHARE of the interval, whatever hangs."""
        until_us = self._clock.mono_us() + int(self.interval_s * TICK_BUDGET_SHARE * 1e6)
        due = due_parts(PARTS, self._tick, self.interval_s)
        self._tick += 1
        for source in self.sources:
            source.begin(due)
        parts = [part for source in self.sources for part in source.finish(until_us)]
        parts.append(self._self_part(late_us))
        return self._sample(parts)

    def events(self) -> list[Event]:
        """Return the events of the sources since the last call."""
        return [event for source in self.sources for event in source.events()]

    def close(self) -> None:
        """Close the connection and end idle lanes."""
        for source in self.sources:
            source.close()
        self._own.close()

    def _self_part(self, late_us: int) -> Part:
        lanes = [name for source in self.sources for name in source.stuck]
        # On a remote server the pid belongs to another process of this host, or to none.
        backend = self.server.backend_pid if self.host.is_here else None
        own = self._own.read(self.server.counters(), backend, lanes, late_us)
        own = replace(own, slot_refusals=self.server.slot_refusals)
        if (outage := self.server.outage) is not None:
            own = replace(own, outage=outage.kind, refused_by=outage.refused_by)
        return make_part("self", self.extend_self_part(own), at_us=self._clock.mono_us())

    def _sample(self, parts: list[Part]) -> Sample:
        self._seq += 1
        return Sample(self._seq, self._clock.wall_us(), self._clock.mono_us(), parts, self.boot)


def _make_cluster_service(target: Target, config: Config, server: ServerService, clock: Clock) -> ClusterService | None:
    """Return the cluster service; None, without loading it, if no cluster is configured."""
    if not config.clusters:
        return None
    from dba_console.agent.cluster_service import ClusterService

    return ClusterService(target, config, server, clock)
