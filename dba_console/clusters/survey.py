"""Survey of a cluster: the state of all nodes, hosts and poolers, read in parallel; and upstreams of standbys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from dba_console.actions.identity import PRIMARY
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_plan import node_address
from dba_console.clusters.host_facts import HostState, read_host
from dba_console.clusters.last_primary import LastPrimary, load_last_primary, save_last_primary
from dba_console.clusters.node_state import NodeState, read_node
from dba_console.clusters.pooler_file import check_file
from dba_console.clusters.pooler_state import PoolerState, read_pooler
from dba_console.clusters.recovery_progress import RecoveryProgress, read_recovery
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.subject.readings import STANDBY_MINIMUM_SETTINGS, CutoverMark
from dba_console.core.clock import Clock
from dba_console.core.config import ClusterConfig
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

TIMEOUT_S = 15.0
"""Total timeout: each query has its own timeout, but name resolution has only this one."""


class Survey(Struct, frozen=True, kw_only=True):
    """The state of a cluster at one time. Nodes and poolers are in the order of the configuration."""

    cluster: str
    nodes: tuple[NodeState, ...]
    poolers: tuple[PoolerState, ...] = ()
    took_s: float = 0.0
    hosts: dict[str, HostState] = {}
    """Node name -> host, of the nodes that answer; empty without a target."""
    clients_configured: bool = True
    """Whether the configuration has how clients connect, for the heartbeat."""
    seen: LastPrimary | None = None
    """The last known primary, if none answers now."""
    recovery: RecoveryProgress | None = None
    """Progress of the last known primary, if it starts up; None: it does not, or its host cannot be read."""

    @property
    def primaries(self) -> list[NodeState]:
        return [node for node in self.nodes if node.role == PRIMARY]

    @property
    def cutover(self) -> CutoverMark | None:
        """The cutover in progress: as the primary has it, without one as any node has it."""
        asked = self.primaries or self.nodes
        return next((node.cutover for node in asked if node.cutover is not None), None)

    def node(self, name: str) -> NodeState | None:
        return next((node for node in self.nodes if node.name == name), None)


def survey(name: str, config: ClusterConfig, clock: Clock, *, to: str | None = None) -> Survey:
    """Read every node and pooler. Never raises; takes as long as the slowest, at most TIMEOUT_S.

    `to` also reads what the readiness checks for that node need: without it many of them are unknown.
    """
    started_us, wall_us = clock.mono_us(), clock.wall_us()
    nodes: dict[str, NodeState] = {}
    poolers: dict[str, PoolerState] = {}

    def ask_node(one: str) -> None:
        try:
            nodes[one] = read_node(one, config.nodes[one], clock, detailed=to is not None)
        except Exception as error:  # not a PostgreSQL server: an unexpected answer
            nodes[one] = NodeState(name=one, error=_unreadable(error), asked_us=wall_us, failure="other")

    def ask_pooler(one: str) -> None:
        try:
            poolers[one] = read_pooler(one, config.poolers[one], clock, detailed=to is not None)
        except Exception as error:
            poolers[one] = PoolerState(name=one, error=_unreadable(error), asked_us=wall_us)

    until_us = started_us + int(TIMEOUT_S * 1e6)
    calls = [partial(ask_node, one) for one in config.nodes] + [partial(ask_pooler, one) for one in config.poolers]
    _run_in_parallel(calls, clock, until_us)
    timeout_text = f"no answer within {TIMEOUT_S:g} s"
    answers = tuple(nodes.get(one) or NodeState(name=one, error=timeout_text, asked_us=wall_us) for one in config.nodes)
    answers = _read_primary_last(answers, config, clock)
    hosts: dict[str, HostState] = {}
    seen = None if any(node.role == PRIMARY for node in answers) else load_last_primary(name)
    recovery = None
    if to is not None:
        recovery = _read_recovery(answers, config, seen, clock)
        _read_hosts(hosts, poolers, answers, config, to, clock, until_us)
    return Survey(
        cluster=name,
        hosts={node.name: hosts[node.name] for node in answers if node.name in hosts},
        nodes=answers,
        poolers=tuple(
            poolers.get(one) or PoolerState(name=one, error=timeout_text, asked_us=wall_us) for one in config.poolers
        ),
        clients_configured=config.clients is not None,
        took_s=(clock.mono_us() - started_us) / 1e6,
        seen=seen,
        recovery=recovery,
    )


def _read_recovery(
    nodes: Sequence[NodeState], config: ClusterConfig, seen: LastPrimary | None, clock: Clock
) -> RecoveryProgress | None:
    starting = [node.name for node in nodes if node.failure == "starting"]
    if len(starting) != 1:
        return None
    name = starting[0]
    directory = config.nodes[name].data_directory or (seen.data_directory if seen and seen.node == name else None)
    if directory is None:
        return None
    try:
        return read_recovery(ServerControl(name, config.nodes[name], directory, None, clock))
    except (ConsoleError, OSError):
        return None


def _read_primary_last(nodes: tuple[NodeState, ...], config: ClusterConfig, clock: Clock) -> tuple[NodeState, ...]:
    """Read the position of the primary again if a standby seems to be further: it may have been asked later."""
    primaries = [node for node in nodes if node.role == PRIMARY]
    if len(primaries) != 1 or not any(ahead_of(primaries[0], node) for node in nodes):
        return nodes
    again = read_node(primaries[0].name, config.nodes[primaries[0].name], clock)
    if again.role != PRIMARY:
        return nodes
    later = msgspec.structs.replace(primaries[0], lsn=again.lsn)
    return tuple(later if node is primaries[0] else node for node in nodes)


def ahead_of(primary: NodeState, node: NodeState) -> bool:
    """Whether a standby has replayed more than the primary had written when each was read."""
    if node is primary or primary.lsn is None or node.replayed_lsn is None:
        return False
    return parse_lsn(node.replayed_lsn) > parse_lsn(primary.lsn)


def _unreadable(error: Exception) -> str:
    return clean(redact(f"its answer cannot be read: {type(error).__name__}: {error}"[:300]))


def _read_hosts(
    hosts: dict[str, HostState],
    poolers: dict[str, PoolerState],
    nodes: Sequence[NodeState],
    config: ClusterConfig,
    to: str,
    clock: Clock,
    until_us: int,
) -> None:
    """Read hosts and pooler files, which depends on which node is the primary."""
    target = next((node for node in nodes if node.name == to and node.reached), None)

    def ask(node: NodeState) -> None:
        other = None if node is target else target
        try:
            hosts[node.name] = read_host(node, config.nodes[node.name], other, clock)
        except Exception as error:
            hosts[node.name] = HostState(error=_unreadable(error), name=config.nodes[node.name].ssh or "this host")

    primaries = [node.name for node in nodes if node.role == PRIMARY]

    def ask_file(name: str) -> None:
        one = config.poolers[name]
        try:
            old, new = (node_address(config.nodes[node]) for node in (primaries[0], to))
            check_file(name, one, one.databases or [each.name for each in poolers[name].databases], old, new, clock)
        except (ConsoleError, OSError) as error:
            why = clean(redact(str(error).partition("\n")[0]))
            poolers[name] = msgspec.structs.replace(poolers[name], config_error=why)

    calls = [partial(ask, node) for node in nodes if node.reached]
    if len(primaries) == 1 and target is not None:
        calls += [partial(ask_file, name) for name, one in poolers.items() if one.reached and one.config is not None]
    _run_in_parallel(calls, clock, until_us)


def _run_in_parallel(calls: Iterable[Callable[[], None]], clock: Clock, until_us: int) -> None:
    # Daemon threads: one that hangs in name resolution must not prevent the command from ending.
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, (until_us - clock.mono_us()) / 1e6))


def save_primary_position(found: Survey) -> None:
    """Save the primary's position, for a failover. Raises OSError or ConsoleError."""
    if len(found.primaries) == 1 and (lsn := found.primaries[0].lsn) is not None:
        one = found.primaries[0]
        save_last_primary(
            LastPrimary(
                cluster=found.cluster, node=one.name, at_us=one.asked_us, lsn=lsn, timeline=one.timeline,
                system_identifier=one.system_identifier, data_directory=one.data_directory,
                settings={key: one.settings[key] for key in STANDBY_MINIMUM_SETTINGS if key in one.settings},
                last_archived=(one.archive or {}).get("last_archived_wal"),
            )
        )  # fmt: skip


# Upstream of a standby, by the address of its WAL receiver or its primary_conninfo. Pure.


def find_upstream(found: Survey, node: NodeState) -> NodeState | None:
    """Return the node that `node` receives WAL from; None: its address is unknown, or matches no node or several.

    A host may have several names. If none is known here, a port that only one node has decides.
    """
    receiver, upstream = node.receiver or {}, node.upstream or {}
    if receiver.get("sender_port"):
        hosts, port = {str(receiver["sender_host"])}, str(receiver["sender_port"])
    else:
        port = upstream.get("port", "5432")
        hosts = {one for key in ("host", "hostaddr") for one in upstream.get(key, "").split(",") if one}
    if not hosts:
        return None
    others = [one for one in found.nodes if one is not node]
    same_port = [one for one in others if any(port == its for _, its in one.places)]
    exact = [one for one in same_port if any((host, port) in one.places for host in hosts)]
    fits = exact or same_port
    return fits[0] if len(fits) == 1 else None
