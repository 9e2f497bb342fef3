"""The step cutover-begin: check that the cluster is ready, and save the plan of the cutover."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from dba_console.actions.action import ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cutover_mark import new_mark, write_mark, write_mark_file
from dba_console.clusters.cutover_plan import (
    LOCK_SLOT,
    CutoverPlan,
    cluster_config,
    load_plan,
    save_plan,
)
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.make_plan import (
    SUPERUSER,
    check_pooler_files,
    drop_made_slots,
    make_plan,
    make_slots,
    refusal_text,
    settle_begin,
)
from dba_console.clusters.steps.manager_switchover import check_by_manager, switchover_text
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings, open_node
from dba_console.clusters.survey import survey
from dba_console.core.config import ClusterConfig
from dba_console.core.errors import Refused
from dba_console.core.sanitize import clean

CHECKPOINT_S = 3600.0
_MAKE_LOCK_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s)"
_DUPLICATE, _NO_SLOT_FREE = "42710", "53400"


class BeginCutover(CutoverStep):
    name: ClassVar[str] = "cutover-begin"
    summary: ClassVar[str] = (
        "Checks that the cluster is ready for a cutover to a node, as `dba-console cluster check` does, and saves the "
        "plan of the cutover: nodes, data directories, databases of the poolers. Then it creates the replication slots "
        "of the nodes that will follow on the new primary, and runs a CHECKPOINT on the old one, so that the one at "
        "its stop is short. On a cluster managed by Patroni or repmgr, the plan has its switchover instead of slots. "
        "Refuses if the cluster is not ready."
    )
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)
    may_shrink: ClassVar[bool] = True
    """A check that has become ok meanwhile needs no new confirmation."""

    def preview(self, settings: StepSettings, context: ActionContext) -> ActionPreview:
        config = cluster_config(context, settings.cluster)
        found = survey(settings.cluster, config, context.clock, to=settings.to)
        checks = cutover_readiness(found, settings.to)
        if found.cutover is not None and found.cutover.run == context.run:
            checks = [one for one in checks if one.id != "progress"]  # the mark of this run
        blocking = [one for one in checks if one.state in ("failed", "unknown")]
        not_ok = [one for one in checks if one.state != "ok"]
        rows = tuple(
            {"id": one.id, "state": one.state, "what": clean(one.text), "fix": clean(one.fix)} for one in not_ok
        )
        if blocking:
            text = f"{settings.cluster} is not ready for a cutover to {settings.to}."
            return ActionPreview(
                text=text, exact="", rows=rows, refusal=refusal_text(blocking), hint=clean(blocking[0].fix) or None
            )
        plan = make_plan(settings, config, found, context, found.primaries[0])
        check_pooler_files(config, plan, context)
        at = Cutover(plan, config, context)
        check_by_manager(at)
        now = "mark of the cutover, replication slots, CHECKPOINT"
        promote = f"on {settings.to}: SELECT pg_promote()"
        if plan.manager is not None:
            exact = f"now: {now}; later: hold clients; {switchover_text(plan.manager)}"
        else:
            server = at.control(plan.old)
            _check_directory(server, plan)
            stop = f"on {plan.old}: {shlex.join(server.stop_command())}"
            exact = f"now: {now}; later: hold clients; {stop}; {promote}"
        by_manager = f", by the switchover of {plan.manager.kind}" if plan.manager is not None else ""
        text = f"Ready to switch the primary from {plan.old} (timeline {plan.timeline}) to {settings.to}{by_manager}"
        text += (
            f": checks ok {len(checks) - len(not_ok)}, warnings {len(not_ok)}. This step holds and stops nothing yet."
        )
        return ActionPreview(
            text=text,
            exact=exact,
            values={"warnings": len(not_ok)},
            rows=rows,
        )

    def run(self, settings: StepSettings, context: ActionContext, control: Control) -> ActionResult:
        config = cluster_config(context, settings.cluster)
        found = survey(settings.cluster, config, context.clock, to=settings.to)
        plan = make_plan(settings, config, found, context, found.primaries[0])
        plan = _write_mark(config, _take_lock_slot(settings, config, plan, context), context)
        make_slots(plan, config, context)
        control.report_progress(f"CHECKPOINT on {plan.old}")
        with open_node(config.nodes[plan.old].dsn, context) as connection:
            connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        return ActionResult(
            state="ok", text=f"from {plan.old} to {plan.to}, system identifier {plan.system_identifier}", undo={}
        )

    def settle(self, settings: StepSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return settle_begin(self, settings, context)

    def undo(
        self, settings: StepSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        return drop_made_slots(settings, context)


def _take_lock_slot(
    settings: StepSettings, config: ClusterConfig, plan: CutoverPlan, context: ActionContext
) -> CutoverPlan:
    """Create the lock slot on the primary: only one cutover of a cluster can have it. Raises Refused if it exists."""
    try:
        already_taken = load_plan(context, settings.cluster, settings.to).has_lock_slot
    except Refused:
        already_taken = False
    with open_node(config.nodes[plan.old].dsn, context) as connection:
        try:
            connection.execute_change(_MAKE_LOCK_SLOT, {"name": LOCK_SLOT}, transaction=False)
        except StatementFailed as error:
            if error.sqlstate == _NO_SLOT_FREE:
                return plan
            if error.sqlstate != _DUPLICATE:
                raise
            if not already_taken:
                raise Refused(
                    f"another cutover of {plan.cluster} is running: {plan.old} has the slot {LOCK_SLOT}; "
                    f"if none is running, "
                    f"execute there: SELECT pg_drop_replication_slot('{LOCK_SLOT}')"
                ) from None
    plan = replace(plan, has_lock_slot=True)
    save_plan(context, plan)
    return plan


def _write_mark(config: ClusterConfig, plan: CutoverPlan, context: ActionContext) -> CutoverPlan:
    """Make the cutover visible to every operator, before anything else is changed."""
    with open_node(config.nodes[plan.old].dsn, context) as connection:
        [role] = connection.rows(SUPERUSER)
        plan = replace(plan, mark=(mark := new_mark(plan, role["who"], context)))
        save_plan(context, plan)
        write_mark(connection, mark)
    write_mark_file(Cutover(plan, config, context).control(plan.old), mark)
    return plan


def _check_directory(server: ServerControl, plan: CutoverPlan) -> None:
    """Raise Refused if the directory belongs to another server, which would be stopped instead of the old primary."""
    found = server.control_file().system_identifier
    if found != plan.system_identifier:
        raise Refused(
            f"{server.data_directory} on {server.host.name} belongs to another server than {plan.old}: its system "
            f"identifier is {found}, not {plan.system_identifier}",
            hint=f"set ssh and data_directory of {plan.old}",
        )
