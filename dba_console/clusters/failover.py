"""Can a standby take over from a primary that is dead? The evidence that it is, and what the promotion would lose.

Pure: a survey in, a list out. A primary that answers, starts up or refuses the role is alive: that is a failure here.
A node that may have more WAL than the target and does not answer is `unknown`, and unknown is never ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from dba_console.actions.identity import STANDBY
from dba_console.clusters import host_checks, moment
from dba_console.clusters.checks import Check, failed, lsn_text, ok, position, unknown, warning
from dba_console.clusters.follow import leads_to
from dba_console.clusters.managers import recognise
from dba_console.clusters.node import NodeState
from dba_console.clusters.survey import Survey
from dba_console.panels.times import moment as shown_moment
from dba_console.units import human_bytes, human_duration

SILENT_S = 5.0
"""Age of the last message at which a standby's connection to the primary still counts as alive. A walreceiver closes a
silent connection only after wal_receiver_timeout, by default 60 s (PostgreSQL documentation, "Replication")."""
_ALIVE = {
    "starting": "it starts up, or shuts down",
    "no_slots": "it lives, and has no connection left",
    "auth": "it lives, and does not let this role in",
}
"""By the kind of a failed connection."""


class Loss(Struct, frozen=True, kw_only=True):
    """What a promotion of the target would lose, as far as it is known. None: unknown."""

    bytes: int | None = None
    """WAL the primary had written when it was last seen and the target has not received."""
    seconds: float | None = None
    """From the last commit on the target to the moment the primary was last seen; 0 where no byte is lost."""
    seen_us: int | None = None
    """When the primary was last seen: what it wrote afterwards is not known. Wall time, microseconds since 1970."""


def dead_primary(found: Survey) -> NodeState | None:
    """Return the node that was the primary and does not answer: last seen as such, or the upstream of the standbys."""
    silent = [node for node in found.nodes if not node.reached]
    if found.seen is not None and (last := found.node(found.seen.node)) in silent:
        return last
    upstream = {one.name for node in found.nodes if (one := leads_to(found, node)) is not None and one in silent}
    if len(upstream) == 1:
        return found.node(upstream.pop())
    return silent[0] if len(silent) == 1 else None


def received(node: NodeState) -> int | None:
    """Return the end of the WAL a standby has, in bytes from 0/0: what it replayed from an archive counts as well."""
    known = [position(lsn) for lsn in (node.lsn, node.replayed_lsn) if lsn is not None]
    return max(known, default=None)


def most_advanced(found: Survey) -> NodeState | None:
    """Return the standby with the most WAL on the newest timeline of those that answer; None where none is known."""
    known = [node for node in found.nodes if node.role == STANDBY and received(node) is not None]
    return max(known, key=lambda node: (node.timeline or 0, received(node) or 0), default=None)


def loss(found: Survey, target: NodeState) -> Loss:
    """Return what is lost at least, compared with where the primary was last seen on the target's timeline."""
    seen, end = found.seen, received(target)
    if seen is None or end is None or None in (seen.timeline, target.timeline) or seen.timeline != target.timeline:
        return Loss()
    lost = max(0, position(seen.lsn) - end)
    if lost == 0:
        return Loss(bytes=0, seconds=0.0, seen_us=seen.at_us)
    if target.replayed_ago_s is None:
        return Loss(bytes=lost, seen_us=seen.at_us)
    committed_us = target.asked_us - int(target.replayed_ago_s * 1e6)
    return Loss(bytes=lost, seconds=max(0.0, (seen.at_us - committed_us) / 1e6), seen_us=seen.at_us)


def failover_readiness(found: Survey, to: str) -> list[Check]:
    """Every condition of a failover to the node `to`."""
    target = found.node(to)
    if target is None:
        known = ", ".join(node.name for node in found.nodes)
        return [failed("target", f"cluster {found.cluster} has no node {to}", fix=f"use one of: {known}")]
    checks = list(_dead(found, to))
    if not target.reached or target.role != STANDBY:
        if not target.reached:
            checks.append(failed("target", f"{to} does not answer: {target.error}", breaks="it cannot be promoted"))
        return checks
    for each in (_views, _timelines, _ahead, _lost, _replay, _managed):
        checks += each(found, target)
    checks += _warnings(moment.synchronous(found, target))
    checks += _warnings(host_checks.disks(found, target))
    return checks


def _warnings(checks: Iterable[Check]) -> Iterator[Check]:
    """What would refuse a cutover is a warning here: the cluster is down already."""
    for one in checks:
        yield one if one.state == "ok" else structs.replace(one, state="warning")


def _managed(found: Survey, target: NodeState) -> Iterator[Check]:
    for one in recognise(found):
        if one.acts:
            yield failed(f"managed.{one.kind.lower()}", f"{one.kind} manages this cluster: {one.evidence}",
                         breaks="it promotes by itself, perhaps another node: two primaries",
                         fix=f"find out why it has not failed over: {one.status}")  # fmt: skip


def _dead(found: Survey, to: str) -> Iterator[Check]:
    """From this host: no node answers as a primary, and the old one fails in a way that a dead server does."""
    for node in found.primaries:
        fix = f"dba-console runbook run cutover --input cluster={found.cluster} --input to={to}"
        where = f"{node.name} answers as the primary at {node.lsn or '?'}"
        if node.name == to:
            yield failed("primary", f"{to} is the primary already, at {node.lsn or '?'}")
        else:
            yield failed("primary", where, breaks="a promotion would make two primaries", fix=fix)
    if found.primaries:
        return
    old = dead_primary(found)
    if old is None:
        silent = [node.name for node in found.nodes if not node.reached]
        why = "every node answers, and none as a primary" if not silent else f"no answer from {', '.join(silent)}"
        yield unknown("primary", f"which node was the primary is unknown: {why}",
                      breaks="what has to be fenced is not known",
                      fix="grant pg_monitor to the role: primary_conninfo of the standbys names it")  # fmt: skip
        return
    if (alive := _ALIVE.get(old.failure)) is not None:
        yield failed("primary", f"{old.name} is not dead: {alive}: {old.error}",
                     breaks="it could accept writes after the promotion: two primaries",
                     fix="wait for it, or stop it first")  # fmt: skip
    elif old.failure == "refused":
        yield ok("primary", f"{old.name} is down as seen from this host: {old.error}")
    else:
        yield warning("primary", f"{old.name} does not answer this host: {old.error}",
                      breaks="the link may be cut, and clients elsewhere may still write to it: two primaries",
                      fix=f"fence {old.name} before the promotion: stop it, cut its power or its network")  # fmt: skip


def _views(found: Survey, target: NodeState) -> Iterator[Check]:
    """What each standby has of the primary: a second place to see it from."""
    for node in found.nodes:
        if node.role != STANDBY:
            continue
        receiver = node.receiver
        name, source = f"view.{node.name}", leads_to(found, node)
        if receiver is None and "receiver" not in node.unknown:
            yield ok(name, f"{node.name} receives no WAL: its WAL receiver has no connection")
        elif receiver is None or receiver.get("status") is None:
            yield unknown(name, f"this role does not see the WAL receiver of {node.name}",
                          breaks="it may still receive from a primary that lives",
                          fix="grant pg_monitor to the role")  # fmt: skip
        elif source is not None and source.role == STANDBY:
            yield ok(name, f"{node.name} receives from {source.name}, which is a standby")
        else:
            age = receiver.get("last_message_s")
            shown = "at an unknown time" if age is None else f"{human_duration(age)} ago"
            text = f"the WAL receiver of {node.name} is {receiver['status']}, last message {shown}"
            if age is not None and age <= SILENT_S:
                yield failed(name, text, breaks="the primary lives, and this host does not reach it: two primaries",
                             fix="find out what lies between this host and the primary")  # fmt: skip
            else:
                timeout = node.settings.get("wal_receiver_timeout")
                until = "" if timeout is None else f", after {human_duration(int(timeout) / 1000)} without a message"
                yield unknown(name, text, breaks="the primary may live",
                              fix=f"wait until {node.name} closes the connection{until}")  # fmt: skip


def _timelines(found: Survey, target: NodeState) -> Iterator[Check]:
    standbys = [node for node in found.nodes if node.role == STANDBY]
    seen = found.seen
    known = [node.system_identifier for node in standbys] + ([seen.system_identifier] if seen else [])
    identifiers = sorted({one for one in known if one is not None})
    if len(identifiers) > 1:
        yield failed("identity", f"the nodes have several system identifiers: {', '.join(identifiers)}",
                     breaks="they are not one cluster", fix="correct the dsn of the nodes")  # fmt: skip
    if target.timeline is None:
        yield unknown("timeline", f"the timeline of {target.name} may not be read",
                      fix="grant execute on function pg_control_checkpoint() to the role")  # fmt: skip
        return
    newer = {node.name: node.timeline for node in standbys if (node.timeline or 0) > target.timeline}
    if seen is not None and (seen.timeline or 0) > target.timeline:
        newer[f"{seen.node} (last seen at {shown_moment(seen.at_us)})"] = seen.timeline
    if newer:
        others = ", ".join(f"{name} on {timeline}" for name, timeline in newer.items())
        yield failed("timeline", f"{target.name} is on timeline {target.timeline}, {others}",
                     breaks="every commit after the last promotion would be lost",
                     fix="name a standby on the newest timeline")  # fmt: skip
    else:
        yield ok("timeline", f"{target.name} is on timeline {target.timeline}, the newest known")


def _ahead(found: Survey, target: NodeState) -> Iterator[Check]:
    end, old = received(target), dead_primary(found)
    if end is None:
        yield unknown("ahead", f"how far {target.name} is was not seen", breaks="another standby may have more")
        return
    shown = [f"{target.name} {lsn_text(end)}"]
    ahead: list[tuple[int, str]] = []
    unseen: list[str] = []
    for node in found.nodes:
        if node is target or node is old:
            continue
        theirs = received(node) if node.role == STANDBY else None
        if theirs is None:
            unseen.append(node.name)
        elif node.timeline == target.timeline:
            shown.append(f"{node.name} {lsn_text(theirs)}")
            if theirs > end:
                ahead.append((theirs - end, node.name))
    if ahead:
        more, name = max(ahead)
        yield failed("ahead", f"{name} has {human_bytes(more)} of WAL more than {target.name}: {', '.join(shown)}",
                     breaks=f"these commits would be lost, and {name} could not follow {target.name}",
                     fix=f"fail over to {name}")  # fmt: skip
    if unseen:
        yield unknown("ahead.unseen", f"how far {', '.join(unseen)} is was not seen", breaks="it may have more WAL")
    if not (ahead or unseen):
        yield ok("ahead", f"{target.name} has the most WAL received: {', '.join(shown)}")


def _lost(found: Survey, target: NodeState) -> Iterator[Check]:
    lost = loss(found, target)
    if lost.bytes is None or lost.seen_us is None or found.seen is None:
        why = "the primary was never seen from here" if found.seen is None else "it was last seen on another timeline"
        yield warning("loss", f"what would be lost is unknown: {why}",
                      breaks="commits that were acknowledged may be missing afterwards",
                      fix="run `dba-console cluster check` from cron: it keeps where the primary was")  # fmt: skip
        return
    last = f"{found.seen.node} was last seen at {shown_moment(lost.seen_us)}, at {found.seen.lsn}"
    after = f"{last}: what it wrote later is unknown"
    if lost.bytes == 0:
        yield ok("loss", f"{target.name} has everything up to there; {after}")
    else:
        seconds = "" if lost.seconds is None else f", commits of {human_duration(lost.seconds)}"
        lacks = f"{lost.bytes} bytes ({human_bytes(lost.bytes)}){seconds}"
        yield warning("loss", f"{target.name} lacks at least {lacks}; {after}",
                      breaks="these commits are lost, also where a client was sent their COMMIT")  # fmt: skip


def _replay(found: Survey, target: NodeState) -> Iterator[Check]:
    if target.lsn is None or target.replayed_lsn is None:
        return
    left = human_bytes(max(0, position(target.lsn) - position(target.replayed_lsn)))
    paused = ", and its replay is paused: the promotion resumes it" if target.replay_paused else ""
    yield ok("replay", f"{target.name} has {left} to replay before it accepts writes{paused}")
