"""Clients reach the new primary: poolers and addresses lead to it, limits are as before, RESUME."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.clusters.commands import failure, run_command
from dba_console.clusters.plan import node_address
from dba_console.clusters.pooler_file import change_file
from dba_console.clusters.steps.hold import let_in
from dba_console.clusters.steps.standbys import follow
from dba_console.clusters.steps.step import POLL_S, Cutover, Step, StepSettings, Timed, bounded, cutover
from dba_console.redact import redact
from dba_console.sanitize import clean

_SYNCHRONOUS = """
SELECT current_setting('synchronous_standby_names') AS names,
       (SELECT count(*)::int4 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS there
"""


class Repoint(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-repoint"
    summary: ClassVar[str] = (
        "Makes poolers and addresses lead to the new primary: the host of the databases in PgBouncer's configuration "
        "and RELOAD, then the address commands of the configuration. A pooler without `config` is left as it is: its "
        "host is taken for a name that one of the addresses moves."
    )

    def preview(self, settings: StepSettings, world: ActionContext) -> ActionPreview:
        at = cutover(settings, world)
        host, port = node_address(at.node(at.plan.to))
        exact = [f"{at.config.poolers[name].config}: host={host} port={port}; RELOAD"
                 for name in at.plan.databases if at.config.poolers[name].config]  # fmt: skip
        exact += [" ".join(one.run) for one in at.config.addresses.values()]
        return ActionPreview(
            text=f"Poolers and addresses lead to {at.plan.to}.", exact=clean(redact("; ".join(exact))), done=not exact
        )

    def do(self, settings: StepSettings, world: ActionContext, control: Control) -> ActionResult:
        at = cutover(settings, world)
        to = node_address(at.node(at.plan.to))
        count = 0
        for name, admin, databases in at.poolers():
            pooler = at.config.poolers[name]
            if pooler.config is None:
                continue
            control.report_progress(f"{pooler.config}: host={to[0]} port={to[1]}")
            change_file(name, pooler, databases, node_address(at.node(at.plan.old)), to, world.clock)
            admin.reload(dict.fromkeys(databases, to))
            count += 1
        for name, address in at.config.addresses.items():
            control.report_progress(f"address {name}")
            ended = run_command(
                address, cluster=at.plan.cluster, from_=at.plan.old, to=at.plan.to, undo=False, clock=world.clock
            )
            if (why := failure(f"address {name}", ended)) is not None:
                return ActionResult(state="failed", text=why)
        return ActionResult(
            state="ok", text=f"{count} poolers and {len(at.config.addresses)} addresses lead to {at.plan.to}"
        )

    def settle(self, settings: StepSettings, sight: ActionPreview, world: ActionContext) -> ActionResult:
        return self.again("doing it again is safe")


class Release(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-release"
    summary: ClassVar[str] = (
        "Lets clients in on the new primary: connection limits as before, RESUME on every pooler. Where "
        "synchronous_standby_names would hang the first commit, the other nodes follow first."
    )
    Settings: ClassVar[type[Struct]] = Timed

    def preview(self, settings: Timed, world: ActionContext) -> ActionPreview:
        at = cutover(settings, world)
        refusal = None if at.plan.new_timeline else f"{at.plan.to} is not promoted"
        resume = [f"RESUME {database}" for each in at.plan.databases.values() for database in each]
        return ActionPreview(
            text=f"Clients write on {at.plan.to} from now on.",
            exact="; ".join([f"connection limits of {len(at.plan.limits)} databases as before", *resume]),
            refusal=refusal,
        )

    def do(self, settings: Timed, world: ActionContext, control: Control) -> ActionResult:
        at = cutover(settings, world)
        with at.link(at.plan.to) as (link, now):
            if now.role != "primary":
                return ActionResult(state="failed", text=f"{at.plan.to} is in recovery")
            limits = let_in(link, at.plan.limits)
            if (hangs := _would_hang(at, link, settings.timeout_s, control)) is not None:
                return ActionResult(state="failed", text=hangs)
        for _, admin, databases in at.poolers():
            admin.resume(databases)
        return ActionResult(state="ok", text=f"{limits}; clients write on {at.plan.to}")

    def settle(self, settings: Timed, sight: ActionPreview, world: ActionContext) -> ActionResult:
        return self.again("doing it again is safe")


def _would_hang(at: Cutover, link: ActingConnection, timeout_s: float, control: Control) -> str | None:
    """Why every commit would wait for ever; None where a synchronous standby follows, or none is needed."""
    [row] = link.rows(_SYNCHRONOUS)
    if not row["names"]:
        return None
    for name in at.plan.others if at.plan.manager is None else ():  # a manager leads them itself
        follow(at, name)
    for _left in bounded(at.world, timeout_s):
        [row] = link.rows(_SYNCHRONOUS)
        if row["there"] or not row["names"]:
            return None
        if control.wait(POLL_S):
            break
    return clean(
        f"synchronous_standby_names of {at.plan.to} is {row['names']!r} and none of them follows: every commit would "
        "hang; set it to '' there and reload, then try again"
    )
