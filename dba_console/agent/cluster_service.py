"""The cluster service: polls the nodes and poolers of the configured cluster that the watched server belongs to.

Each is polled in its own lane, so one that hangs delays neither the others nor the tick. The server belongs to the
cluster with a node of the same address, else to the cluster with a node of the same system identifier. Loaded only if
a cluster is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import structs

from dba_console.agent.server_service import REFUSED_DELAYS_S, ServerService, delay_s
from dba_console.agent.source import TickSource
from dba_console.clusters.node_polling import SILENCE_S, NodePoll, PoolerPoll
from dba_console.clusters.subject.readings import ClusterDetails, ClusterNow, NodeDetails, NodeNow, PoolerNow
from dba_console.core.clock import Clock
from dba_console.core.config import ClusterConfig, Config
from dba_console.core.errors import ConsoleError, UsageError
from dba_console.core.redact import redact
from dba_console.core.target import Target, address_of
from dba_console.watch.probes.deadline_lane import PolledCall
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed
from dba_console.watch.samples.sample import PARTS, Part, make_part

CLUSTER, DETAILS = "cluster", "cluster.details"
INTERVAL_US = PARTS[CLUSTER].every_s * 1_000_000
DETAILS_INTERVAL_US = PARTS[DETAILS].every_s * 1_000_000
ANSWER_WAIT_US = 20_000
"""How long the tick waits for its polls, all nodes together: most answer in time for the same sample."""
NO_ANSWER_US = 3_000_000
"""Age after which a poll counts as unanswered; the connection is kept, and the answer still awaited."""
ABANDONED_US = int(SILENCE_S * 1e6) + 10_000_000
"""Age after which a poll hangs where no timeout applies, in the resolver: its lane is abandoned."""
RECONNECT_DELAYS_S = (1.0, 2.0)
"""Pauses between connection attempts: short, so that a restarted old primary is detected within 5 s."""
NO_SLOT_DELAYS_S = (10.0,)
"""Pauses if no connection slot is free."""
CANDIDATE_INTERVAL_US = 10_000_000
"""Interval of polls of a cluster while it is unknown whether the server belongs to it."""

State = TypeVar("State", NodeNow, PoolerNow)


class _PolledMember(Generic[State]):
    """A node or a pooler, its last answer, and the lane in which it is polled."""

    def __init__(self, make: Callable[[], NodePoll | PoolerPoll], clock: Clock) -> None:
        self._make, self._clock = make, clock
        self._poll: Any = make()
        self.call: PolledCall[tuple[State, NodeDetails | None]] = PolledCall(f"cluster {self._poll.name}", clock)
        self._next_us = 0
        self._details_next_us = 0
        self._attempts = 0
        self.now: State = self._poll.state()
        self.details: NodeDetails | None = None
        self.has_result = False
        """It has answered, or its error is known."""

    def is_idle(self, until_us: int) -> bool:
        """Return whether no poll is pending, at monotonic `until_us` at the latest."""
        return self.call.idle(until_us)

    def begin(self, now_us: int, every_us: int) -> None:
        """Start a poll if it is due and the last one is over."""
        if self.call.pending or now_us < self._next_us:
            return
        poll, details = self._poll, now_us >= self._details_next_us
        if self.call.start(lambda: poll.ask(details), now_us):
            self._next_us = now_us + every_us
        else:
            self._fail("several connection attempts hang; waiting for one to end", now_us)

    def collect(self, now_us: int) -> bool:
        """Return whether there is a new result."""
        if not self.call.pending:
            return False
        if not self.call.ended(self.call.started_us + ANSWER_WAIT_US):
            return self._handle_late_answer(now_us)
        try:
            self.now, details = self.call.take()
        except ConnectFailed as error:
            schedule = (
                NO_SLOT_DELAYS_S
                if error.kind == "no_slots"
                else REFUSED_DELAYS_S
                if error.kind in ("auth", "ssl")
                else RECONNECT_DELAYS_S
            )
            self._fail(error.message, now_us, schedule, starting=error.kind == "starting")
        except ConsoleError as error:
            self._fail(error.message, now_us)
        except Exception as error:  # an internal error affects this node, not the tick
            self._fail(redact(f"{type(error).__name__}: {error}"), now_us)
        else:
            self._attempts, self.has_result = 0, True
            if details is not None:
                self.details, self._details_next_us = details, now_us + DETAILS_INTERVAL_US
        return True

    def poll_now(self, now_us: int) -> None:
        """Poll again at once."""
        self._next_us = now_us
        self.begin(now_us, INTERVAL_US)

    def close(self) -> None:
        """Close the connection; one that hangs ends with the process."""
        self.call.close(self._poll.close)

    def _handle_late_answer(self, now_us: int) -> bool:
        waited_us = now_us - self.call.started_us
        if waited_us < NO_ANSWER_US:
            return False
        if waited_us > ABANDONED_US:
            self.call.abandon()
            self._poll, self._next_us = self._make(), now_us
        self._mark_unreachable(f"no answer for {waited_us // 1_000_000} s", self.call.started_us)
        return True

    def _fail(
        self, why: str, now_us: int, schedule: tuple[float, ...] = RECONNECT_DELAYS_S, *, starting: bool = False
    ) -> None:
        self._mark_unreachable(why, now_us)
        if isinstance(self.now, NodeNow):
            self.now = structs.replace(self.now, starting=starting)
        # Half a second less, so that the attempt falls on a tick and not after it.
        self._next_us = now_us + int((delay_s(schedule, self._attempts) - 0.5) * 1e6)
        self._attempts += 1

    def _mark_unreachable(self, why: str, from_us: int) -> None:
        self.has_result = True
        since_us = self.now.since_us or self._clock.wall_us() - (self._clock.mono_us() - from_us)
        self.now = structs.replace(self.now, error=why, since_us=since_us)


class _MonitoredCluster:
    """One configured cluster that is polled."""

    def __init__(self, name: str, config: ClusterConfig, clock: Clock) -> None:
        self.name = name
        self.nodes: list[_PolledMember[NodeNow]] = [
            _PolledMember(partial(NodePoll, one, node, clock, name), clock) for one, node in config.nodes.items()
        ]
        self.poolers: list[_PolledMember[PoolerNow]] = [
            _PolledMember(partial(PoolerPoll, one, pooler, clock), clock) for one, pooler in config.poolers.items()
        ]

    @property
    def members(self) -> Sequence[_PolledMember[Any]]:
        return [*self.nodes, *self.poolers]

    @property
    def identities(self) -> set[str | None]:
        return {one.now.system_identifier for one in self.nodes if one.now.at_us}

    def has_several_primaries(self) -> bool:
        found = [one.now.system_identifier for one in self.nodes if one.now.answers and one.now.role == "primary"]
        return len(found) > len(set(found))

    def close(self) -> None:
        for one in self.members:
            one.close()


class ClusterService(TickSource):
    """Polls the cluster of the target. Used by the tick only."""

    def __init__(self, target: Target, config: Config, server: ServerService, clock: Clock) -> None:
        super().__init__()
        self._server, self._clock = server, clock
        matching = [name for name, cluster in config.clusters.items() if _contains_target(cluster, target)]
        self._watched = _MonitoredCluster(matching[0], config.clusters[matching[0]], clock) if matching else None
        self._others = {} if matching else dict(config.clusters)
        self._candidates: list[_MonitoredCluster] = []
        self._sent_us = 0
        self._details: tuple[NodeDetails, ...] = ()

    @property
    def stuck(self) -> list[str]:
        return [one.call.lane.name for each in self._polled_clusters for one in each.members if one.call.stuck]

    def all_idle(self, until_us: int) -> bool:
        """Return whether every node and pooler has answered or failed, at monotonic `until_us` at the latest."""
        return all(one.is_idle(until_us) for each in self._polled_clusters for one in each.members)

    @property
    def _polled_clusters(self) -> Sequence[_MonitoredCluster]:
        return [*self._candidates, *([self._watched] if self._watched else [])]

    @property
    def settled(self) -> bool:
        """Whether each member has answered or failed once; True while the cluster is not identified."""
        return self._watched is None or all(one.has_result for one in self._watched.members)

    def begin(self, due: Collection[str]) -> None:
        """Start the polls that are due: each node and pooler has a time of its own."""
        now_us = self._clock.mono_us()
        if self._watched is None:
            self._identify_cluster(now_us)
        if self._watched is not None:
            for one in self._watched.members:
                one.begin(now_us, INTERVAL_US - 500_000)  # on the tick, not after it

    def finish(self, until_us: int) -> list[Part]:
        """Return the parts of results since the last tick, and of polls of this tick that answer at once."""
        watched, now_us = self._watched, self._clock.mono_us()
        if watched is None:
            return []
        new = [one for one in watched.members if one.collect(now_us)]
        if watched.has_several_primaries():
            # Split brain only if both are primaries at the same moment: poll once more, at once.
            for one in watched.nodes:
                one.poll_now(now_us)
        if not new and now_us - self._sent_us < INTERVAL_US:
            return []
        self._sent_us = now_us
        now = ClusterNow(
            self._clock.wall_us(), watched.name, tuple(one.now for one in watched.nodes),
            tuple(one.now for one in watched.poolers),
        )  # fmt: skip
        parts = [make_part(CLUSTER, now, at_us=now_us)]
        details = tuple(one.details for one in watched.nodes if one.details is not None)
        if details != self._details:
            self._details = details
            parts.append(make_part(DETAILS, ClusterDetails(details), at_us=now_us))
        return parts

    def close(self) -> None:
        for one in self._polled_clusters:
            one.close()

    def _identify_cluster(self, now_us: int) -> None:
        """Find the cluster by the system identifier, once it is known."""
        server = self._server.server
        if server is None or server.system_identifier is None:
            return
        while self._others:
            name, config = self._others.popitem()
            self._candidates.append(_MonitoredCluster(name, config, self._clock))
        for one in list(self._candidates):
            for asked in one.nodes:
                asked.collect(now_us)
            if server.system_identifier in one.identities:
                self._watched = one
            elif all(asked.now.answers for asked in one.nodes):
                self._candidates.remove(one)
                one.close()
            else:
                for asked in one.nodes:
                    asked.begin(now_us, CANDIDATE_INTERVAL_US)
        if self._watched is not None:
            for one in self._candidates:
                if one is not self._watched:
                    one.close()
            self._candidates = []


def _contains_target(cluster: ClusterConfig, target: Target) -> bool:
    """Return whether a node of the cluster has the address of the target."""
    own = _server_address(target.conninfo)
    return own is not None and any(_server_address(node.dsn) == own for node in cluster.nodes.values())


def _server_address(dsn: str) -> str | None:
    try:
        return address_of(dsn).server
    except UsageError:
        return None  # an invalid dsn is reported when the node is polled
