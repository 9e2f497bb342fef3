"""Evidence whether the primary still runs: from this host, and from the standbys' connections to it. Pure.

Silence proves nothing: an idle primary sends a message only every wal_sender_timeout / 2 (30 s by default). A standby
closes a silent connection after wal_receiver_timeout. Until then its evidence is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.actions.identity import STANDBY
from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey, find_upstream
from dba_console.core.units import human_duration

RECENT_S = 5.0
"""A message from the primary of this age or less proves that it was running then."""
_RUNNING = {"no_slots": "it has no free connection", "auth": "it rejects this role"}
"""By kind of connection failure."""
_UNANSWERED = {"timeout": "time-out", "unknown_host": "its name cannot be resolved"}


def silent_primary(found: Survey) -> NodeState | None:
    """Return the node that was the primary and does not answer: the last known primary, or the standbys' upstream."""
    silent = [node for node in found.nodes if not node.reached]
    if found.seen is not None and (last := found.node(found.seen.node)) in silent:
        return last
    upstream = {one.name for node in found.nodes if (one := find_upstream(found, node)) is not None and one in silent}
    if len(upstream) == 1:
        return found.node(upstream.pop())
    return silent[0] if len(silent) == 1 else None


def check_primary(found: Survey, to: str) -> Iterator[ClusterCheck]:
    """Check from this host that no node answers as primary, and how the old one fails to answer."""
    for node in found.primaries:
        fix = f"dba-console runbook run cutover --input cluster={found.cluster} --input to={to}"
        where = f"{node.name} answers as the primary at {node.lsn or '?'}"
        if node.name == to:
            yield failed("primary", f"{to} is already the primary, at {node.lsn or '?'}")
        else:
            yield failed("primary", where, breaks="a promotion would make two primaries", fix=fix)
    if found.primaries:
        return
    old = silent_primary(found)
    if old is None:
        silent = [node.name for node in found.nodes if not node.reached]
        why = "every node answers, and none as a primary" if not silent else f"no answer from {', '.join(silent)}"
        yield failed("primary", f"which node was the primary is unknown: {why}",
                     breaks="the node to keep down is unknown",
                     fix="grant pg_monitor to the role: primary_conninfo of the standbys names it")  # fmt: skip
    elif (runs := _RUNNING.get(old.failure)) is not None:
        yield failed("primary", f"{old.name} is running: {runs}: {old.error}",
                     breaks="it could accept writes after the promotion: two primaries",
                     fix=f"connect to {old.name}, or stop it first")  # fmt: skip
    elif old.failure == "starting":
        yield _starting_check(found, old)
    elif old.failure == "refused":
        yield ok("primary", f"no server answers at the address of {old.name}: {old.error}")
    else:
        why = _UNANSWERED.get(old.failure, "no connection")
        yield warning("primary", f"{old.name} does not answer ({why}): {old.error}",
                      breaks="the network may be partitioned, and clients may still write to it: two primaries",
                      fix=f"power off {old.name} or detach its network before the promotion")  # fmt: skip


def _starting_check(found: Survey, old: NodeState) -> ClusterCheck:
    if "shutting down" in old.error:
        return unknown("primary", f"{old.name} is shutting down: {old.error}", breaks="it may be started again",
                       fix="wait until it is down")  # fmt: skip
    progress = "" if found.recovery is None else f": {found.recovery.text}"
    return unknown("primary", f"{old.name} is recovering from a crash{progress} ({old.error})",
                   breaks="it accepts writes as soon as its recovery ends: two primaries",
                   fix="wait: nothing is lost when it is back. If that takes too long, fail over")  # fmt: skip


def check_receivers(found: Survey, target: NodeState | None = None) -> Iterator[ClusterCheck]:
    """Check the connection of each standby to the primary: evidence from other hosts."""
    for node in found.nodes:
        if node.role != STANDBY:
            continue
        receiver = node.receiver
        name = f"view.{node.name}"
        if receiver is None and "receiver" not in node.unknown:
            yield ok(name, f"{node.name} receives no WAL: its WAL receiver has no connection")
        elif receiver is None or receiver.get("status") is None:
            yield unknown(name, f"this role may not see the WAL receiver of {node.name}",
                          breaks="it may still receive from a running primary",
                          fix="grant pg_monitor to the role")  # fmt: skip
        elif (above := _standby_above(found, node)) is not None:
            yield ok(name, f"{node.name} receives from {above}, which is a standby")
        else:
            yield _connected_check(name, node, receiver.get("last_message_s"))


def _standby_above(found: Survey, node: NodeState) -> str | None:
    """Return the standby that a node receives from, by its address, else by its name among that standby's receivers."""
    if (source := find_upstream(found, node)) is not None:
        return source.name if source.role == STANDBY else None
    name = (node.upstream or {}).get("application_name") or node.settings.get("cluster_name") or "walreceiver"
    for one in found.nodes:
        receivers = {each.get("application_name") for each in one.standbys or ()}
        if one is not node and one.role == STANDBY and receivers & {name, node.name}:
            return one.name
    return None


def _connected_check(name: str, node: NodeState, age_s: float | None) -> ClusterCheck:
    shown = "at an unknown time" if age_s is None else f"{human_duration(age_s)} ago"
    text = f"the WAL receiver of {node.name} is connected to the primary, last message {shown}"
    if age_s is not None and age_s <= RECENT_S:
        return failed(name, text, breaks="the primary was running then: two primaries",
                      fix="check the network between this host and the primary, then repeat this check")  # fmt: skip
    left_s = closes_in_s(node)
    if left_s is None:
        until = f"wal_receiver_timeout of {node.name} is 0: it never closes a silent connection"
    else:
        until = f"wait: {node.name} closes a silent connection in {human_duration(left_s)}"
    return unknown(name, text, breaks="the primary may be running", fix=until)


def last_messages(found: Survey) -> dict[str, float]:
    """Return when each standby that is connected to a primary received its last message, by the clock of its server."""
    messages = {}
    for node in found.nodes:
        receiver = node.receiver or {}
        if node.role == STANDBY and _standby_above(found, node) is None and receiver.get("last_message_at") is not None:
            messages[node.name] = float(receiver["last_message_at"])
    return messages


def message_reason(found: Survey, before: dict[str, float]) -> str | None:
    """Return which standby received a message after `before`, from `last_messages`: proof that the primary runs.

    A standby that was not connected before and is now has connected to it since.
    """
    for name, at in last_messages(found).items():
        if name not in before or at > before[name]:
            return f"{name} received a message from the primary after this began: the primary is running"
    return None


def closes_in_s(node: NodeState) -> float | None:
    """Return when the standby closes its silent connection, in seconds. None: never, or the setting is unknown."""
    timeout_s = int(node.settings.get("wal_receiver_timeout", "0")) / 1000
    age_s = (node.receiver or {}).get("last_message_s")
    return max(0.0, timeout_s - (age_s or 0.0)) if timeout_s else None
