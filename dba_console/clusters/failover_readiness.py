"""Readiness for a failover to a standby: evidence about the primary, and the WAL that the promotion would lose.

Pure: a survey in, a list out. A primary that answers or rejects the role is running: a failed check. What is not known
counts against the promotion: a standby that is still connected to the primary, a node that may have more WAL.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from dba_console.actions.identity import STANDBY
from dba_console.clusters.cluster_check import ClusterCheck, failed, lsn_text, ok, parse_lsn, unknown, warning
from dba_console.clusters.cutover_readiness import check_no_cutover
from dba_console.clusters.failover_conditions import as_warnings, check_fence, check_managers, failover_conditions
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.primary_evidence import check_primary, check_receivers, silent_primary
from dba_console.clusters.survey import Survey
from dba_console.core.config import ClusterConfig
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.drawing.time_formats import date_and_time

FRESH_S = 5.0
"""Age of the last observation of the primary up to which it counts as the end of its WAL."""


class PromotionLoss(Struct, frozen=True, kw_only=True):
    """Minimum loss of a promotion of the target. None: unknown."""

    bytes: int | None = None
    """WAL that the primary had written when it last answered, and the target has not received: at least this is lost.
    It is the loss only if `seen_us` is a few seconds ago."""
    seconds: float | None = None
    """From the last commit on the target to the last answer of the primary; 0 if no byte is lost."""
    seen_us: int | None = None
    """When the primary last answered; later writes are unknown. Wall time, microseconds since 1970."""


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


def failover_readiness(found: Survey, to: str, config: ClusterConfig) -> list[ClusterCheck]:
    """Return the checks of a failover to the node `to`."""
    target = found.node(to)
    if target is None:
        names = ", ".join(node.name for node in found.nodes)
        return [failed("target", f"cluster {found.cluster} has no node {to}", fix=f"use one of: {names}")]
    checks = [*as_warnings(check_no_cutover(found)), *check_primary(found, to)]
    if not target.reached or target.role != STANDBY:
        if not target.reached:
            checks.append(failed("target", f"{to} does not answer: {target.error}", breaks="it cannot be promoted"))
        return checks
    for each in (check_managers, check_receivers, _check_timelines, _check_most_wal, _check_loss, failover_conditions):
        checks += each(found, target)
    return [*checks, *check_fence(found, config)]


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
    end, old = received_position(target), silent_primary(found)
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
        names = ", ".join(not_read)
        yield unknown("ahead.unseen", f"the position of {names} is unknown", breaks="it may have more WAL",
                      fix=f"start {names}, or make it answer, and compare again")  # fmt: skip
    if not (ahead or not_read):
        yield ok("ahead", f"{target.name} has received the most WAL: {', '.join(shown)}")


def _check_loss(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    lost = estimate_loss(found, target)
    fix = "the end of its WAL is read when the old primary is kept down and its data directory can be read"
    breaks = "commits that clients got an answer to may be missing afterwards"
    if lost.bytes is None or lost.seen_us is None or found.seen is None:
        why = "this host has no record of it" if found.seen is None else "it was last seen on another timeline"
        yield warning("loss", f"the loss is unknown: the end of WAL of the primary is unknown, {why}", breaks=breaks,
                      fix=fix)  # fmt: skip
        return
    age_s = loss_age_s(lost, target.asked_us)
    seen = f"{found.seen.node} was last seen {human_duration(age_s)} ago, at {found.seen.lsn}"
    seconds = "" if not lost.seconds else f", commits of {human_duration(lost.seconds)}"
    lacks = f"{lost.bytes} bytes ({human_bytes(lost.bytes)}) of WAL{seconds}"
    if age_s > FRESH_S:
        yield warning("loss", f"the loss is unknown: {seen}. {target.name} lacks {lacks} up to there, and everything "
                      "that was written later", breaks=breaks, fix=fix)  # fmt: skip
    elif lost.bytes == 0:
        yield ok("loss", f"{target.name} has all WAL up to {found.seen.lsn}; {seen}")
    else:
        yield warning("loss", f"{target.name} lacks {lacks}; {seen}", breaks=breaks, fix=fix)


def loss_age_s(lost: PromotionLoss, now_us: int) -> float:
    """Return how old the observation is that the loss is computed from, in seconds."""
    return max(0.0, (now_us - (lost.seen_us or 0)) / 1e6)
