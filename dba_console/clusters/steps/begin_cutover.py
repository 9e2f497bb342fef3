"""The step cutover-begin: check that the cluster is ready, and save the plan of the cutover."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_plan import (
    LOCK_SLOT,
    CutoverPlan,
    NodePlan,
    cluster_config,
    load_plan,
    node_address,
    save_plan,
    slot_name,
)
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.failover_readiness import dead_primary, estimate_loss, failover_readiness
from dba_console.clusters.pooler_file import check_file
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.manager_switchover import check_by_manager, manager_plan, switchover_text
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings, load_cutover, open_node
from dba_console.clusters.survey import Survey, survey
from dba_console.core.clock import Clock
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.errors import ConfigError, ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

CHECKPOINT_S = 3600.0
_SUPERUSER = "SELECT pg_catalog.current_setting('is_superuser') = 'on' AS yes, current_user AS who"
_SLOTS = "SELECT slot_name::text AS name, active FROM pg_replication_slots WHERE slot_type = 'physical'"
_MAKE_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s, true)"
_MAKE_LOCK_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s)"
_DROP_SLOT = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"
_DUPLICATE, _NO_SLOT_FREE = "42710", "53400"
_SLOT = "SELECT pg_catalog.current_setting('primary_slot_name') AS slot"


class BeginSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Literal["cutover", "failover"] = "cutover"
    """In a cutover the primary is running; in a failover it is dead."""


class BeginCutover(CutoverStep):
    name: ClassVar[str] = "cutover-begin"
    summary: ClassVar[str] = (
        "Checks that the cluster is ready for a cutover to a node, as `dba-console cluster check` does, and saves the "
        "plan of the cutover: nodes, data directories, databases of the poolers. Then it creates the replication slots "
        "of the nodes that will follow on the new primary, and runs a CHECKPOINT on the old one, so that the one at "
        "its stop is short. On a cluster managed by Patroni or repmgr, the plan has its switchover instead of slots. "
        "Refuses if the cluster is not ready. With `kind = failover` it checks instead that the primary is dead, and "
        "how much data the promotion of the node loses."
    )
    Settings: ClassVar[type[Struct]] = BeginSettings
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)
    may_shrink: ClassVar[bool] = True
    """A check that has become ok meanwhile needs no new confirmation."""

    def preview(self, settings: BeginSettings, context: ActionContext) -> ActionPreview:
        config = cluster_config(context, settings.cluster)
        found = survey(settings.cluster, config, context.clock, to=settings.to)
        failover = settings.kind == "failover"
        checks = failover_readiness(found, settings.to) if failover else cutover_readiness(found, settings.to)
        blocking = [one for one in checks if one.state == "failed" or (one.state == "unknown" and not failover)]
        not_ok = [one for one in checks if one.state != "ok"]
        rows = tuple(
            {"id": one.id, "state": one.state, "what": clean(one.text), "fix": clean(one.fix)} for one in not_ok
        )
        if blocking:
            text = f"{settings.cluster} is not ready for a {settings.kind} to {settings.to}."
            return ActionPreview(
                text=text, exact="", rows=rows, refusal=_refusal_text(blocking), hint=clean(blocking[0].fix) or None
            )
        plan = _make_plan(settings, config, found, context)
        _check_pooler_files(config, plan, context)
        at = Cutover(plan, config, context)
        check_by_manager(at)
        promote = f"on {settings.to}: SELECT pg_promote()"
        if failover:
            text = f"{plan.old} is dead; {settings.to} becomes the primary, on timeline {plan.timeline + 1} or later."
            return ActionPreview(text=text, exact=f"fence {plan.old}; {promote}", rows=rows)
        if plan.manager is not None:
            exact = f"hold clients; {switchover_text(plan.manager)}"
        else:
            server = at.control(plan.old)
            _check_directory(server, plan)
            exact = f"hold clients; on {plan.old}: {shlex.join(server.stop_command())}; {promote}"
        by_manager = f", by the switchover of {plan.manager.kind}" if plan.manager is not None else ""
        return ActionPreview(
            text=f"Switch the primary from {plan.old} (timeline {plan.timeline}) to {settings.to}{by_manager}: "
            f"{len(checks) - len(not_ok)} checks ok, {len(not_ok)} warnings.",
            exact=exact,
            values={"warnings": len(not_ok)},
            rows=rows,
        )

    def run(self, settings: BeginSettings, context: ActionContext, control: Control) -> ActionResult:
        config = cluster_config(context, settings.cluster)
        plan = _make_plan(settings, config, survey(settings.cluster, config, context.clock, to=settings.to), context)
        if plan.kind == "cutover":
            plan = _take_lock_slot(settings, config, plan, context)
        with open_node(config.nodes[plan.to].dsn, context) as connection:
            existing = {row["name"] for row in connection.rows(_SLOTS)}
            needed = {plan.nodes[name].slot for name in (plan.old, *plan.others)} - {""}
            # The plan is saved first: slots must be known even if the agent dies right after creating them.
            plan = replace(plan, slots_made=tuple(sorted(needed - existing)))
            save_plan(context, plan)
            for name in plan.slots_made:
                connection.execute_change(_MAKE_SLOT, {"name": name}, transaction=False)
        if plan.kind == "cutover":
            control.report_progress(f"CHECKPOINT on {plan.old}")
            with open_node(config.nodes[plan.old].dsn, context) as connection:
                connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        return ActionResult(
            state="ok", text=f"from {plan.old} to {plan.to}, system identifier {plan.system_identifier}", undo={}
        )

    def settle(self, settings: BeginSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        try:
            load_plan(context, settings.cluster, settings.to)
        except Refused as error:
            return ActionResult(state="failed", text=error.message, again=True)
        return self.retry_result("the preparation is incomplete")

    def undo(
        self, settings: BeginSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        try:
            at = load_cutover(settings, context)
        except Refused:
            return ActionResult(state="ok", text="no slot was created")
        slots_made = {at.plan.to: at.plan.slots_made, at.plan.old: (LOCK_SLOT,) if at.plan.has_lock_slot else ()}
        texts, failures = [], []
        for node, names in slots_made.items():
            if not names:
                continue
            try:
                dropped = _drop_slots(at, node, names)
                texts.append(f"slots dropped on {node}: {', '.join(dropped) or 'none'}")
            except ConsoleError as error:
                drops = "; ".join(f"SELECT pg_drop_replication_slot('{name}')" for name in names)
                failures.append(
                    f"{node} retains WAL for its slots until this is executed there: {drops} ({error.message})"
                )
        if failures:
            return ActionResult(state="failed", text=clean(redact("; ".join([*texts, *failures]))))
        return ActionResult(state="ok", text="; ".join(texts) or "no slot was created")


def _take_lock_slot(
    settings: BeginSettings, config: ClusterConfig, plan: CutoverPlan, context: ActionContext
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


def _drop_slots(at: Cutover, node: str, names: tuple[str, ...]) -> list[str]:
    with at.connect(node) as (connection, _):
        found = [row["name"] for row in connection.rows(_SLOTS) if row["name"] in names and not row["active"]]
        for name in found:
            connection.execute_change(_DROP_SLOT, {"name": name}, transaction=False)
    return found


def _make_plan(settings: BeginSettings, config: ClusterConfig, found: Survey, context: ActionContext) -> CutoverPlan:
    """Return the plan. Raises ConsoleError if a node cannot be read, or the role lacks privileges for a cutover."""
    target = found.node(settings.to)
    failover = settings.kind == "failover"
    old = dead_primary(found) if failover else found.primaries[0]
    if old is None:
        raise Refused("it is unknown which node was the primary", hint="it must be fenced before a promotion")
    if target is None or target.system_identifier is None or target.timeline is None or target.version_num is None:
        raise Refused(f"this role may not read the identity of {settings.to}", hint="its dsn must use a superuser")
    manager = None if failover else manager_plan(found, old.name, settings.to)
    nodes = {}
    for node in found.nodes:
        if node.reached:
            nodes[node.name] = _plan_node(settings, config, node.name, context)
            if manager is not None:  # it has its own slots, and drops others
                nodes[node.name] = replace(nodes[node.name], slot="")
        else:
            directory = config.nodes[node.name].data_directory or ""
            nodes[node.name] = NodePlan(data_directory=directory, slot=slot_name(node.name), reached=False)
    return CutoverPlan(
        cluster=settings.cluster,
        kind=settings.kind,
        old=old.name,
        to=settings.to,
        system_identifier=target.system_identifier,
        timeline=target.timeline,
        version_num=target.version_num,
        nodes=nodes,
        databases={
            pooler.name: tuple(one.name for one in pooler.databases) for pooler in found.poolers if pooler.reached
        },
        lost_bytes=estimate_loss(found, target).bytes if failover else None,
        manager=manager,
    )


def _check_pooler_files(config: ClusterConfig, plan: CutoverPlan, context: ActionContext) -> None:
    """Raise ConsoleError if a pooler's file cannot be changed: after the promotion it is too late to find out."""
    old, to = (node_address(config.nodes[name]) for name in (plan.old, plan.to))
    for name, databases in plan.databases.items():
        if config.poolers[name].config is not None:
            check_file(name, config.poolers[name], databases, old, to, context.clock)


def _plan_node(settings: BeginSettings, config: ClusterConfig, name: str, context: ActionContext) -> NodePlan:
    with open_node(config.nodes[name].dsn, context) as connection:
        [role] = connection.rows(_SUPERUSER)
        if not role["yes"]:
            raise Refused(
                f"{role['who']} is not a superuser on {name}: it cannot promote or reconfigure the server",
                hint=f"the dsn of [clusters.{settings.cluster}.nodes.{name}] must use a superuser",
            )
        directory, programs = find_directories(connection, name, config.nodes[name], context.clock)
        [slot] = connection.rows(_SLOT)
    return NodePlan(data_directory=directory, bin_directory=programs, slot=slot["slot"] or slot_name(name))


def find_directories(
    connection: ActingConnection, name: str, config: NodeConfig, clock: Clock
) -> tuple[str, str | None]:
    """Return data directory and program directory of a running server: as configured, else as the server reports.

    Raises ConsoleError if the data directory is unknown. None: use the programs of the last start's options.
    """
    directory = config.data_directory
    if directory is None:
        try:
            directory = str(connection.rows("SELECT current_setting('data_directory') AS value")[0]["value"])
        except StatementFailed as error:
            raise ConfigError(
                f"the data directory of {name} is unknown: {error.message}",
                hint=f"grant pg_read_all_settings to the role, or set data_directory of {name}",
            ) from error
    programs = config.bin_directory
    if programs is None:
        try:
            rows = connection.rows("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
            programs = str(rows[0]["setting"]) if rows else None
        except StatementFailed:
            pass  # readable for pg_read_all_settings only
    return directory, programs


def _check_directory(server: ServerControl, plan: CutoverPlan) -> None:
    """Raise Refused if the directory belongs to another server, which would be stopped instead of the old primary."""
    found = server.control_file().system_identifier
    if found != plan.system_identifier:
        raise Refused(
            f"{server.data_directory} on {server.host.name} belongs to another server than {plan.old}: its system "
            f"identifier is {found}, not {plan.system_identifier}",
            hint=f"set ssh and data_directory of {plan.old}",
        )


def _refusal_text(blocking: list[ClusterCheck]) -> str:
    more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
    return clean(f"not ready: {blocking[0].text}{more}")
