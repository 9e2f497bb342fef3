"""What a promotion in a failover does besides that of a cutover: it looks for signs of the old primary, shows the loss,
and marks the new primary."""

from __future__ import annotations

from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Control
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_mark import PROMOTED, mark_statement, new_mark, removal_statement
from dba_console.clusters.cutover_plan import save_plan
from dba_console.clusters.steps.fence_dead_primary import standby_position
from dba_console.clusters.steps.make_plan import SUPERUSER
from dba_console.clusters.steps.old_primary_alive import running_reason
from dba_console.clusters.steps.prove_archiving import keep_unarchived
from dba_console.clusters.steps.step import Cutover, NothingChanged, remaining_seconds
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration

WAIT_S = 1.0
MARK_S = 5.0
"""Time limit for writing the mark: clients wait."""


def last_checks(at: Cutover, timeout_s: float, control: Control) -> Cutover:
    """Ask the old primary and every standby again, and keep WAL for the archive. Raises NothingChanged.

    Waits a while for a standby that is still connected: it closes a silent connection.
    """
    why: str | None = None
    for _left in remaining_seconds(at.context, timeout_s):
        why, may_close = running_reason(at) or (None, False)
        if why is None:
            break
        control.report_progress(why)
        if not may_close or control.wait(WAIT_S):
            break
    if why is not None:
        raise NothingChanged(f"{why}; nothing was promoted", hint="stop it or cut it off, or abort and let it run")
    position, known = standby_position(at), at.plan.failover
    if known.end_lsn and at.plan.lost_bytes == 0:  # fetched, but perhaps not replayed yet
        position = max(position, parse_lsn(known.end_lsn))
    return at._replace(plan=keep_unarchived(at, position))


def loss_text(at: Cutover) -> str:
    """Return what is known of the loss, with its age: exact only if the end of the old primary's WAL was read."""
    plan, known = at.plan, at.plan.failover
    if plan.lost_bytes is not None:
        return f"{plan.lost_bytes} bytes of WAL are lost: the WAL of {plan.old} ends at {known.end_lsn}"
    if not known.seen_us:
        return f"The data loss is unknown: this host has no record of {plan.old}"
    age = human_duration((at.context.clock.wall_us() - known.seen_us) / 1e6)
    least = "an unknown part" if known.least_lost is None else f"{known.least_lost} bytes of WAL"
    return (f"The data loss is unknown: {plan.old} was last seen {age} ago, {plan.to} lacks {least} up to then, and "
            "everything that was written later")  # fmt: skip


def mark_failover(at: Cutover, connection: ActingConnection) -> str | None:
    """Mark the failover on the new primary, in place of the cutover that it took over; return why it is not marked.

    Its debts are in the mark: what an interrupted cutover left, and the poolers that are paused.
    """
    plan, before = at.plan, at.plan.failover.taken_over
    try:
        [role] = connection.rows(SUPERUSER)
        mark = replace(
            new_mark(plan, role["who"], at.context), stage=PROMOTED, limits=plan.limits, poolers=plan.databases,
            settings=plan.pooler_settings, held_since_us=None if before is None else before.held_since_us,
        )  # fmt: skip
        save_plan(at.context, replace(plan, mark=mark))  # it must be known before it is written
        others = [] if before is None or before.role == mark.role else [removal_statement(before)]
        connection.set_parameter("synchronous_commit", "local")  # no standby follows yet
        connection.execute_change("; ".join([*others, mark_statement(mark)]), timeout_s=MARK_S)
    except ConsoleError as error:
        return clean(redact(f"other operators do not see this failover: {error.message}"))
    return None
