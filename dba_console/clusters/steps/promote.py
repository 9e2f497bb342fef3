"""The point of no return: the new primary takes over, and is checked before any client reaches it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_plan import CutoverPlan, save_plan
from dba_console.clusters.steps.manager_switchover import settle_switchover, switch_over, switchover_text
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    CutoverStep,
    NothingChanged,
    TimedSettings,
    does_not_answer,
    load_cutover,
    remaining_seconds,
)
from dba_console.clusters.steps.stop_primary import SHUT_DOWN
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import parse_duration

PAUSE_AGAIN_S = 2.0
"""How long a pooler that was resumed may take to hold its clients again: their server is down, nothing is under way."""
_POSITION = "SELECT pg_last_wal_replay_lsn()::text AS lsn, pg_is_wal_replay_paused() AS paused"
_PROMOTE = "SELECT pg_catalog.pg_promote(false)"


class PromoteSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: str = "60s"
    """How long the promotion may take, as a duration."""
    switchover_timeout: str = "5m"
    """How long the switchover of a cluster manager may take, as a duration: it stops the old primary as well."""


class Promote(CutoverStep):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-promote"
    summary: ClassVar[str] = (
        "Promotes the new primary, after checking once more that the old one is shut down and nothing is missing; then "
        "waits until it takes writes on a new timeline. It cannot be reverted: after it there is only another cutover. "
        "On a cluster that Patroni or repmgr manages it runs that manager's own switchover instead, and asks the nodes "
        "what became of it."
    )
    Settings: ClassVar[type[Struct]] = PromoteSettings

    def preview(self, settings: PromoteSettings, context: ActionContext) -> ActionPreview:
        at = load_cutover(settings, context)
        plan = at.plan
        refusal = _promotion_refusal(at)
        try:
            with at.connect(plan.to) as (connection, now):
                if now.role == "primary" and now.timeline is not None and now.timeline > plan.timeline:
                    return ActionPreview(
                        text=f"{plan.to} is primary on timeline {now.timeline}.", exact="", done=plan.new_timeline > 0
                    )
                # Once its primary is gone a standby names the timeline of its last restartpoint: maybe an older one.
                if now.role != "standby" or (now.timeline or 0) > plan.timeline:
                    refusal = refusal or f"{plan.to} is a {now.role} on timeline {now.timeline}"
                else:
                    refusal = refusal or _replay_refusal(connection, plan)
        except ConnectError as error:
            refusal = refusal or does_not_answer(at, plan.to, error)
        text = f"{plan.to} becomes the primary of {plan.cluster}. There is no way back but another cutover."
        name = plan.to
        if plan.kind == "failover":
            name = "unknown" if plan.lost_bytes is None else str(plan.lost_bytes)
            lost = (
                "how much is lost is unknown" if plan.lost_bytes is None else f"at least {name} bytes of WAL are lost"
            )
            text = f"{plan.to} becomes the primary of {plan.cluster}: {lost}."
        exact = f"on {plan.to}: SELECT pg_promote()"
        hint = f"abort, where no promotion was tried yet: {plan.old} is started again and clients go on there"
        if plan.manager is not None:
            text = f"{plan.manager.kind} stops {plan.old} and promotes {plan.to}; the way back is another cutover."
            exact, hint = switchover_text(plan.manager), f"abort: clients go on on {plan.old}"
        try:
            text = " ".join([text, *(f"{one}." for one in _resumed_poolers(at))])
        except ConsoleError as error:
            refusal = refusal or f"clients could not be led to {plan.to}: {error.message}"
        return ActionPreview(
            text=text,
            exact=exact,
            values={"shutdown_lsn": plan.shutdown_lsn, "lost_bytes": plan.lost_bytes},
            name=name,
            destructive=True,
            refusal=refusal,
            hint=None if refusal is None else hint,
        )

    def do(self, settings: PromoteSettings, context: ActionContext, control: Control) -> ActionResult:
        at = load_cutover(settings, context)
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

    def settle(self, settings: PromoteSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        at = load_cutover(settings, context)
        if at.plan.manager is not None:
            timeout_s = parse_duration(settings.switchover_timeout)
            return _record_switchover(at, settle_switchover(at, at.plan.manager, timeout_s))
        with at.connect(at.plan.to) as (connection, now):
            if now.role == "primary":
                return _record_timeline(at, connection, now.timeline)
        return self.retry_result(
            f"{at.plan.to} is still in recovery: it was not promoted, or not yet, and its server log says why; retry "
            "asks it again and waits"
        )


def _promote(at: Cutover, settings: PromoteSettings, control: Control) -> ActionResult:
    with ExitStack() as opened:
        try:
            connection, now = opened.enter_context(at.connect(at.plan.to))
        except ConsoleError as error:
            raise NothingChanged(f"{error.message}: nothing was promoted", hint=error.hint) from error
        if now.role == "standby":
            connection.execute(_PROMOTE, transaction=False, timeout_s=10.0)
        for _left in remaining_seconds(at.context, settings.timeout_s):
            now = connection.read_identity()
            if now.role == "primary":
                return _record_timeline(at, connection, now.timeline)
            control.wait(POLL_S / 2)  # it goes on whatever is asked: only its end can be waited for
    text = f"{at.plan.to} is still in recovery {settings.timeout} after pg_promote()"
    return ActionResult(state="unknown", text=f"{text}: its server log says why; it may be promoted at any moment")


def _promotion_refusal(at: Cutover) -> str | None:
    """Why nothing may be promoted, as far as the old primary can say it."""
    plan = at.plan
    if plan.kind == "failover":
        return None
    if plan.manager is not None:
        return None if plan.held_lsn else f"it is not known whether {plan.to} has everything: the gate was not passed"
    if not plan.shutdown_lsn:
        return f"it is not known where {plan.old} was shut down: the gate was not passed"
    server = at.control(plan.old)
    found = server.control_file()
    if server.running() or found.state != SHUT_DOWN:
        return f"{plan.old} is not shut down any more: pg_control says {found.state}"
    if found.checkpoint_lsn != plan.shutdown_lsn:
        return f"{plan.old} was started since: its checkpoint is {found.checkpoint_lsn}, it was {plan.shutdown_lsn}"
    return None


def _resumed_poolers(at: Cutover) -> list[str]:
    """Poolers that do not hold their clients any more. Raises ConsoleError where one does not answer."""
    return [
        f'pooler "{name}" was restarted, or resumed by another session: its clients get errors and do not wait'
        for name, admin, databases in at.poolers()
        if not all(admin.paused(databases).values())
    ]


def _pause_again(at: Cutover, control: Control) -> None:
    """What they would get until the new primary lets them in are errors. Where it fails they get them."""
    for name, admin, databases in at.poolers():
        try:
            if not all(admin.paused(databases).values()):
                control.report_progress(f"PAUSE on {name}")
                admin.pause(databases, PAUSE_AGAIN_S, control.stop_requested)
        except ConsoleError as error:
            control.report_progress(clean(redact(f"PAUSE on {name}: {error.message}")))


def _replay_refusal(connection: ActingConnection, plan: CutoverPlan) -> str | None:
    [row] = connection.rows(_POSITION)
    if row["paused"]:
        return f"replay is paused on {plan.to}: SELECT pg_wal_replay_resume()"
    if plan.shutdown_lsn and (row["lsn"] is None or parse_lsn(row["lsn"]) <= parse_lsn(plan.shutdown_lsn)):
        return f"{plan.to} has replayed {row['lsn']}, and {plan.old} was shut down at {plan.shutdown_lsn}"
    return None


def _record_switchover(at: Cutover, done: ActionResult) -> ActionResult:
    """The same with the new timeline written down, where the switchover was done."""
    if done.state != "ok":
        return done
    with at.connect(at.plan.to) as (connection, now):
        promoted = _record_timeline(at, connection, now.timeline)
    return replace(promoted, text=f"{promoted.text}: {done.text}", values={**promoted.values, **done.values})


def _record_timeline(at: Cutover, connection: ActingConnection, timeline: int | None) -> ActionResult:
    """Write the new timeline down."""
    plan = at.plan
    if timeline is None or timeline <= plan.timeline:
        return ActionResult(
            state="failed", text=f"{plan.to} takes writes on timeline {timeline}; {plan.old} was on {plan.timeline}"
        )
    save_plan(at.context, replace(plan, new_timeline=timeline))
    return ActionResult(state="ok", text=f"{plan.to} is primary on timeline {timeline}", values={"timeline": timeline})
