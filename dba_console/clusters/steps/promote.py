"""The step cutover-promote, the point of no return: promote the new primary, and check it before clients reach it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_plan import CutoverPlan, save_plan
from dba_console.clusters.steps.failover_promotion import last_checks, loss_text, mark_failover
from dba_console.clusters.steps.manager_switchover import settle_switchover, switch_over, switchover_text
from dba_console.clusters.steps.old_primary_alive import running_reason
from dba_console.clusters.steps.second_primary import ask_other_nodes
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    CutoverStep,
    NothingChanged,
    TimedSettings,
    does_not_answer,
    remaining_seconds,
)
from dba_console.clusters.steps.stop_primary import SHUT_DOWN
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration, parse_duration

PAUSE_AGAIN_S = 2.0
"""Time to pause a resumed pooler again: its server is down, so no transaction is running."""
OTHERS_S = 0.5
"""Time for the other nodes to show that one of them was promoted: clients wait. One that is silent decides nothing."""
_POSITION = "SELECT pg_last_wal_replay_lsn()::text AS lsn, pg_is_wal_replay_paused() AS paused"
_PROMOTE = "SELECT pg_catalog.pg_promote(false)"


class PromoteSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "60s"
    """Maximum time of the promotion, as a duration."""
    switchover_timeout: Duration = "5m"
    """Maximum time of the switchover of a cluster manager, as a duration: it also stops the old primary."""


class Promote(CutoverStep):
    name: ClassVar[str] = "cutover-promote"
    summary: ClassVar[str] = (
        "Promotes the new primary, after checking again that the old one is shut down and no WAL is missing; then "
        "waits until it accepts writes on a new timeline. It cannot be reverted, except with another cutover. "
        "On a cluster managed by Patroni or repmgr it runs the manager's switchover instead, and reads the outcome "
        "from the nodes."
    )
    Settings: ClassVar[type[Struct]] = PromoteSettings

    def show(self, at: Cutover, settings: PromoteSettings) -> ActionPreview:
        plan = at.plan
        refusal = _other_promoted(at) or _promotion_refusal(at)
        try:
            with at.connect(plan.to) as (connection, now):
                if now.role == "primary" and now.timeline is not None and now.timeline > plan.timeline:
                    return ActionPreview(
                        text=f"{plan.to} is primary on timeline {now.timeline}.", exact="", done=plan.new_timeline > 0
                    )
                # Without its primary a standby reports the timeline of its last restartpoint, which may be older.
                if now.role != "standby" or (now.timeline or 0) > plan.timeline:
                    refusal = refusal or f"{plan.to} is a {now.role} on timeline {now.timeline}"
                else:
                    refusal = refusal or _replay_refusal(connection, plan)
        except ConnectError as error:
            refusal = refusal or does_not_answer(at, plan.to, error)
        text = f"{plan.to} becomes the primary of {plan.cluster}. This can only be reverted by another cutover."
        name = plan.to
        exact = f"on {plan.to}: SELECT pg_promote()"
        hint = f"abort: {plan.old} is started again and clients continue there, unless a node was promoted"
        if plan.kind == "failover":
            name = "unknown" if plan.lost_bytes is None else str(plan.lost_bytes)
            text = f"{plan.to} becomes the primary of {plan.cluster}. {loss_text(at)}."
            hint = (f"abort, if no promotion was tried: clients that wait are released, and {plan.old} may be started "
                    "as the primary again; the console does not start it")  # fmt: skip
        if plan.manager is not None:
            text = f"{plan.manager.kind} stops {plan.old} and promotes {plan.to}; only another cutover reverts this."
            exact, hint = switchover_text(plan.manager), f"abort: clients continue on {plan.old}"
        try:
            text = " ".join([text, *_held_text(at), *(f"{one}." for one in _resumed_poolers(at))])
        except ConsoleError as error:
            if plan.kind == "cutover":
                refusal = refusal or f"clients could not be connected to {plan.to}: {error.message}"
        return ActionPreview(
            text=text,
            exact=exact,
            values={"shutdown_lsn": plan.shutdown_lsn, "lost_bytes": plan.lost_bytes},
            name=name,
            destructive=True,
            refusal=refusal,
            hint=None if refusal is None else hint,
        )

    def do(self, at: Cutover, settings: PromoteSettings, control: Control) -> ActionResult:
        try:
            _pause_again(at, control)
        except ConsoleError as error:
            raise NothingChanged(f"{error.message}: nothing was promoted", hint=error.hint) from error
        try:
            if at.plan.manager is not None:
                timeout_s = parse_duration(settings.switchover_timeout)
                return _record_switchover(at, switch_over(at, at.plan.manager, timeout_s, control))
            return _promote(at, settings, control)
        except ConnectError as error:
            return ActionResult(state="failed", text=does_not_answer(at, at.plan.to, error, control))

    def find_outcome(self, at: Cutover, settings: PromoteSettings) -> ActionResult:
        if at.plan.manager is not None:
            timeout_s = parse_duration(settings.switchover_timeout)
            return _record_switchover(at, settle_switchover(at, at.plan.manager, timeout_s))
        with at.connect(at.plan.to) as (connection, now):
            if now.role == "primary":
                return _record_timeline(at, connection, now.timeline)
        return self.retry_result(
            f"{at.plan.to} is still in recovery: it was not promoted, or is not ready yet; see its server log. retry "
            "checks again and waits"
        )


def _promote(at: Cutover, settings: PromoteSettings, control: Control) -> ActionResult:
    with ExitStack() as opened:
        try:
            connection, now = opened.enter_context(at.connect(at.plan.to))
        except ConsoleError as error:
            raise NothingChanged(f"{error.message}: nothing was promoted", hint=error.hint) from error
        if now.role == "standby" and at.plan.kind == "failover":
            at = last_checks(at, settings.timeout_s, control)
        if now.role == "standby":
            connection.execute_change(_PROMOTE, transaction=False, timeout_s=10.0)
        for _left in remaining_seconds(at.context, settings.timeout_s):
            now = connection.read_identity()
            if now.role == "primary":
                return _record_timeline(at, connection, now.timeline)
            control.wait(POLL_S / 2)  # a promotion cannot be stopped, only waited for
    text = f"{at.plan.to} is still in recovery {settings.timeout} after pg_promote()"
    return ActionResult(state="unknown", text=f"{text}: see its server log; it may be promoted at any moment")


def _promotion_refusal(at: Cutover) -> str | None:
    """Return why promotion is refused, from the state of the old primary; None: not refused."""
    plan = at.plan
    if plan.kind == "failover":
        why, may_close = running_reason(at) or (None, False)
        return None if may_close else why  # it is waited for
    if plan.manager is not None:
        return None if plan.held_lsn else f"it is unknown whether {plan.to} has all WAL: cutover-gate has not passed"
    if not plan.shutdown_lsn:
        return f"the shutdown position of {plan.old} is unknown: cutover-gate has not passed"
    server = at.control(plan.old)
    found = server.control_file()
    if server.running() or found.state != SHUT_DOWN:
        return f"{plan.old} is no longer shut down: pg_control says {found.state}"
    if found.checkpoint_lsn != plan.shutdown_lsn:
        return f"{plan.old} was started since: its checkpoint is {found.checkpoint_lsn}, it was {plan.shutdown_lsn}"
    return None


def _other_promoted(at: Cutover) -> str | None:
    """Return that another node than the new primary was promoted; None: none has shown it.

    The gate asks for the preview again directly before the promotion, so it is not asked a third time then.
    """
    others = at._replace(
        plan=replace(at.plan, nodes={name: one for name, one in at.plan.nodes.items() if name != at.plan.to})
    )
    newer = "" if at.plan.new_timeline else ask_other_nodes(others, OTHERS_S).newer
    return f"{newer}: the promotion of {at.plan.to} would make two primaries" if newer else None


def _held_text(at: Cutover) -> list[str]:
    """Return for how long clients have been held; the panel of the cluster counts those that wait."""
    mark = at.plan.mark
    if mark is None or mark.held_since_us is None:
        return []
    held_s = max(0.0, (at.context.clock.wall_us() - mark.held_since_us) / 1e6)
    return [f"Clients have been held for {human_duration(held_s)}."]


def _resumed_poolers(at: Cutover) -> list[str]:
    """Return warnings about poolers that are no longer paused. Raises ConsoleError if one does not answer."""
    return [
        f'pooler "{name}" was restarted, or resumed by another session: its clients get errors instead of waiting'
        for name, admin, databases in at.poolers()
        if not all(admin.paused(databases).values())
    ]


def _pause_again(at: Cutover, control: Control) -> None:
    """Pause resumed poolers again, so that clients wait instead of getting errors. A failure is only reported."""
    for name, admin, databases in at.poolers():
        try:
            if not all(admin.paused(databases).values()):
                control.report_progress(f"PAUSE on {name}")
                admin.pause(databases, PAUSE_AGAIN_S, control.stop_requested)
        except ConsoleError as error:
            control.report_progress(clean(redact(f"PAUSE on {name}: {error.message}")))


def _replay_refusal(connection: ActingConnection, plan: CutoverPlan) -> str | None:
    [row] = connection.rows(_POSITION)
    if row["paused"] and plan.kind == "cutover":  # a promotion ends the pause; in a failover its cause was checked
        return f"replay is paused on {plan.to}: SELECT pg_wal_replay_resume()"
    if plan.shutdown_lsn and (row["lsn"] is None or parse_lsn(row["lsn"]) <= parse_lsn(plan.shutdown_lsn)):
        return f"{plan.to} has replayed {row['lsn']}, and {plan.old} was shut down at {plan.shutdown_lsn}"
    return None


def _record_switchover(at: Cutover, done: ActionResult) -> ActionResult:
    """Save the new timeline, if the switchover was done."""
    if done.state != "ok":
        return done
    with at.connect(at.plan.to) as (connection, now):
        promoted = _record_timeline(at, connection, now.timeline)
    return replace(promoted, text=f"{promoted.text}: {done.text}", values={**promoted.values, **done.values})


def _record_timeline(at: Cutover, connection: ActingConnection, timeline: int | None) -> ActionResult:
    """Save the new timeline, and mark a failover."""
    plan = at.plan
    if timeline is None or timeline <= plan.timeline:
        return ActionResult(
            state="failed", text=f"{plan.to} accepts writes on timeline {timeline}; {plan.old} was on {plan.timeline}"
        )
    plan = replace(plan, new_timeline=timeline, promoted_us=at.context.clock.wall_us())
    save_plan(at.context, plan)
    unmarked = mark_failover(at._replace(plan=plan), connection) if plan.kind == "failover" else None
    text = "; ".join([f"{plan.to} is primary on timeline {timeline}", *([unmarked] if unmarked else [])])
    return ActionResult(state="ok", text=text, values={"timeline": timeline})
