"""Rules about the configured cluster: two primaries or none, standbys that cannot follow, nodes that do not answer.

Only a node's current answer counts as its state; an earlier answer does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dba_console.clusters.subject.panel import cutover_of, cutover_text, node_at, only_primary, release_text, sender_of
from dba_console.clusters.subject.readings import ClusterDetails, ClusterNow, NodeNow, PoolerNow
from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.findings.rule import Family, Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Judgement, Measured, RuleThresholds
from dba_console.watch.lsn import lsn_text


class ClusterLimits(RuleThresholds, frozen=True):
    """`[findings.cluster]`."""

    family = "cluster"

    unreachable_s: Judgement[float] = 10.0
    """A node or pooler has not answered for this long: most restarts are over by then, but not the shutdown checkpoint
    of large shared_buffers."""
    follow_s: Judgement[float] = 10.0
    """A standby that could follow the primary's timeline has not done so for this long."""
    paused_s: Judgement[float] = 60.0
    """A pooler's database has been paused for this long; the pause of a cutover is over by then."""
    held_s: Measured[float] = 15.0
    """A cutover has held clients for this long: ten times what one usually takes."""


PART = "cluster"
REPLAY_BYTES = 16 << 20
"""WAL of a standby, not replayed yet, that is named: one segment."""


def split_brain(s: RuleContext) -> Iterator[Signal]:
    """Two nodes answer as primary with the same system identifier: each accepts commits that the other does not have.
    This includes an old primary that an operator or its supervisor started again.

    A server stops being a primary only by a restart, which ends its connections. So two are primaries at the same time
    if each answered as primary before the other was last queried, each on a connection that is still open. During a
    cutover the old primary was last queried before the new one answers as primary, and nothing is raised.
    """
    now = s.picture.now(PART, ClusterNow)
    if now is None:
        return
    found: dict[str, NodeNow] = {}
    for one, other in combinations(_primaries(now.nodes), 2):
        same = one.started_us == other.started_us  # two names of one server
        if one.system_identifier == other.system_identifier and not same and _overlap(one, other):
            found |= {one.name: one, other.name: other}
    if found:
        yield _split_brain_signal(now, sorted(found.values(), key=lambda one: (one.timeline or 0, one.role_from_us)))


def _primaries(nodes: Sequence[NodeNow]) -> list[NodeNow]:
    return [one for one in nodes if one.answers and one.role == "primary" and one.system_identifier is not None]


def _overlap(one: NodeNow, other: NodeNow) -> bool:
    return max(one.role_from_us, other.role_from_us) <= min(one.asked_us, other.asked_us)


def _split_brain_signal(now: ClusterNow, nodes: Sequence[NodeNow]) -> Signal:
    names = " and ".join(clean(one.name) for one in nodes)
    where = ", ".join(f"{clean(one.name)} on timeline {one.timeline} at {lsn_text(one.lsn)}" for one in nodes)
    text = f"Split brain in {clean(now.name)}: {names} both answer as primary of system identifier "
    text += f"{nodes[0].system_identifier}: {where}"
    newest, later = nodes[-1], max(nodes, key=lambda one: one.role_from_us)
    if later is not newest and later.timeline != newest.timeline:
        text += f"; {clean(later.name)} is an old primary that was started again"
    text += "".join(f"; standby {clean(one.name)} is on timeline {one.timeline}" for one in _standbys(now, newest))
    routes = _pooler_routes(now, nodes)
    text += f"; {'; '.join(routes)}" if routes else "; no pooler routes to either" if now.poolers else ""
    return Signal(
        severity="critical",
        subject=now.name,
        text=text,
        evidence={
            "nodes": [clean(one.name) for one in nodes],
            "system_identifier": nodes[0].system_identifier,
            "timelines": [str(one.timeline) for one in nodes],
            "lsns": [lsn_text(one.lsn) or "?" for one in nodes],
            "poolers": routes,
        },
        runbook="split-brain",
        advice="Decide which primary stays. Let no client write to the other: pause the poolers that route to it, stop "
        "it and its supervisor; keep its data directory until the commits that only it has are known.",
    )


def _standbys(now: ClusterNow, primary: NodeNow) -> list[NodeNow]:
    return [
        one
        for one in now.nodes
        if one.answers and one.role == "standby" and one.system_identifier == primary.system_identifier
    ]


def _pooler_routes(now: ClusterNow, nodes: Sequence[NodeNow]) -> list[str]:
    """Return the node that each pooler routes its clients to."""
    names = {one.name for one in nodes}
    routes: dict[tuple[str, str], list[str]] = {}
    for pooler in now.poolers:
        for one in pooler.databases:
            node = node_at(now.nodes, one.host, one.port)
            if node in names and not pooler.error:
                routes.setdefault((pooler.name, node), []).append(one.name)
    return [
        f"clients of pooler {clean(pooler)} ({clean(', '.join(databases))}) are routed to {clean(node)}"
        for (pooler, node), databases in routes.items()
    ]


def dead_timeline(s: RuleContext) -> Iterator[Signal]:
    """A standby is on another timeline than the primary. Critical at once if it replayed its timeline past the point
    where the primary's history left it: it can no longer follow. A warning if it could follow and has not for ten
    seconds, or if the history cannot be read (needs EXECUTE on `pg_read_file`). While there are two primaries,
    `split-brain` names the standbys.
    """
    now = s.picture.now(PART, ClusterNow)
    if now is None:
        return
    memo = s.memo("dead-timeline")
    primary = only_primary(now.nodes)
    apart = [] if primary is None else [one for one in _standbys(now, primary) if _on_other_timeline(one, primary)]
    for gone in memo.keys() - {one.name for one in apart}:
        del memo[gone]
    for one in apart:
        assert primary is not None
        since_us = memo.setdefault(one.name, s.mono_us)
        why = _cannot_follow_reason(s, one, primary)
        if why or s.mono_us - since_us >= s.limits.of(ClusterLimits).follow_s * 1e6:
            yield _dead_timeline_signal(one, primary, why)


def _on_other_timeline(one: NodeNow, primary: NodeNow) -> bool:
    return None not in (one.timeline, primary.timeline, primary.system_identifier) and one.timeline != primary.timeline


def _cannot_follow_reason(s: RuleContext, one: NodeNow, primary: NodeNow) -> str:
    """Return why it can never follow; empty if that is not proven."""
    replayed = one.replayed_lsn
    ends = timeline_ends(_timeline_history(s, primary))
    if ends is None or replayed is None:
        if replayed is not None and primary.lsn is not None and replayed > primary.lsn:
            return f"it has replayed up to {lsn_text(replayed)}, further than {clean(primary.name)} has written"
        return ""
    if one.timeline not in ends:
        return f"timeline {one.timeline} is not in the history of {clean(primary.name)}"
    if replayed > ends[one.timeline]:
        return f"it has replayed up to {lsn_text(replayed)}, and that timeline ended at {lsn_text(ends[one.timeline])}"
    return ""


def _timeline_history(s: RuleContext, primary: NodeNow) -> str | None:
    details = s.picture.now("cluster.details", ClusterDetails)
    found = [] if details is None else [one for one in details.nodes if one.name == primary.name]
    # A history read before the last promotion is that of another timeline.
    return found[0].history if found and found[0].at_us >= primary.role_from_us else None


def timeline_ends(history: str | None) -> dict[int, int] | None:
    """Return where each timeline of a history file ended; None if not known.

    >>> timeline_ends("1\\t0/3000060\\tno recovery target specified\\n\\n2\\t0/5000148\\tx\\n")
    {1: 50331744, 2: 83886408}
    """
    if history is None:
        return None
    ends: dict[int, int] = {}
    for line in history.splitlines():
        number, _, rest = line.strip().partition("\t")
        high, slash, low = rest.partition("\t")[0].strip().partition("/")
        try:
            ends[int(number)] = (int(high, 16) << 32) + int(low, 16)
        except ValueError:
            if slash and not line.startswith("#"):
                return None
    return ends


def _dead_timeline_signal(one: NodeNow, primary: NodeNow, why: str) -> Signal:
    text = (
        f"Standby {clean(one.name)} is on timeline {one.timeline} at {lsn_text(one.lsn)}, primary "
        f"{clean(primary.name)} on timeline {primary.timeline} at {lsn_text(primary.lsn)}"
    )
    return Signal(
        severity="critical" if why else "warning",
        subject=one.name,
        text=f"{text}: it cannot follow, {why}" if why else f"{text}: it does not follow",
        evidence={
            "timeline": one.timeline,
            "primary_timeline": primary.timeline,
            "replayed_lsn": lsn_text(one.replayed_lsn),
            "primary_lsn": lsn_text(primary.lsn),
            "receiver": one.receiver,
        },
        runbook="standby-rebuild" if why else None,
        advice="Use pg_rewind against the primary, or rebuild it from a base backup."
        if why
        else "Check that its primary_conninfo points to the primary, and recovery_target_timeline is latest.",
    )


def standby_differs(s: RuleContext) -> Iterator[Signal]:
    """A standby had replayed further than its primary has written, which was asked after it: a lag of 0 B is false, and
    their data differ. It replayed WAL that the primary does not have, as a former primary does that was not rewound.
    """
    now, memo = s.picture.now(PART, ClusterNow), s.memo("standby-differs")
    primary = None if now is None else only_primary(now.nodes)
    if now is None or primary is None or primary.lsn is None:
        memo.clear()
        return
    for one in _standbys(now, primary):
        earlier = [(at_us, lsn) for at_us, lsn in memo.get(one.name, ()) if at_us > primary.role_from_us]
        further = max((lsn for at_us, lsn in earlier if at_us < primary.asked_us), default=0)
        memo[one.name] = [*earlier, (one.at_us, one.replayed_lsn or 0)][-3:]
        if further > primary.lsn and one.timeline == primary.timeline:
            yield Signal(
                severity="critical",
                subject=one.name,
                text=f"Standby {clean(one.name)} has replayed up to {lsn_text(further)}, further than primary "
                f"{clean(primary.name)} has written, {lsn_text(primary.lsn)}: their data differ",
                evidence={
                    "replayed_lsn": lsn_text(further),
                    "primary_lsn": lsn_text(primary.lsn),
                    "timeline": one.timeline,
                },
                runbook="standby-rebuild",
                advice="Do not promote it, and let no reader use it. Rebuild it: pg_rewind, or a new base backup.",
            )


def node_unreachable(s: RuleContext) -> Iterator[Signal]:
    """A node or pooler of the cluster has not answered for ten seconds."""
    now = s.picture.now(PART, ClusterNow)
    if now is None:
        return
    asked: Sequence[NodeNow | PoolerNow] = (*now.nodes, *now.poolers)
    for one in asked:
        if (
            not one.error
            or one.since_us is None
            or s.now_us - one.since_us < s.limits.of(ClusterLimits).unreachable_s * 1e6
        ):
            continue
        node = one if isinstance(one, NodeNow) else None
        yield Signal(
            severity="warning",
            subject=f"pooler {one.name}" if node is None else one.name,
            text=f"{'Pooler' if node is None else 'Node'} {clean(one.name)} of {clean(now.name)} does not answer: "
            f"{clean(one.error)}",
            evidence={
                "error": clean(one.error),
                "since": rfc3339(one.since_us),
                "role": None if node is None else node.role,
                "last_lsn": None if node is None else lsn_text(node.lsn),
            },
            since_us=one.since_us,
            advice="Check whether it runs, and whether it is reachable from this host.",
        )


def no_primary(s: RuleContext) -> Iterator[Signal]:
    """No node has answered as primary for ten seconds, and no standby streams from one: writes are impossible. A
    primary that standbys still stream from is only unreachable from this host; `node-unreachable` names it.
    """
    now, memo = s.picture.now(PART, ClusterNow), s.memo("no-primary")
    if (
        now is None
        or _primaries(now.nodes)
        or not any(one.at_us for one in now.nodes)
        or _streams_from_other_server(now.nodes)
    ):
        memo.clear()
        return
    since_us, since_mono_us = memo.setdefault("since", (s.now_us, s.mono_us))
    if s.mono_us - since_mono_us < s.limits.of(ClusterLimits).unreachable_s * 1e6:
        return
    was = [one for one in now.nodes if one.role == "primary"]
    standbys = sorted((one for one in now.nodes if one.answers), key=_received_and_replayed, reverse=True)
    starting = [one for one in now.nodes if one.starting]
    text = f"No node of {clean(now.name)} is primary"
    text += "".join(f"; {clean(one.name)} was primary, at {lsn_text(one.lsn)}: {clean(one.error)}" for one in was)
    text += "".join(f"; {clean(one.name)} is starting: {clean(one.error)}" for one in starting if one not in was)
    text += "".join(f"; standby {clean(one.name)} has received up to {lsn_text(one.lsn)}{_to_replay(one)}"
                    for one in standbys)  # fmt: skip
    advice = "Start the old primary if it can be started: that loses nothing. Otherwise use the runbook failover."
    if starting:
        advice = f"{clean(starting[0].name)} is recovering from a crash, or starting: wait, nothing is lost then. "
        advice += "The runbook failover shows how far it is; go on with it only if the recovery takes too long."
    yield Signal(
        severity="critical",
        subject=now.name,
        text=text,
        evidence={
            "cluster": clean(now.name),
            "to": clean(standbys[0].name) if standbys else None,
            "was_primary": [clean(one.name) for one in was],
            "standbys": [clean(one.name) for one in standbys],
            "received_lsns": [lsn_text(one.lsn) or "?" for one in standbys],
        },
        since_us=since_us,
        runbook="failover",
        advice=advice,
    )


def _received_and_replayed(one: NodeNow) -> tuple[int, int]:
    return one.lsn or 0, one.replayed_lsn or 0


def _to_replay(one: NodeNow) -> str:
    """Return what a standby has still to replay, if that takes noticeable time."""
    left = (one.lsn or 0) - (one.replayed_lsn or one.lsn or 0)
    return f", {human_bytes(left)} of it not replayed" if left >= REPLAY_BYTES else ""


def _streams_from_other_server(nodes: Sequence[NodeNow]) -> bool:
    """Whether a standby streams from a server that is not one of the nodes that answer, or from an unseen sender."""
    there = [one for one in nodes if one.answers]
    return any(
        one.receiver_application is not None
        and one.receiver in (None, "streaming")
        and all(sender_of(other, one) is None for other in there)
        for one in there
    )


def pooler_paused(s: RuleContext) -> Iterator[Signal]:
    """A database of a pooler has been paused for a minute: its clients wait until it is resumed."""
    now = s.picture.now(PART, ClusterNow)
    for pooler in () if now is None else now.poolers:
        for one in () if pooler.error else pooler.databases:
            since_us = one.paused_since_us
            if not one.paused or since_us is None or s.now_us - since_us < s.limits.of(ClusterLimits).paused_s * 1e6:
                continue
            lasted = human_duration((s.now_us - since_us) / 1e6)
            yield Signal(
                severity="warning",
                subject=f"{pooler.name} {one.name}",
                text=f"Pooler {clean(pooler.name)} has had {clean(one.name)} paused for {lasted}: "
                f"{one.clients_waiting} clients wait",
                evidence={"paused_since": rfc3339(since_us), "clients_waiting": one.clients_waiting},
                since_us=since_us,
                advice=f"If no cutover is running: RESUME {clean(one.name)} in its admin console.",
            )


def clients_held(s: RuleContext) -> Iterator[Signal]:
    """A cutover has held clients for 15 seconds: poolers are paused, or databases accept no connections. It may wait
    for its operator, or its agent has ended.
    """
    now = s.picture.now(PART, ClusterNow)
    mark = None if now is None else cutover_of(now.nodes)
    if now is None or mark is None or mark.held_since_us is None:
        return
    held_s = (s.now_us - mark.held_since_us) / 1e6
    if held_s < s.limits.of(ClusterLimits).held_s:
        return
    waiting = sum(one.clients_waiting for pooler in now.poolers if not pooler.error for one in pooler.databases)
    yield Signal(
        severity="critical",
        subject=now.name,
        text=f"Clients of {clean(now.name)} are held for {human_duration(held_s)}, {waiting} wait in poolers: "
        f"{cutover_text(mark, rfc3339(mark.begun_us) or '?')}",
        evidence={
            "run": clean(mark.run),
            "host": clean(mark.host),
            "operator": clean(mark.operator),
            "held_since": rfc3339(mark.held_since_us),
            "clients_waiting": waiting,
        },
        since_us=mark.held_since_us,
        advice=f"Release them: {release_text(mark)}",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        name="split-brain",
        title="Two nodes of the cluster are primaries at the same time",
        parts=(PART,),
        check=split_brain,
        runbook="split-brain",
        clear_after_s=5.0,
        source="PostgreSQL: pg_is_in_recovery(), pg_control_system(); a role changes to standby only by a restart",
    ),
    Rule(
        name="dead-timeline",
        title="A standby is on a timeline that the primary has left",
        parts=(PART,),
        check=dead_timeline,
        runbook="standby-rebuild",
        clear_after_s=5.0,
        settings=(ClusterLimits.follow_s,),
        source="PostgreSQL: timelines (continuous-archiving), timeline history files",
    ),
    Rule(
        name="node-unreachable",
        title="A node or pooler of the cluster does not answer",
        parts=(PART,),
        check=node_unreachable,
        clear_after_s=0.0,
        settings=(ClusterLimits.unreachable_s,),
    ),
    Rule(
        name="no-primary",
        title="No node of the cluster is primary",
        parts=(PART,),
        check=no_primary,
        warm_up_s=10.0,
        clear_after_s=0.0,
        settings=(ClusterLimits.unreachable_s,),
        source="PostgreSQL: pg_is_in_recovery(), pg_stat_wal_receiver",
        runbook="failover",
    ),
    Rule(
        name="standby-differs",
        title="A standby is further than its primary",
        parts=(PART,),
        check=standby_differs,
        runbook="standby-rebuild",
        clear_after_s=5.0,
        source="PostgreSQL: pg_last_wal_replay_lsn(), pg_current_wal_lsn(); a standby has only WAL of its primary",
    ),
    Rule(
        name="clients-held",
        title="A cutover holds clients",
        parts=(PART,),
        check=clients_held,
        clear_after_s=0.0,
        settings=(ClusterLimits.held_s,),
        source="its mark on the nodes, pg_db_role_setting; PgBouncer: SHOW POOLS (cl_waiting)",
    ),
    Rule(
        name="pooler-paused",
        title="A database of a pooler stays paused",
        parts=(PART,),
        check=pooler_paused,
        clear_after_s=0.0,
        settings=(ClusterLimits.paused_s,),
        source="PgBouncer: PAUSE, SHOW DATABASES (usage)",
    ),
)

FAMILY = Family("The cluster", "cluster", RULES, (ClusterLimits,))
