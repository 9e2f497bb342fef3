"""Signs that the old primary of a failover runs, read again right before the promotion."""

from __future__ import annotations

from typing import NamedTuple

from dba_console.actions.identity import STANDBY
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.primary_evidence import check_primary, closes_in_s, last_messages, message_reason
from dba_console.clusters.steps.step import Cutover
from dba_console.clusters.survey import Survey, survey
from dba_console.core.errors import ConsoleError
from dba_console.core.units import human_duration


class RunningReason(NamedTuple):
    """Why the old primary may be running."""

    text: str
    may_close: bool = False
    """It is only an open connection of a standby, which closes if the primary stays silent."""


def running_reason(at: Cutover) -> RunningReason | None:
    """Return why the old primary may be running; None: nothing shows that. Asks every node, and the host if fenced.

    A server that was proven stopped and has standby.signal may be started by its supervisor: as a standby only.
    """
    plan, found = at.plan, survey(at.plan.cluster, at.config, at.context.clock)
    if (primary := _other_primary(at, found)) is not None:
        return RunningReason(f"{primary}: a promotion would make two primaries")
    for node in found.nodes:
        if (node.timeline or 0) > plan.timeline and node.name != plan.to:
            return RunningReason(f"{node.name} is on timeline {node.timeline}: another node was promoted meanwhile")
    if plan.failover.fenced:
        return _unfenced_reason(at)
    old = found.node(plan.old)
    if old is not None and old.role != STANDBY:
        alone = _with_old_only(found, old)
        if state := next((one for one in check_primary(alone, plan.to) if one.state in ("failed", "unknown")), None):
            return RunningReason(state.text)
    if (message := message_reason(found, plan.failover.messages)) is not None:
        return RunningReason(message)
    if plan.failover.overridden:
        return None
    return next((why for node in found.nodes if (why := _open_connection(found, node)) is not None), None)


def other_primary(at: Cutover) -> str | None:
    """Return which node beside the new primary answers as primary; None: none does."""
    return _other_primary(at, survey(at.plan.cluster, at.config, at.context.clock))


def _other_primary(at: Cutover, found: Survey) -> str | None:
    others = (node for node in found.primaries if node.name != at.plan.to)
    return next((f"{node.name} answers as the primary at {node.lsn or '?'}" for node in others), None)


def _with_old_only(found: Survey, old: NodeState) -> Survey:
    return Survey(cluster=found.cluster, nodes=(old,), recovery=found.recovery)


def _unfenced_reason(at: Cutover) -> RunningReason | None:
    """Check that standby.signal is still there; a host that cannot be reached any more has been read before."""
    try:
        server = at.control(at.plan.old)
        if server.is_fenced():
            return None
        state = "it runs" if server.running() else "it is stopped"
        return RunningReason(f"{at.plan.old} can start as a primary: its standby.signal was removed, and {state}")
    except ConsoleError:
        return None


def _open_connection(found: Survey, node: NodeState) -> RunningReason | None:
    """Return that a standby is still connected to the old primary."""
    if node.name not in last_messages(found):
        return None
    left_s = closes_in_s(node)
    closes = "it never closes a silent connection" if left_s is None else f"it closes in {human_duration(left_s)}"
    text = f"{node.name} is connected to the primary, which may be running: {closes}"
    return RunningReason(text, may_close=left_s is not None)
