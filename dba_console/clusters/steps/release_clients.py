"""Clients reach the new primary: poolers and addresses lead to it, limits are as before, RESUME."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.clusters.cutover_plan import node_address
from dba_console.clusters.node_host import failure_text, run_command
from dba_console.clusters.pooler_file import change_file
from dba_console.clusters.steps.attach_standbys import follow_new_primary
from dba_console.clusters.steps.hold_clients import restore_connection_limits
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    load_cutover,
    remaining_seconds,
)
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

_SYNCHRONOUS = """
SELECT current_setting('synchronous_standby_names') AS names,
       (SELECT count(*)::int4 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS there
"""


class RepointClients(CutoverStep):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-repoint"
    summary: ClassVar[str] = (
        "Makes poolers and addresses lead to the new primary: the host of the databases in PgBouncer's configuration "
        "and RELOAD, then the address commands of the configuration. A pooler without `config` is left as it is: its "
        "host is taken for a name that one of the addresses moves."
    )

    def preview(self, settings: StepSettings, context: ActionContext) -> ActionPreview:
        at = load_cutover(settings, context)
        host, port = node_address(at.node(at.plan.to))
        exact = [f"{at.config.poolers[name].config}: host={host} port={port}; RELOAD"
                 for name in at.plan.databases if at.config.poolers[name].config]  # fmt: skip
        exact += [" ".join(one.run) for one in at.config.addresses.values()]
        return ActionPreview(
            text=f"Poolers and addresses lead to {at.plan.to}.", exact=clean(redact("; ".join(exact))), done=not exact
        )

    def do(self, settings: StepSettings, context: ActionContext, control: Control) -> ActionResult:
        at = load_cutover(settings, context)
        to = node_address(at.node(at.plan.to))
        count = 0
        for name, admin, databases in at.poolers():
            pooler = at.config.poolers[name]
            if pooler.config is None:
                continue
            control.report_progress(f"{pooler.config}: host={to[0]} port={to[1]}")
            change_file(name, pooler, databases, node_address(at.node(at.plan.old)), to, context.clock)
            admin.reload(dict.fromkeys(databases, to))
            count += 1
        for name, address in at.config.addresses.items():
            control.report_progress(f"address {name}")
            ended = run_command(
                address, cluster=at.plan.cluster, from_=at.plan.old, to=at.plan.to, undo=False, clock=context.clock
            )
            if (why := failure_text(f"address {name}", ended)) is not None:
                return ActionResult(state="failed", text=why)
        return ActionResult(
            state="ok", text=f"{count} poolers and {len(at.config.addresses)} addresses lead to {at.plan.to}"
        )

    def settle(self, settings: StepSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return self.retry_result("doing it again is safe")


class ReleaseClients(CutoverStep):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-release"
    summary: ClassVar[str] = (
        "Lets clients in on the new primary: connection limits as before, RESUME on every pooler. Where "
        "synchronous_standby_names would hang the first commit, the other nodes follow first."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings

    def preview(self, settings: TimedSettings, context: ActionContext) -> ActionPreview:
        at = load_cutover(settings, context)
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        resume = [f"RESUME {database}" for each in at.plan.databases.values() for database in each]
        return ActionPreview(
            text=f"Clients write on {at.plan.to} from now on.",
            exact="; ".join([f"connection limits of {len(at.plan.limits)} databases as before", *resume]),
            refusal=refusal,
        )

    def do(self, settings: TimedSettings, context: ActionContext, control: Control) -> ActionResult:
        at = load_cutover(settings, context)
        with at.connect(at.plan.to) as (connection, now):
            if now.role != "primary":
                return ActionResult(state="failed", text=f"{at.plan.to} is in recovery")
            limits = restore_connection_limits(connection, at.plan.limits)
            if (hang_reason := _commit_hang_reason(at, connection, settings.timeout_s, control)) is not None:
                return ActionResult(state="failed", text=hang_reason)
        for _, admin, databases in at.poolers():
            admin.resume(databases)
        return ActionResult(state="ok", text=f"{limits}; clients write on {at.plan.to}")

    def settle(self, settings: TimedSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return self.retry_result("doing it again is safe")


def _commit_hang_reason(at: Cutover, connection: ActingConnection, timeout_s: float, control: Control) -> str | None:
    """Why every commit would wait for ever; None where a synchronous standby follows, or none is needed."""
    [row] = connection.rows(_SYNCHRONOUS)
    if not row["names"]:
        return None
    for name in at.plan.others if at.plan.manager is None else ():  # a manager leads them itself
        follow_new_primary(at, name)
    for _left in remaining_seconds(at.context, timeout_s):
        [row] = connection.rows(_SYNCHRONOUS)
        if row["there"] or not row["names"]:
            return None
        if control.wait(POLL_S):
            break
    return clean(
        f"synchronous_standby_names of {at.plan.to} is {row['names']!r} and none of them follows: every commit would "
        "hang; set it to '' there and reload, then try again"
    )
