"""Cluster panel: roles, lag and differences of the configured nodes, and the servers their poolers lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from dba_console.clusters.subject.readings import (
    STANDBY_MINIMUM_SETTINGS,
    ClusterDetails,
    ClusterNow,
    CutoverMark,
    NodeDetails,
    NodeNow,
    PoolerDatabase,
    PoolerNow,
    Sender,
)
from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.lsn import lsn_distance, lsn_text
from dba_console.watch.panel import Panel, PanelFrame, Points


class NodeSlot(Struct, kw_only=True):
    name: str
    kind: str
    active: bool
    wal_status: str | None = None
    retained_bytes: int | None = None


class NodeRow(Struct, kw_only=True):
    """A server of the cluster. If `error` is set it does not answer, and the rest is from its last answer."""

    name: str
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    system_identifier: str | None = None
    version: str | None = None
    lsn: str | None = None
    """Written by a primary, received by a standby."""
    lag_bytes: int | None = None
    """Written by the primary and not replayed here; null unless exactly one primary answers."""
    lag_s: float | None = None
    age_s: float | None = None
    """Age of all of these numbers except archive_ready."""
    replay_paused: bool | None = None
    apply_delay_s: float | None = None
    """recovery_min_apply_delay; null if 0 or unknown."""
    receiver: str | None = None
    sync_state: str | None = None
    """As the primary reports it; null also if its WAL senders cannot be distinguished."""
    slots: list[NodeSlot] = []
    archive_ready: int | None = None
    archive_failing: bool | None = None
    archive_age_s: float | None = None
    """Age of archive_ready and archive_failing."""
    error: str | None = None
    since: str | None = None
    """RFC 3339: since when it does not answer."""


class PoolerRow(Struct, kw_only=True):
    """A database of a pooler; one row without a database if the pooler has never answered."""

    name: str
    database: str | None = None
    mode: str | None = None
    clients_active: int | None = None
    clients_waiting: int | None = None
    longest_wait_s: float | None = None
    servers: int | None = None
    paused: bool | None = None
    paused_since: str | None = None
    """RFC 3339: when it was first observed paused."""
    leads_to: str | None = None
    """host:port."""
    node: str | None = None
    """The node at that address; null if no node is reached under that address from here."""
    age_s: float | None = None
    error: str | None = None
    since: str | None = None


class ClusterPanel(PanelFrame, kw_only=True):
    name: str | None = None
    """As configured; null if the server belongs to no configured cluster."""
    primary: str | None = None
    """The only node that answers as primary; null if none or several do."""
    nodes: list[NodeRow] = []
    poolers: list[PoolerRow] = []
    differences: list[str] = []
    """Relevant differences between the nodes, in sentences."""
    cutover: CutoverMark | None = None
    """The cutover or failover in progress, also of another operator."""


# How they follow from what was read.

NOT_CONFIGURED = "the server is not a node of a configured cluster ([clusters.NAME] in the configuration)"


def derive_cluster(facts: PictureFacts) -> ClusterPanel:
    """Return the cluster panel; `unsupported` if the server belongs to no configured cluster."""
    picture = facts.picture
    now = picture.now("cluster", ClusterNow)
    if now is None and "cluster" not in picture.latest:
        return ClusterPanel(status="unsupported", note=NOT_CONFIGURED)
    panel = fill_status(ClusterPanel(), picture, "cluster")
    if now is None:
        return panel
    slow = picture.now("cluster.details", ClusterDetails)
    details = {} if slow is None else {one.name: one for one in slow.nodes}
    primary = only_primary(now.nodes)
    panel.name, panel.primary = now.name, None if primary is None else primary.name
    panel.nodes = [_node(one, primary, details.get(one.name), picture.mono_us) for one in now.nodes]
    for pooler in now.poolers:
        panel.poolers += _pooler(pooler, now.nodes, picture.mono_us)
    panel.differences = list(differences(now.nodes, details))
    panel.cutover = cutover_of(now.nodes)
    return panel


def cutover_of(nodes: Sequence[NodeNow]) -> CutoverMark | None:
    """Return the cutover in progress: as the primary has it, without one as any node that answers has it."""
    there = [one for one in nodes if one.answers]
    asked = [one for one in there if one.role == "primary"] or there
    return next((one.cutover for one in asked if one.cutover is not None), None)


def cutover_text(mark: CutoverMark, since: str) -> str:
    """Return the sentence about a cutover in progress; `since`: when it began, as shown to the reader."""
    by = mark.operator or "an unknown operator"
    return clean(
        f"a {mark.kind} of {mark.cluster} from {mark.old} to {mark.to} by {by} is in progress since {since}: "
        f"{mark.stage} (run {mark.run} on {mark.host})"
    )


MOST_NAMED = 5


def release_text(mark: CutoverMark) -> str:
    """Return how clients that the cutover holds are released."""
    by_hand = [
        f"on the admin console of {pooler}: RESUME {quote_identifier(database)}"
        for pooler, databases in mark.poolers.items()
        for database in databases
    ]
    by_hand += [f"ALTER DATABASE {quote_identifier(name)} CONNECTION LIMIT {n}" for name, n in mark.limits.items()]
    more = [f"and {len(by_hand) - MOST_NAMED} more"] if len(by_hand) > MOST_NAMED else []
    run = f"on {mark.host}, `dba-console runbook resume {mark.run}` finishes or aborts it and releases them"
    if not by_hand:
        return clean(run)
    return clean(f"{run}; if that run is lost and one node is primary: {'; '.join([*by_hand[:MOST_NAMED], *more])}")


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def only_primary(nodes: Sequence[NodeNow]) -> NodeNow | None:
    """Return the only node that answers as primary, None if none or several do."""
    found = [one for one in nodes if one.answers and one.role == "primary"]
    return found[0] if len(found) == 1 else None


def node_at(nodes: Sequence[NodeNow], host: str | None, port: str | None) -> str | None:
    """Return the node reached at that address from here, None if none or several are."""
    found = [one.name for one in nodes if f"{host}:{port}" in one.places]
    return found[0] if len(found) == 1 else None


def sender_of(primary: NodeNow, standby: NodeNow) -> Sender | None:
    """Return the primary's WAL sender for a standby: by slot, else by application name if it is unique."""
    if standby.role != "standby" or standby.receiver_application is None:
        return None
    if standby.receiver_slot is not None:
        return next((one for one in primary.senders if one.slot == standby.receiver_slot), None)
    named = [one for one in primary.senders if one.application == standby.receiver_application]
    return named[0] if len(named) == 1 else None


def differences(nodes: Sequence[NodeNow], details: Mapping[str, NodeDetails]) -> Iterator[str]:
    """Yield the differences between the nodes that matter for a cutover, in sentences."""
    known = [one for one in nodes if one.at_us]
    lead = only_primary(nodes) or next((one for one in known if one.role == "primary"), None)
    if lead is None:
        return
    for one in known:
        if one is lead:
            continue
        if one.answers and one.started_us == lead.started_us:
            yield f"{one.name} and {lead.name} are the same server"
            continue
        if None not in (one.system_identifier, lead.system_identifier) and (
            one.system_identifier != lead.system_identifier
        ):
            yield (
                f"{one.name} does not belong to this cluster: system identifier {one.system_identifier}, "
                f"{lead.name} has {lead.system_identifier}"
            )
            continue
        if one.version != lead.version:
            yield f"{one.name} runs PostgreSQL {one.version}, {lead.name} {lead.version}"
        if one.name in details and lead.name in details:
            yield from _weaker_settings(one.name, details[one.name].settings, lead.name, details[lead.name].settings)


def _weaker_settings(standby: str, its: Mapping[str, str], primary: str, wanted: Mapping[str, str]) -> Iterator[str]:
    for name in STANDBY_MINIMUM_SETTINGS:
        have, need = its.get(name), wanted.get(name)
        if have is not None and need is not None and int(have) < int(need):
            yield f"{name} is {have} on {standby}, {need} on {primary}: {standby} has the lower value"
    name = "shared_preload_libraries"
    if its.get(name) != wanted.get(name) and None not in (its.get(name), wanted.get(name)):
        yield f"{name} differ: {standby} {its[name] or '(none)'}, {primary} {wanted[name] or '(none)'}"


def _node(node: NodeNow, primary: NodeNow | None, details: NodeDetails | None, mono_us: int) -> NodeRow:
    row = NodeRow(
        name=node.name,
        role=node.role,
        timeline=node.timeline,
        system_identifier=node.system_identifier,
        version=node.version,
        lsn=lsn_text(node.lsn),
        age_s=_age_s(mono_us, node.at_us),
        replay_paused=node.replay_paused,
        receiver=node.receiver,
        slots=[NodeSlot(**asdict(one)) for one in node.slots],
        error=node.error or None,
        since=rfc3339(node.since_us) if node.error else None,
    )
    if details is not None:
        delay_ms = int(details.settings.get("recovery_min_apply_delay") or 0)
        row.apply_delay_s = delay_ms / 1000 if delay_ms and node.role == "standby" else None
        row.archive_ready, row.archive_failing = details.archive_ready, details.archive_failing
        row.archive_age_s = _age_s(mono_us, details.at_us)
    if primary is not None and node.role == "standby" and node.system_identifier == primary.system_identifier:
        sender = sender_of(primary, node)
        row.lag_bytes = lsn_distance(primary.lsn, node.replayed_lsn)
        row.lag_s = _lag_s(node, row.lag_bytes, sender)
        row.sync_state = None if sender is None else sender.sync_state
    return row


def _lag_s(node: NodeNow, lag_bytes: int | None, sender: Sender | None) -> float | None:
    """By the primary's clock if it reports lag; a standby that has replayed everything from a live stream has none."""
    if lag_bytes == 0:
        return 0.0
    if sender is not None and sender.replay_lag_s is not None:
        return sender.replay_lag_s
    return 0.0 if node.receiver == "streaming" and node.lsn == node.replayed_lsn else node.replayed_ago_s


def _pooler(pooler: PoolerNow, nodes: Sequence[NodeNow], mono_us: int) -> list[PoolerRow]:
    age_s = _age_s(mono_us, pooler.at_us)
    error, since = pooler.error or None, rfc3339(pooler.since_us) if pooler.error else None
    rows = [_pooled_row(pooler.name, one, nodes) for one in pooler.databases]
    rows += [PoolerRow(name=pooler.name, database=one, error="not listed by the pooler") for one in pooler.missing]
    rows = rows or [PoolerRow(name=pooler.name)]
    for row in rows:
        row.age_s, row.error, row.since = age_s, error or row.error, since
    return rows


def _pooled_row(pooler: str, one: PoolerDatabase, nodes: Sequence[NodeNow]) -> PoolerRow:
    return PoolerRow(
        name=pooler,
        database=one.name,
        mode=one.mode,
        clients_active=one.clients_active,
        clients_waiting=one.clients_waiting,
        longest_wait_s=one.longest_wait_s,
        servers=one.servers,
        paused=one.paused,
        paused_since=rfc3339(one.paused_since_us),
        leads_to=None if one.host is None else f"{one.host}:{one.port}",
        node=node_at(nodes, one.host, one.port),
    )


def _age_s(mono_us: int, at_us: int) -> float | None:
    return max(0.0, (mono_us - at_us) / 1e6) if at_us else None


def points(facts: PictureFacts) -> Points:
    """Return nothing: of a node only its last answer is kept."""
    return {}


PANEL = Panel(name="cluster", fields=ClusterPanel, derive=derive_cluster, points=points)
