"""Steps that connect clients to the new primary: repoint poolers and addresses, restore limits, RESUME."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_mark import RELEASED
from dba_console.clusters.cutover_plan import CutoverPlan, node_address, save_failover
from dba_console.clusters.heartbeat import HeartbeatOutage
from dba_console.clusters.node_host import failure_text, run_command
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.pooler_file import change_file
from dba_console.clusters.steps.hold_clients import restore_connection_limits, restore_wait_limits
from dba_console.clusters.steps.mark_stage import show_stage
from dba_console.clusters.steps.measure_outage import resume_heartbeat, wait_for_write
from dba_console.clusters.steps.old_primary_alive import other_primary
from dba_console.clusters.steps.step import (
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    does_not_answer,
)
from dba_console.clusters.steps.synchronous_standbys import commit_hang_reason
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

SKEW_US = 1_000_000
"""Writes acknowledged by the old primary up to this time after the promotion began are not from after it."""
_LOGIN = re.compile("authentication|password|no such user|role .* does not exist", re.I)
"""Errors of a heartbeat that may not log in: clients may."""


class RepointClients(CutoverStep):
    name: ClassVar[str] = "cutover-repoint"
    summary: ClassVar[str] = (
        "Points poolers and addresses to the new primary: changes the host of the databases in PgBouncer's "
        "configuration and runs RELOAD, then the address commands of the configuration. A pooler without `config` is "
        "not changed: its host is assumed to be a name that one of the address commands moves."
    )
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        host, port = node_address(at.node(at.plan.to))
        exact = [f"{at.config.poolers[name].config}: host={host} port={port}; RELOAD"
                 for name in at.plan.databases if at.config.poolers[name].config]  # fmt: skip
        exact += [" ".join(one.run) for one in at.config.addresses.values()]
        done = not exact and not at.plan.failover.by_hand
        return ActionPreview(
            text=f"Point poolers and addresses to {at.plan.to}.", exact=clean(redact("; ".join(exact))), done=done
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        failed: dict[str, str] = {}
        for name, admin, databases in at.poolers():
            if at.config.poolers[name].config is None:
                continue
            try:
                _repoint_pooler(at, name, admin, databases, control)
            except (ConsoleError, OSError) as error:
                if at.plan.kind == "cutover":
                    raise
                failed[f"pooler {name}"] = str(error)
        for name in at.config.addresses:
            control.report_progress(f"address {name}")
            if (why := _move_address(at, name)) is not None:
                if at.plan.kind == "cutover":
                    return ActionResult(state="failed", text=why)
                failed[f"address {name}"] = why
        poolers, addresses = len(at.plan.databases), len(at.config.addresses)
        if at.plan.kind == "cutover":
            return ActionResult(state="ok", text=f"{poolers} poolers and {addresses} addresses point to {at.plan.to}")
        return _left_by_hand(at, failed)


def _repoint_pooler(at: Cutover, name: str, admin: PoolerAdmin, databases: tuple[str, ...], control: Control) -> None:
    pooler, to = at.config.poolers[name], node_address(at.node(at.plan.to))
    control.report_progress(f"{pooler.config}: host={to[0]} port={to[1]}")
    change_file(name, pooler, databases, node_address(at.node(at.plan.old)), to, at.context.clock)
    admin.reload(dict.fromkeys(databases, to), unlimited=at.plan.pooler_settings.get(name, {}))


def _move_address(at: Cutover, name: str) -> str | None:
    """Run the command of an address; return why it failed, or None."""
    plan = at.plan
    try:
        ended = run_command(at.config.addresses[name], cluster=plan.cluster, from_=plan.old, to=plan.to, undo=False,
                            clock=at.context.clock)  # fmt: skip
    except ConsoleError as error:
        if plan.kind == "cutover":
            raise
        return error.message
    return failure_text(f"address {name}", ended)


def _left_by_hand(at: Cutover, failed: dict[str, str]) -> ActionResult:
    """Save what must be pointed to the new primary by hand: nothing waits for it. Poolers that answer again are off
    the list."""
    known = at.plan.failover.by_hand
    reached = [f"pooler {name} " for name in at.plan.databases if f"pooler {name}" not in failed]
    by_hand = [one for one in known if not one.startswith(tuple(reached))] if reached else list(known)
    by_hand += [f"{what} ({clean(redact(why))})" for what, why in failed.items()
                if not any(one.startswith(f"{what} ") for one in by_hand)]  # fmt: skip
    save_failover(at.context, at.plan, by_hand=tuple(by_hand))
    text = f"point to {at.plan.to} by hand: {'; '.join(by_hand)}" if by_hand else f"all point to {at.plan.to}"
    return ActionResult(state="ok", text=text, values={"by_hand": len(by_hand)})


class ReleaseClients(CutoverStep):
    name: ClassVar[str] = "cutover-release"
    summary: ClassVar[str] = (
        "Releases clients on the new primary: restores connection limits, and runs RESUME on every pooler. If the "
        "first commit would wait for synchronous_standby_names, the other nodes are made to follow first, "
        "then the old primary; if that is not enough it fails, and no client is released."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        resume = [f"RESUME {database}" for each in at.plan.databases.values() for database in each]
        return ActionPreview(
            text=f"Release clients; they then write to {at.plan.to}.",
            exact="; ".join([f"restore connection limits of {len(at.plan.limits)} databases", *resume]),
            refusal=refusal,
        )

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        try:
            with at.connect(at.plan.to) as (connection, now):
                if now.role != "primary":
                    return ActionResult(state="failed", text=f"{at.plan.to} is in recovery")
                # Before clients are released: a commit that hangs reports nothing to its client.
                if (hang_reason := commit_hang_reason(at, connection, settings.timeout_s, control)) is not None:
                    return ActionResult(state="failed", text=hang_reason)
                limits = restore_connection_limits(connection, at.plan.limits)
        except ConnectError as error:
            return ActionResult(state="failed", text=does_not_answer(at, at.plan.to, error, control))
        since_us = at.context.clock.wall_us()
        for name, admin, databases in at.poolers():
            try:
                admin.resume(databases)
            except ConsoleError as error:
                if at.plan.kind == "cutover":
                    raise
                control.report_progress(clean(redact(f"RESUME on {name}: {error.message}")))
        with suppress(ConsoleError), at.connect(at.plan.to) as (connection, _):
            show_stage(at, connection, RELEASED, held_since_us=None, poolers={}, limits={})
        result = _confirm_writes(at, limits, since_us, control)
        left = restore_wait_limits(at)
        return replace(result, text=f"{result.text}; not restored: {left}") if left else result


def _confirm_writes(at: Cutover, limits: str, since_us: int, control: Control) -> ActionResult:
    """Wait until the new primary acknowledges a write that comes as those of clients do, by the heartbeat."""
    plan = at.plan
    if plan.kind == "failover" and (second := other_primary(at)) is not None:
        return ActionResult(
            state="failed", text=f"{second}: two nodes accept writes. Stop it or cut it off, then retry"
        )
    heartbeat = resume_heartbeat(at)
    found = wait_for_write(heartbeat, at.context, control, since_us=since_us, timeline=plan.new_timeline)
    node = writing_node(plan, found, since_us)
    if node == plan.old:
        text = f"{plan.old} still acknowledges writes: two nodes accept writes, and those on {plan.old} will be lost"
        return ActionResult(state="failed", text=f"{text}. Stop {plan.old} or cut it off, then retry")
    if node == plan.to:
        return ActionResult(state="ok", text=f"{limits}; clients write to {plan.to}", values={"acknowledged": True})
    why = next(iter(found.errors), "the heartbeat had no answer")
    text = f"{limits}; clients are released, but {plan.to} has acknowledged no write of a client: {clean(redact(why))}"
    if plan.failover.by_hand or (not found.writes and _LOGIN.search(why)):
        save_failover(at.context, plan, warnings=(*plan.failover.warnings, text))
        return ActionResult(state="ok", text=text, values={"acknowledged": False})
    return ActionResult(state="failed", text=f"{text}. Find out why, then retry")


def writing_node(plan: CutoverPlan, found: HeartbeatOutage, since_us: int) -> str | None:
    """Return the node that acknowledges the heartbeat's writes: the old primary, if it did after the promotion; else
    the new one, if it did since clients were released. None: no node did."""
    writes = [one for one in found.servers if one.kind == "write"]
    if any(one.timeline == plan.timeline and plan.promoted_us and one.to_us > plan.promoted_us + SKEW_US
           for one in writes):  # fmt: skip
        return plan.old
    return plan.to if any(one.timeline == plan.new_timeline and one.to_us >= since_us for one in writes) else None
