"""Readiness for a failover to a standby: evidence that the primary is dead, and the WAL that the promotion would lose.

Pure: a survey in, a list out. A primary that answers, starts up or rejects the role is alive: a failed check.
A node that may have more WAL than the target and does not answer is `unknown`, and unknown is never ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from dba_console.actions.identity import STANDBY
from dba_console.clusters import current_conditions
from dba_console.clusters.cluster_check import ClusterCheck, failed, lsn_text, ok, parse_lsn, unknown, warning
from dba_console.clusters.cluster_managers import find_managers
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey, find_upstream
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.panels.time_formats import date_and_time

SILENT_S = 5.0
"""Age of the last message at which a standby's connection to the primary still counts as alive. A walreceiver closes a
silent connection only after wal_receiver_timeout, by default 60 s (PostgreSQL documentation, "Replication")."""
_ALIVE_FAILURES = {
    "starting": "it starts up, or shuts down",
    "no_slots": "it runs, and has no free connection",
    "auth": "it runs, and rejects this role",
}
"""By kind of connection failure."""


class PromotionLoss(Struct, frozen=True, kw_only=True):
    """Minimum loss of a promotion of the target. None: unknown."""

    bytes: int | None = None
    """WAL that the primary had written when it last answered, and the target has not received."""
    seconds: float | None = None
    """From the last commit on the target to the last answer of the primary; 0 if no byte is lost."""
    seen_us: int | None = None
    """When the primary last answered; later writes are unknown. Wall time, microseconds since 1970."""


def dead_primary(found: Survey) -> NodeState | None:
    """Return the node that was the primary and does not answer: the last known primary, or the standbys' upstream."""
    silent = [node for node in found.nodes if not node.reached]
    if found.seen is not None and (last := found.node(found.seen.node)) in silent:
        return last
    upstream = {one.name for node in found.nodes if (one := find_upstream(found, node)) is not None and one in silent}
    if len(upstream) == 1:
        return found.node(upstream.pop())
    return silent[0] if len(silent) == 1 else None


def received_position(node: NodeState) -> int | None:
    """Return the end of the WAL a standby has, in bytes from 0/0, including WAL replayed from an archive."""
    positions = [parse_lsn(lsn) for lsn in (node.lsn, node.replayed_lsn) if lsn is not None]
    return max(positions, default=None)


def estimate_loss(found: Survey, target: NodeState) -> PromotionLoss:
    """Return the minimum loss, compared with the last known position of the primary on the target's timeline."""
    last_primary, end = found.seen, received_position(target)
    if (
        last_primary is None
        or end is None
        or None in (last_primary.timeline, target.timeline)
        or last_primary.timeline != target.timeline
    ):
        return PromotionLoss()
    lost = max(0, parse_lsn(last_primary.lsn) - end)
    if lost == 0:
        return PromotionLoss(bytes=0, seconds=0.0, seen_us=last_primary.at_us)
    if target.replayed_ago_s is None:
        return PromotionLoss(bytes=lost, seen_us=last_primary.at_us)
    committed_us = target.asked_us - int(target.replayed_ago_s * 1e6)
    return PromotionLoss(
        bytes=lost, seconds=max(0.0, (last_primary.at_us - committed_us) / 1e6), seen_us=last_primary.at_us
    )


def failover_readiness(found: Survey, to: str) -> list[ClusterCheck]:
    """Return the checks of a failover to the node `to`."""
    target = found.node(to)
    if target is None:
        names = ", ".join(node.name for node in found.nodes)
        return [failed("target", f"cluster {found.cluster} has no node {to}", fix=f"use one of: {names}")]
    checks = list(_check_primary_is_dead(found, to))
    if not target.reached or target.role != STANDBY:
        if not target.reached:
            checks.append(failed("target", f"{to} does not answer: {target.error}", breaks="it cannot be promoted"))
        return checks
    for each in (_check_wal_receivers, _check_timelines, _check_most_wal, _check_loss, _check_replay, _check_managers):
        checks += each(found, target)
    checks += _as_warnings(current_conditions.check_synchronous_standbys(found, target))
    checks += _as_warnings(current_conditions.check_disks(found, target))
    return checks


def _as_warnings(checks: Iterable[ClusterCheck]) -> Iterator[ClusterCheck]:
    """Return failed checks as warnings: the cluster is already down."""
    for one in checks:
        yield one if one.state == "ok" else structs.replace(one, state="warning")


def _check_managers(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    for one in find_managers(found):
        if one.is_active:
            yield failed(f"managed.{one.kind.lower()}", f"{one.kind} manages this cluster: {one.evidence}",
                         breaks="it may promote another node: two primaries",
                         fix=f"find out why it has not failed over: {one.status}")  # fmt: skip


def _check_primary_is_dead(found: Survey, to: str) -> Iterator[ClusterCheck]:
    """Check from this host that no node answers as primary, and that the old one fails as a dead server does."""
    for node in found.primaries:
        fix = f"dba-console runbook run cutover --input cluster={found.cluster} --input to={to}"
        where = f"{node.name} answers as the primary at {node.lsn or '?'}"
        if node.name == to:
            yield failed("primary", f"{to} is already the primary, at {node.lsn or '?'}")
        else:
            yield failed("primary", where, breaks="a promotion would make two primaries", fix=fix)
    if found.primaries:
        return
    old = dead_primary(found)
    if old is None:
        silent = [node.name for node in found.nodes if not node.reached]
        why = "every node answers, and none as a primary" if not silent else f"no answer from {', '.join(silent)}"
        yield unknown("primary", f"which node was the primary is unknown: {why}",
                      breaks="the node to fence is unknown",
                      fix="grant pg_monitor to the role: primary_conninfo of the standbys names it")  # fmt: skip
        return
    if (alive := _ALIVE_FAILURES.get(old.failure)) is not None:
        yield failed("primary", f"{old.name} is not dead: {alive}: {old.error}",
                     breaks="it could accept writes after the promotion: two primaries",
                     fix="wait for it, or stop it first")  # fmt: skip
    elif old.failure == "refused":
        yield ok("primary", f"{old.name} is down as seen from this host: {old.error}")
    else:
        yield warning("primary", f"{old.name} does not answer this host: {old.error}",
                      breaks="the network may be partitioned, and clients may still write to it: two primaries",
                      fix=f"fence {old.name} before the promotion: stop it, cut its power or its network")  # fmt: skip


def _check_wal_receivers(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Check the connection of each standby to the primary: a view from other hosts."""
    for node in found.nodes:
        if node.role != STANDBY:
            continue
        receiver = node.receiver
        name, source = f"view.{node.name}", find_upstream(found, node)
        if receiver is None and "receiver" not in node.unknown:
            yield ok(name, f"{node.name} receives no WAL: its WAL receiver has no connection")
        elif receiver is None or receiver.get("status") is None:
            yield unknown(name, f"this role may not see the WAL receiver of {node.name}",
                          breaks="it may still receive from a running primary",
                          fix="grant pg_monitor to the role")  # fmt: skip
        elif source is not None and source.role == STANDBY:
            yield ok(name, f"{node.name} receives from {source.name}, which is a standby")
        else:
            age = receiver.get("last_message_s")
            shown = "at an unknown time" if age is None else f"{human_duration(age)} ago"
            text = f"the WAL receiver of {node.name} is {receiver['status']}, last message {shown}"
            if age is not None and age <= SILENT_S:
                yield failed(name, text, breaks="the primary runs, and this host cannot reach it: two primaries",
                             fix="check the network between this host and the primary")  # fmt: skip
            else:
                timeout = node.settings.get("wal_receiver_timeout")
                until = "" if timeout is None else f", after {human_duration(int(timeout) / 1000)} without a message"
                yield unknown(name, text, breaks="the primary may be running",
                              fix=f"wait until {node.name} closes the connection{until}")  # fmt: skip


def _check_timelines(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    standbys = [node for node in found.nodes if node.role == STANDBY]
    last_primary = found.seen
    identifiers_known = [node.system_identifier for node in standbys] + (
        [last_primary.system_identifier] if last_primary else []
    )
    identifiers = sorted({one for one in identifiers_known if one is not None})
    if len(identifiers) > 1:
        yield failed("identity", f"the nodes have several system identifiers: {', '.join(identifiers)}",
                     breaks="they are not one cluster", fix="correct the dsn of the nodes")  # fmt: skip
    if target.timeline is None:
        yield unknown("timeline", f"this role may not read the timeline of {target.name}",
                      fix="grant execute on function pg_control_checkpoint() to the role")  # fmt: skip
        return
    newer = {node.name: node.timeline for node in standbys if (node.timeline or 0) > target.timeline}
    if last_primary is not None and (last_primary.timeline or 0) > target.timeline:
        newer[f"{last_primary.node} (last seen at {date_and_time(last_primary.at_us)})"] = last_primary.timeline
    if newer:
        others = ", ".join(f"{name} on {timeline}" for name, timeline in newer.items())
        yield failed("timeline", f"{target.name} is on timeline {target.timeline}, {others}",
                     breaks="every commit after the last promotion would be lost",
                     fix="fail over to a standby on the newest timeline")  # fmt: skip
    else:
        yield ok("timeline", f"{target.name} is on timeline {target.timeline}, the newest known")


def _check_most_wal(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    end, old = received_position(target), dead_primary(found)
    if end is None:
        yield unknown("ahead", f"the position of {target.name} is unknown", breaks="others may have more WAL")
        return
    shown = [f"{target.name} {lsn_text(end)}"]
    ahead: list[tuple[int, str]] = []
    not_read: list[str] = []
    for node in found.nodes:
        if node is target or node is old:
            continue
        theirs = received_position(node) if node.role == STANDBY else None
        if theirs is None:
            not_read.append(node.name)
        elif node.timeline == target.timeline:
            shown.append(f"{node.name} {lsn_text(theirs)}")
            if theirs > end:
                ahead.append((theirs - end, node.name))
    if ahead:
        more, name = max(ahead)
        yield failed("ahead", f"{name} has {human_bytes(more)} more WAL than {target.name}: {', '.join(shown)}",
                     breaks=f"these commits would be lost, and {name} could not follow {target.name}",
                     fix=f"fail over to {name}")  # fmt: skip
    if not_read:
        yield unknown("ahead.unseen", f"the position of {', '.join(not_read)} is unknown", breaks="may have more WAL")
    if not (ahead or not_read):
        yield ok("ahead", f"{target.name} has received the most WAL: {', '.join(shown)}")


def _check_loss(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    lost = estimate_loss(found, target)
    if lost.bytes is None or lost.seen_us is None or found.seen is None:
        why = "this host has no record of it" if found.seen is None else "it was last seen on another timeline"
        yield warning("loss", f"the position of the primary, and so the data loss, is unknown: {why}",
                      breaks="acknowledged commits may be missing afterwards",
                      fix="run `dba-console cluster check` from cron: it records the primary's position")  # fmt: skip
        return
    last = f"{found.seen.node} was last seen at {date_and_time(lost.seen_us)}, at {found.seen.lsn}"
    after = f"{last}: later writes are unknown"
    if lost.bytes == 0:
        yield ok("loss", f"{target.name} has all WAL up to that position; {after}")
    else:
        seconds = "" if lost.seconds is None else f", commits of {human_duration(lost.seconds)}"
        lacks = f"{lost.bytes} bytes ({human_bytes(lost.bytes)}){seconds}"
        yield warning("loss", f"{target.name} lacks at least {lacks}; {after}",
                      breaks="these commits are lost, although clients got an answer to COMMIT")  # fmt: skip


def _check_replay(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    if target.lsn is None or target.replayed_lsn is None:
        return
    left = human_bytes(max(0, parse_lsn(target.lsn) - parse_lsn(target.replayed_lsn)))
    paused = ", and its replay is paused: the promotion resumes it" if target.replay_paused else ""
    yield ok("replay", f"{target.name} has {left} to replay before it accepts writes{paused}")
