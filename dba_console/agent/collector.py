"""One tick: ask every lane, take what came in time, make a sample of it.

The collector knows nothing of what is displayed and depends on no disk; it cannot be held up by a server or a file
system, because every lane is waited for until the tick's budget is used and no longer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dba_console.agent.connect_options import monitor_options
from dba_console.agent.host_service import HOST_PARTS, HostService
from dba_console.agent.own_cost import OwnCost
from dba_console.agent.part_schedule import due_parts
from dba_console.agent.pending_reverts_service import PendingRevertService
from dba_console.agent.server_service import ServerService
from dba_console.clock import SYSTEM, Clock
from dba_console.config import Config
from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.samples.agent_health import AgentHealth
from dba_console.samples.sample import Part, Sample, make_part
from dba_console.target import Target
from dba_console.units import parse_duration

if TYPE_CHECKING:
    from dba_console.agent.cluster_service import ClusterService

TICK_BUDGET_SHARE = 0.7
"""Share of the interval a tick waits for its lanes."""

FIRST_CONNECT_WAIT_US = 1_500_000
"""The first tick waits this long for the server: a picture without it would look like an outage."""
CONNECT_WAIT_US = 200_000
"""Later ones wait this long for an attempt to connect before they count connections by their processes."""


class Collector:
    """Reads a target once per `tick`. Used by one thread; needs no agent (`show` reads through it too)."""

    def __init__(
        self, target: Target, config: Config, *, clock: Clock = SYSTEM, options: MonitorOptions | None = None
    ) -> None:
        """`options` None: those of the configuration."""
        self._clock = clock
        self.interval_s = max(0.25, parse_duration(config.agent.interval))
        self.boot = secrets.token_hex(4)
        options = options or monitor_options(config.agent, target.host_panels)
        self.server = ServerService(target.conninfo, options, clock, self.interval_s)
        self.host = HostService(target, clock)
        self.pending_reverts = PendingRevertService(target, self.server, clock)
        self.cluster = _make_cluster_service(target, config, self.server, clock)
        self._own = OwnCost(clock)
        self._seq = 0
        self._tick = 0
        self.extend_self_part: Callable[[AgentHealth], AgentHealth] = lambda own: own
        """Lets the agent add what it knows of its recording and consoles to the part `self`."""
        self.make_extra_parts: Callable[[], list[Part]] = list
        """Lets the agent add parts made of what was read, in the tick in which it was."""

    def tick(self, late_us: int = 0) -> Sample:
        """Read everything that is due. Takes at most BUDGET of the interval, whatever hangs."""
        started = self._clock.mono_us()
        until = started + int(self.interval_s * TICK_BUDGET_SHARE * 1e6)
        names = [
            *due_parts(HOST_PARTS, self._tick, self.interval_s),
            *due_parts(("host.mounts",), self._tick, self.interval_s),
        ]
        if self.cluster is not None:
            self.cluster.begin()
        self.server.begin()
        parts: list[Part] = []
        if not self.server.connected:
            # Whether the host may be shown is known only after the server has said who it is; and an attempt of ours
            # that is being refused should be over before connections are counted by their processes.
            parts += self.server.finish(started + (FIRST_CONNECT_WAIT_US if self._tick == 0 else CONNECT_WAIT_US))
            self.host.begin(names, self.server)
            until = max(until, self._clock.mono_us() + 300_000)
        else:
            self.host.begin(names, self.server)
            parts += self.server.finish(until)
        parts += self.host.finish(until)
        self._tick += 1
        parts += self.pending_reverts.tick()
        if self.cluster is not None:
            parts += self.cluster.finish()
        parts += self.make_extra_parts()
        parts.append(self._self_part(late_us))
        return self._sample(parts)

    def close(self) -> None:
        """Give back the connection and end idle lanes."""
        self.server.close()
        self.host.close()
        self.pending_reverts.close()
        if self.cluster is not None:
            self.cluster.close()

    def _self_part(self, late_us: int) -> Part:
        lanes = list(self.host.stuck)
        if self.server.stuck:
            lanes.append("postgres")
        if self.pending_reverts.stuck:
            lanes.append("debts")
        if self.cluster is not None:
            lanes += self.cluster.stuck
        # Elsewhere the pid is another process of this host, or none.
        backend = self.server.backend_pid if self.host.is_here else None
        own = self._own.read(self.server.counters(), backend, lanes, late_us)
        if (outage := self.server.outage) is not None:
            own = replace(own, outage=outage.kind, refused_by=outage.refused_by)
        return make_part("self", self.extend_self_part(own), at_us=self._clock.mono_us())

    def _sample(self, parts: list[Part]) -> Sample:
        self._seq += 1
        return Sample(self._seq, self._clock.wall_us(), self._clock.mono_us(), parts, self.boot)


def _make_cluster_service(target: Target, config: Config, server: ServerService, clock: Clock) -> ClusterService | None:
    """None, and nothing loaded, where no cluster is configured."""
    if not config.clusters:
        return None
    from dba_console.agent.cluster_service import ClusterService

    return ClusterService(target, config, server, clock)
