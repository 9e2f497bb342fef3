"""The plan of a cutover or failover as it begins: nodes, their directories, and the slots made for their future."""

from __future__ import annotations

from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionResult
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_plan import (
    LOCK_SLOT,
    CutoverPlan,
    NodePlan,
    load_plan,
    node_address,
    save_plan,
    slot_name,
)
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.pooler_file import check_file
from dba_console.clusters.steps.manager_switchover import manager_plan
from dba_console.clusters.steps.mark_stage import remove_marks
from dba_console.clusters.steps.step import Cutover, CutoverStep, StepSettings, load_cutover, open_node
from dba_console.clusters.survey import Survey
from dba_console.core.clock import Clock
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.core.errors import ConfigError, ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

SUPERUSER = "SELECT pg_catalog.current_setting('is_superuser') = 'on' AS yes, current_user AS who"
_SLOTS = "SELECT slot_name::text AS name, active FROM pg_replication_slots WHERE slot_type = 'physical'"
_MAKE_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s, true)"
_DROP_SLOT = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"
_SLOT = "SELECT pg_catalog.current_setting('primary_slot_name') AS slot"


def make_plan(
    settings: StepSettings,
    config: ClusterConfig,
    found: Survey,
    context: ActionContext,
    old: NodeState,
    warnings: list[str] | None = None,
) -> CutoverPlan:
    """Return the plan. Raises ConsoleError if a node cannot be read, or the role lacks privileges for a cutover.

    With `warnings` a third node that cannot be used is left out, with a warning.
    """
    target = found.node(settings.to)
    if target is None or target.system_identifier is None or target.timeline is None or target.version_num is None:
        raise Refused(f"this role may not read the identity of {settings.to}", hint="its dsn must use a superuser")
    manager = None if warnings is not None else manager_plan(found, old.name, settings.to)
    nodes = {}
    for node in found.nodes:
        directory = config.nodes[node.name].data_directory or ""
        nodes[node.name] = NodePlan(data_directory=directory, slot=slot_name(node.name), reached=False)
        if not node.reached:
            continue
        try:
            nodes[node.name] = _plan_node(settings, config, node.name, context, is_old=node is old)
        except ConsoleError as error:
            if warnings is None or node is target:
                raise
            warnings.append(clean(redact(f"{node.name} does not follow {settings.to}: {error.message}")))
        if manager is not None:  # it has its own slots, and drops others
            nodes[node.name] = replace(nodes[node.name], slot="")
    return CutoverPlan(
        cluster=settings.cluster,
        kind="cutover",
        old=old.name,
        to=settings.to,
        system_identifier=target.system_identifier,
        timeline=target.timeline,
        version_num=target.version_num,
        nodes=nodes,
        databases={
            pooler.name: tuple(one.name for one in pooler.databases) for pooler in found.poolers if pooler.reached
        },
        manager=manager,
    )


def _plan_node(
    settings: StepSettings, config: ClusterConfig, name: str, context: ActionContext, *, is_old: bool
) -> NodePlan:
    with open_node(config.nodes[name].dsn, context) as connection:
        [role] = connection.rows(SUPERUSER)
        if not role["yes"]:
            raise Refused(
                f"{role['who']} is not a superuser on {name}: it cannot promote or reconfigure the server",
                hint=f"the dsn of [clusters.{settings.cluster}.nodes.{name}] must use a superuser",
            )
        directory, programs = find_directories(connection, name, config.nodes[name], context.clock)
        [slot] = connection.rows(_SLOT)
    # A standby without a slot stays without one: a slot on the new primary that it does not use would retain WAL.
    slot_of_old = slot_name(name) if is_old else ""
    return NodePlan(data_directory=directory, bin_directory=programs, slot=slot["slot"] or slot_of_old)


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


def check_pooler_files(config: ClusterConfig, plan: CutoverPlan, context: ActionContext) -> None:
    """Raise ConsoleError if a pooler's file cannot be changed: after the promotion it is too late to find out."""
    old, to = (node_address(config.nodes[name]) for name in (plan.old, plan.to))
    for name, databases in plan.databases.items():
        if config.poolers[name].config is not None:
            check_file(name, config.poolers[name], databases, old, to, context.clock)


def make_slots(plan: CutoverPlan, config: ClusterConfig, context: ActionContext) -> None:
    """Save the plan, and create the slots of the nodes that will follow the new primary."""
    with open_node(config.nodes[plan.to].dsn, context) as connection:
        existing = {row["name"] for row in connection.rows(_SLOTS)}
        needed = {plan.nodes[name].slot for name in (plan.old, *plan.others)} - {""}
        # The plan is saved first: slots must be known even if the agent dies right after creating them.
        plan = replace(plan, slots_made=tuple(sorted(needed - existing)))
        save_plan(context, plan)
        for name in plan.slots_made:
            connection.execute_change(_MAKE_SLOT, {"name": name}, transaction=False)


def drop_made_slots(settings: StepSettings, context: ActionContext) -> ActionResult:
    """Drop the slots that the begin of a cutover or failover has created."""
    try:
        at = load_cutover(settings, context)
    except Refused:
        return ActionResult(state="ok", text="no slot was created")
    removed = remove_marks(at)
    slots_made = {at.plan.to: at.plan.slots_made, at.plan.old: (LOCK_SLOT,) if at.plan.has_lock_slot else ()}
    texts, failures = [], [] if removed is None else [removed]
    for node, names in slots_made.items():
        if not names:
            continue
        try:
            dropped = drop_slots(at, node, names)
            texts.append(f"slots dropped on {node}: {', '.join(dropped) or 'none'}")
        except ConsoleError as error:
            drops = "; ".join(f"SELECT pg_drop_replication_slot('{name}')" for name in names)
            failures.append(f"{node} retains WAL for its slots until this is executed there: {drops} ({error.message})")
    if failures:
        return ActionResult(state="failed", text=clean(redact("; ".join([*texts, *failures]))))
    return ActionResult(state="ok", text="; ".join(texts) or "no slot was created")


def drop_slots(at: Cutover, node: str, names: tuple[str, ...]) -> list[str]:
    with at.connect(node) as (connection, _):
        found = [row["name"] for row in connection.rows(_SLOTS) if row["name"] in names and not row["active"]]
        for name in found:
            connection.execute_change(_DROP_SLOT, {"name": name}, transaction=False)
    return found


def settle_begin(step: CutoverStep, settings: StepSettings, context: ActionContext) -> ActionResult:
    """Return the outcome of an interrupted begin: it can be repeated."""
    try:
        load_plan(context, settings.cluster, settings.to)
    except Refused as error:
        return ActionResult(state="failed", text=error.message, again=True)
    return step.retry_result("the preparation is incomplete")


def refusal_text(blocking: list[ClusterCheck]) -> str:
    more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
    return clean(f"not ready: {blocking[0].text}{more}")
