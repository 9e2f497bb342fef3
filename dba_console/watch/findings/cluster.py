"""Rules about the configured cluster: two primaries or none, standbys that cannot follow, nodes that do not answer.

Only what a node answers counts as its state; what it answered before it fell silent does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.frames.cluster import node_at, only_primary, sender_of
from dba_console.watch.frames.replication import lsn_text
from dba_console.watch.samples.cluster import ClusterDetails, ClusterNow, NodeNow, PoolerNow

PART = "cluster"


def split_brain(s: RuleContext) -> Iterator[Signal]:
    """Two nodes answer as primary with the same system identifier: each takes commits that the other does not have.
    Also where one of them is an old primary that was started again, by an operator or its supervisor.

    A server stops being a primary by a restart alone, which ends its connections. So two are primaries at the same time
    where each answered as primary before the other was last asked, each on a connection that is still open. During a
    cutover the old primary has been asked for the last time before the new one answers as primary, and nothing is
    raised.
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
    led = _pooler_routes(now, nodes)
    text += f"; {'; '.join(led)}" if led else "; no pooler leads to either" if now.poolers else ""
    return Signal(
        severity="critical",
        subject=now.name,
        text=text,
        evidence={
            "nodes": [clean(one.name) for one in nodes],
            "system_identifier": nodes[0].system_identifier,
            "timelines": [str(one.timeline) for one in nodes],
            "lsns": [lsn_text(one.lsn) or "?" for one in nodes],
            "poolers": led,
        },
        advice="Decide which one stays. Let no client write to the other: pause the poolers that lead to it, stop it "
        "and what starts it; keep its data directory until what only it has is known.",
    )


def _standbys(now: ClusterNow, lead: NodeNow) -> list[NodeNow]:
    return [
        one
        for one in now.nodes
        if one.answers and one.role == "standby" and one.system_identifier == lead.system_identifier
    ]


def _pooler_routes(now: ClusterNow, nodes: Sequence[NodeNow]) -> list[str]:
    """Where each pooler's clients are led."""
    names = {one.name for one in nodes}
    led: dict[tuple[str, str], list[str]] = {}
    for pooler in now.poolers:
        for one in pooler.databases:
            node = node_at(now.nodes, one.host, one.port)
            if node in names and not pooler.error:
                led.setdefault((pooler.name, node), []).append(one.name)
    return [
        f"clients of pooler {clean(pooler)} ({clean(', '.join(databases))}) are led to {clean(node)}"
        for (pooler, node), databases in led.items()
    ]


def dead_timeline(s: RuleContext) -> Iterator[Signal]:
    """A standby on another timeline than the primary. Critical at once where it has replayed more of its timeline than
    became part of the primary's history: it cannot follow any more. A warning where it could follow and has not for ten
    seconds, or where the history may not be read (that takes EXECUTE on `pg_read_file`). While there are two primaries
    `split-brain` names the standbys.
    """
    now = s.picture.now(PART, ClusterNow)
    if now is None:
        return
    memo = s.memo("dead-timeline")
    lead = only_primary(now.nodes)
    apart = [] if lead is None else [one for one in _standbys(now, lead) if _on_other_timeline(one, lead)]
    for gone in memo.keys() - {one.name for one in apart}:
        del memo[gone]
    for one in apart:
        assert lead is not None
        since_us = memo.setdefault(one.name, s.mono_us)
        why = _cannot_follow_reason(s, one, lead)
        if why or s.mono_us - since_us >= s.limits.cluster.follow_s * 1e6:
            yield _dead_timeline_signal(one, lead, why)


def _on_other_timeline(one: NodeNow, lead: NodeNow) -> bool:
    return None not in (one.timeline, lead.timeline, lead.system_identifier) and one.timeline != lead.timeline


def _cannot_follow_reason(s: RuleContext, one: NodeNow, lead: NodeNow) -> str:
    """Why it can never follow, where that is certain."""
    replayed = one.replayed_lsn
    ends = timeline_ends(_timeline_history(s, lead))
    if ends is None or replayed is None:
        if replayed is not None and lead.lsn is not None and replayed > lead.lsn:
            return f"it has replayed up to {lsn_text(replayed)}, further than {clean(lead.name)} has written"
        return ""
    if one.timeline not in ends:
        return f"timeline {one.timeline} is not in the history of {clean(lead.name)}"
    if replayed > ends[one.timeline]:
        return f"it has replayed up to {lsn_text(replayed)}, and that timeline ended at {lsn_text(ends[one.timeline])}"
    return ""


def _timeline_history(s: RuleContext, lead: NodeNow) -> str | None:
    details = s.picture.now("cluster.details", ClusterDetails)
    found = [] if details is None else [one for one in details.nodes if one.name == lead.name]
    # Read before the last promotion it is that of another timeline.
    return found[0].history if found and found[0].at_us >= lead.role_from_us else None


def timeline_ends(history: str | None) -> dict[int, int] | None:
    """Where each timeline of a history file ended; None where it is not known.

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


def _dead_timeline_signal(one: NodeNow, lead: NodeNow, why: str) -> Signal:
    text = (
        f"Standby {clean(one.name)} is on timeline {one.timeline} at {lsn_text(one.lsn)}, primary {clean(lead.name)} "
        f"on timeline {lead.timeline} at {lsn_text(lead.lsn)}"
    )
    return Signal(
        severity="critical" if why else "warning",
        subject=one.name,
        text=f"{text}: it cannot follow, {why}" if why else f"{text}: it does not follow",
        evidence={
            "timeline": one.timeline,
            "primary_timeline": lead.timeline,
            "replayed_lsn": lsn_text(one.replayed_lsn),
            "primary_lsn": lsn_text(lead.lsn),
            "receiver": one.receiver,
        },
        advice="Use pg_rewind against the primary, or make it again from a base backup."
        if why
        else "See whether its primary_conninfo leads to the primary, and recovery_target_timeline is latest.",
    )


def node_unreachable(s: RuleContext) -> Iterator[Signal]:
    """A node or pooler of the cluster has not answered for ten seconds."""
    now = s.picture.now(PART, ClusterNow)
    if now is None:
        return
    asked: Sequence[NodeNow | PoolerNow] = (*now.nodes, *now.poolers)
    for one in asked:
        if not one.error or one.since_us is None or s.now_us - one.since_us < s.limits.cluster.unreachable_s * 1e6:
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
            advice="See whether it runs, and whether it can be reached from this host.",
        )


def no_primary(s: RuleContext) -> Iterator[Signal]:
    """No node has answered as primary for ten seconds, and no standby streams from one: nothing can be written. A
    primary that standbys still stream from is only out of reach from here, and `node-unreachable` names it.
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
    if s.mono_us - since_mono_us < s.limits.cluster.unreachable_s * 1e6:
        return
    was = [one for one in now.nodes if one.role == "primary"]
    standbys = sorted((one for one in now.nodes if one.answers), key=lambda one: one.lsn or 0, reverse=True)
    text = f"No node of {clean(now.name)} is primary"
    text += "".join(f"; {clean(one.name)} was, at {lsn_text(one.lsn)}: {clean(one.error)}" for one in was)
    text += "".join(f"; standby {clean(one.name)} has received up to {lsn_text(one.lsn)}" for one in standbys)
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
        advice="Start the old primary where it can be started: that loses nothing. Else the runbook failover.",
    )


def _streams_from_other_server(nodes: Sequence[NodeNow]) -> bool:
    """Whether a standby streams from a server that is none of the nodes that answer; so too where that is not seen."""
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
            if not one.paused or since_us is None or s.now_us - since_us < s.limits.cluster.paused_s * 1e6:
                continue
            lasted = human_duration((s.now_us - since_us) / 1e6)
            yield Signal(
                severity="warning",
                subject=f"{pooler.name} {one.name}",
                text=f"Pooler {clean(pooler.name)} has {clean(one.name)} paused for {lasted}: "
                f"{one.clients_waiting} clients wait",
                evidence={"paused_since": rfc3339(since_us), "clients_waiting": one.clients_waiting},
                since_us=since_us,
                advice=f"Where no cutover is under way: RESUME {clean(one.name)} in its admin console.",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        name="split-brain",
        title="Two nodes of the cluster are primaries at the same time",
        parts=(PART,),
        check=split_brain,
        clear_after_s=5.0,
        source="PostgreSQL: pg_is_in_recovery(), pg_control_system(); a role changes to standby by a restart alone",
    ),
    Rule(
        name="dead-timeline",
        title="A standby is on a timeline that the primary has left",
        parts=(PART,),
        check=dead_timeline,
        clear_after_s=5.0,
        settings=("cluster.follow_s",),
        source="PostgreSQL: timelines (continuous-archiving), timeline history files",
    ),
    Rule(
        name="node-unreachable",
        title="A node or pooler of the cluster does not answer",
        parts=(PART,),
        check=node_unreachable,
        clear_after_s=0.0,
        settings=("cluster.unreachable_s",),
    ),
    Rule(
        name="no-primary",
        title="No node of the cluster is primary",
        parts=(PART,),
        check=no_primary,
        warm_up_s=10.0,
        clear_after_s=0.0,
        settings=("cluster.unreachable_s",),
        source="PostgreSQL: pg_is_in_recovery(), pg_stat_wal_receiver",
        runbook="failover",
    ),
    Rule(
        name="pooler-paused",
        title="A pooler was left paused",
        parts=(PART,),
        check=pooler_paused,
        clear_after_s=0.0,
        settings=("cluster.paused_s",),
        source="PgBouncer: PAUSE, SHOW DATABASES (usage)",
    ),
)
