"""The point of no return: the new primary takes over, and is checked before any client reaches it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.clusters.checks import position
from dba_console.clusters.plan import CutoverPlan, save_plan
from dba_console.clusters.steps.managed import settle_switchover, shown, switch_over
from dba_console.clusters.steps.shut import SHUT_DOWN
from dba_console.clusters.steps.step import POLL_S, Cutover, NothingDone, Step, Timed, bounded, cutover
from dba_console.errors import ConnectError, ConsoleError
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.units import parse_duration

AGAIN_S = 2.0
"""How long a pooler that was resumed may take to hold its clients again: their server is down, nothing is under way."""
_POSITION = "SELECT pg_last_wal_replay_lsn()::text AS lsn, pg_is_wal_replay_paused() AS paused"
_PROMOTE = "SELECT pg_catalog.pg_promote(false)"


class PromoteSettings(Timed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: str = "60s"
    """How long the promotion may take, as a duration."""
    switchover_timeout: str = "5m"
    """How long the switchover of a cluster manager may take, as a duration: it stops the old primary as well."""


class Promote(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-promote"
    summary: ClassVar[str] = (
        "Promotes the new primary, after checking once more that the old one is shut down and nothing is missing; then "
        "waits until it takes writes on a new timeline. It cannot be reverted: after it there is only another cutover. "
        "On a cluster that Patroni or repmgr manages it runs that manager's own switchover instead, and asks the nodes "
        "what became of it."
    )
    Settings: ClassVar[type[Struct]] = PromoteSettings

    def preview(self, settings: PromoteSettings, world: ActionContext) -> ActionPreview:
        at = cutover(settings, world)
        plan = at.plan
        refusal = _not_yet(at)
        with at.link(plan.to) as (link, now):
            if now.role == "primary" and now.timeline is not None and now.timeline > plan.timeline:
                return ActionPreview(
                    text=f"{plan.to} is primary on timeline {now.timeline}.", exact="", done=plan.new_timeline > 0
                )
            # Once its primary is gone a standby names the timeline of its last restartpoint: that may be an older one.
            if now.role != "standby" or (now.timeline or 0) > plan.timeline:
                refusal = refusal or f"{plan.to} is a {now.role} on timeline {now.timeline}"
            else:
                refusal = refusal or _behind(link, plan)
        text = f"{plan.to} becomes the primary of {plan.cluster}. There is no way back but another cutover."
        name = plan.to
        if plan.kind == "failover":
            name = "unknown" if plan.lost_bytes is None else str(plan.lost_bytes)
            lost = (
                "how much is lost is unknown" if plan.lost_bytes is None else f"at least {name} bytes of WAL are lost"
            )
            text = f"{plan.to} becomes the primary of {plan.cluster}: {lost}."
        exact = f"on {plan.to}: SELECT pg_promote()"
        hint = f"abort: {plan.old} is started again and clients go on there"
        if plan.manager is not None:
            text = f"{plan.manager.kind} stops {plan.old} and promotes {plan.to}; the way back is another cutover."
            exact, hint = shown(plan.manager), f"abort: clients go on on {plan.old}"
        try:
            text = " ".join([text, *(f"{one}." for one in _let_through(at))])
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

    def do(self, settings: PromoteSettings, world: ActionContext, control: Control) -> ActionResult:
        at = cutover(settings, world)
        try:
            _hold_again(at, control)
        except ConsoleError as error:
            raise NothingDone(f"{error.message}: nothing was promoted", hint=error.hint) from error
        try:
            if at.plan.manager is not None:
                timeout_s = parse_duration(settings.switchover_timeout)
                return _recorded(at, switch_over(at, at.plan.manager, timeout_s, control))
            return _promote(at, settings, control)
        except ConnectError as error:
            text = f"{at.plan.to} does not answer: {error.message}; its server log says why. When it runs, retry"
            return ActionResult(state="failed", text=clean(redact(text)))

    def settle(self, settings: PromoteSettings, sight: ActionPreview, world: ActionContext) -> ActionResult:
        at = cutover(settings, world)
        if at.plan.manager is not None:
            timeout_s = parse_duration(settings.switchover_timeout)
            return _recorded(at, settle_switchover(at, at.plan.manager, timeout_s))
        with at.link(at.plan.to) as (link, now):
            if now.role == "primary":
                return _promoted(at, link, now.timeline)
        return self.again(f"{at.plan.to} is still in recovery: it was not promoted, or not yet")


def _promote(at: Cutover, settings: PromoteSettings, control: Control) -> ActionResult:
    with ExitStack() as opened:
        try:
            link, now = opened.enter_context(at.link(at.plan.to))
        except ConsoleError as error:
            raise NothingDone(f"{error.message}: nothing was promoted", hint=error.hint) from error
        if now.role == "standby":
            link.execute(_PROMOTE, transaction=False, timeout_s=10.0)
        for _left in bounded(at.world, settings.timeout_s):
            now = link.read_identity()
            if now.role == "primary":
                return _promoted(at, link, now.timeline)
            control.wait(POLL_S / 2)  # it goes on whatever is asked: only its end can be waited for
    text = f"{at.plan.to} is still in recovery {settings.timeout} after pg_promote()"
    return ActionResult(state="unknown", text=f"{text}: its server log says why; it may be promoted at any moment")


def _not_yet(at: Cutover) -> str | None:
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


def _let_through(at: Cutover) -> list[str]:
    """Poolers that do not hold their clients any more. Raises ConsoleError where one does not answer."""
    return [
        f'pooler "{name}" was restarted, or resumed by another session: its clients get errors and do not wait'
        for name, admin, databases in at.poolers()
        if not all(admin.paused(databases).values())
    ]


def _hold_again(at: Cutover, control: Control) -> None:
    """What they would get until the new primary lets them in are errors. Where it fails they get them."""
    for name, admin, databases in at.poolers():
        try:
            if not all(admin.paused(databases).values()):
                control.report_progress(f"PAUSE on {name}")
                admin.pause(databases, AGAIN_S, control.stop_requested)
        except ConsoleError as error:
            control.report_progress(clean(redact(f"PAUSE on {name}: {error.message}")))


def _behind(link: ActingConnection, plan: CutoverPlan) -> str | None:
    [row] = link.rows(_POSITION)
    if row["paused"]:
        return f"replay is paused on {plan.to}: SELECT pg_wal_replay_resume()"
    if plan.shutdown_lsn and (row["lsn"] is None or position(row["lsn"]) <= position(plan.shutdown_lsn)):
        return f"{plan.to} has replayed {row['lsn']}, and {plan.old} was shut down at {plan.shutdown_lsn}"
    return None


def _recorded(at: Cutover, done: ActionResult) -> ActionResult:
    """The same with the new timeline written down, where the switchover was done."""
    if done.state != "ok":
        return done
    with at.link(at.plan.to) as (link, now):
        promoted = _promoted(at, link, now.timeline)
    return replace(promoted, text=f"{promoted.text}: {done.text}", values={**promoted.values, **done.values})


def _promoted(at: Cutover, link: ActingConnection, timeline: int | None) -> ActionResult:
    """Write the new timeline down."""
    plan = at.plan
    if timeline is None or timeline <= plan.timeline:
        return ActionResult(
            state="failed", text=f"{plan.to} takes writes on timeline {timeline}; {plan.old} was on {plan.timeline}"
        )
    save_plan(at.world, replace(plan, new_timeline=timeline))
    return ActionResult(state="ok", text=f"{plan.to} is primary on timeline {timeline}", values={"timeline": timeline})
