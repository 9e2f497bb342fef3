"""The first step of a cutover: the cluster is ready, and what the cutover acts on is written down."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.connection_api import StatementFailed
from dba_console.clock import Clock
from dba_console.clusters.checks import Check
from dba_console.clusters.control import ServerControl
from dba_console.clusters.failover import dead_primary, failover_readiness, loss
from dba_console.clusters.plan import (
    ALONE,
    CutoverPlan,
    NodePlan,
    cluster_of,
    load_plan,
    node_address,
    save_plan,
    slot_name,
)
from dba_console.clusters.pooler_file import check_file
from dba_console.clusters.readiness import readiness
from dba_console.clusters.steps.managed import check_by_manager, manager_plan, shown
from dba_console.clusters.steps.step import Cutover, Step, StepSettings, cutover, open_node
from dba_console.clusters.survey import Survey, survey
from dba_console.config import ClusterConfig, NodeConfig
from dba_console.errors import ConfigError, ConsoleError, Refused
from dba_console.redact import redact
from dba_console.sanitize import clean

CHECKPOINT_S = 3600.0
_SUPERUSER = "SELECT pg_catalog.current_setting('is_superuser') = 'on' AS yes, current_user AS who"
_SLOTS = "SELECT slot_name::text AS name, active FROM pg_replication_slots WHERE slot_type = 'physical'"
_MAKE_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s, true)"
_MAKE_ALONE = "SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s)"
_DROP_SLOT = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"
_DUPLICATE, _NO_SLOT_FREE = "42710", "53400"
_SLOT = "SELECT pg_catalog.current_setting('primary_slot_name') AS slot"


class BeginSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Literal["cutover", "failover"] = "cutover"
    """A cutover has a primary that hands over; in a failover it is dead."""


class Begin(Step):
    """Implements `Action`."""

    name: ClassVar[str] = "cutover-begin"
    summary: ClassVar[str] = (
        "Checks that the cluster is ready for a cutover to a node, as `dba-console cluster check` does, and writes "
        "down what the cutover acts on: nodes, data directories, databases of the poolers. Then it makes the "
        "replication slots of the nodes that will follow on the new primary, and a CHECKPOINT on the old one, so that "
        "the one at its stop is short. On a cluster that Patroni or repmgr manages, its switchover is written down "
        "instead of slots. Refuses where the cluster is not ready. With `kind = failover` it checks "
        "instead that the primary is dead, and what is lost by promoting the node."
    )
    Settings: ClassVar[type[Struct]] = BeginSettings
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)
    may_shrink: ClassVar[bool] = True
    """A condition that has become good meanwhile needs no new confirmation."""

    def preview(self, settings: BeginSettings, world: ActionContext) -> ActionPreview:
        config = cluster_of(world, settings.cluster)
        found = survey(settings.cluster, config, world.clock, to=settings.to)
        failover = settings.kind == "failover"
        checks = failover_readiness(found, settings.to) if failover else readiness(found, settings.to)
        bad = [one for one in checks if one.state == "failed" or (one.state == "unknown" and not failover)]
        noted = [one for one in checks if one.state != "ok"]
        rows = tuple(
            {"id": one.id, "state": one.state, "what": clean(one.text), "fix": clean(one.fix)} for one in noted
        )
        if bad:
            text = f"{settings.cluster} is not ready for a {settings.kind} to {settings.to}."
            return ActionPreview(text=text, exact="", rows=rows, refusal=_first(bad), hint=clean(bad[0].fix) or None)
        plan = _plan(settings, config, found, world)
        _check_pooler_files(config, plan, world)
        check_by_manager(Cutover(plan, config, world))
        promote = f"on {settings.to}: SELECT pg_promote()"
        if failover:
            text = f"{plan.old} is dead; {settings.to} takes over on timeline {plan.timeline + 1} or later."
            return ActionPreview(text=text, exact=f"keep {plan.old} from starting as a primary; {promote}", rows=rows)
        if plan.manager is not None:
            exact = f"hold clients; {shown(plan.manager)}"
        else:
            server = _control(config, plan, world)
            _check_directory(server, plan)
            exact = f"hold clients; on {plan.old}: {shlex.join(server.stop_command())}; {promote}"
        by = f", by the switchover of {plan.manager.kind}" if plan.manager is not None else ""
        return ActionPreview(
            text=f"{plan.old} (timeline {plan.timeline}) hands over to {settings.to}{by}: "
            f"{len(checks) - len(noted)} conditions hold, {len(noted)} warnings.",
            exact=exact,
            values={"warnings": len(noted)},
            rows=rows,
        )

    def do(self, settings: BeginSettings, world: ActionContext, control: Control) -> ActionResult:
        config = cluster_of(world, settings.cluster)
        plan = _plan(settings, config, survey(settings.cluster, config, world.clock, to=settings.to), world)
        if plan.kind == "cutover":
            plan = _alone(settings, config, plan, world)
        with open_node(config.nodes[plan.to].dsn, world) as link:
            there = {row["name"] for row in link.rows(_SLOTS)}
            wanted = {plan.nodes[name].slot for name in (plan.old, *plan.others)} - {""}
            # Written down first: what is made must be known where this is the last thing that is done.
            plan = replace(plan, slots_made=tuple(sorted(wanted - there)))
            save_plan(world, plan)
            for name in plan.slots_made:
                link.execute_change(_MAKE_SLOT, {"name": name}, transaction=False)
        if plan.kind == "cutover":
            control.report_progress(f"CHECKPOINT on {plan.old}")
            with open_node(config.nodes[plan.old].dsn, world) as link:
                link.execute("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        return ActionResult(
            state="ok", text=f"from {plan.old} to {plan.to}, system identifier {plan.system_identifier}", undo={}
        )

    def settle(self, settings: BeginSettings, sight: ActionPreview, world: ActionContext) -> ActionResult:
        try:
            load_plan(world, settings.cluster, settings.to)
        except Refused as error:
            return ActionResult(state="failed", text=error.message, again=True)
        return self.again("not everything was prepared")

    def undo(
        self, settings: BeginSettings, data: Mapping[str, Any], world: ActionContext, control: Control
    ) -> ActionResult:
        try:
            at = cutover(settings, world)
        except Refused:
            return ActionResult(state="ok", text="nothing was made")
        made = {at.plan.to: at.plan.slots_made, at.plan.old: (ALONE,) if at.plan.alone else ()}
        told, left = [], []
        for node, names in made.items():
            if not names:
                continue
            try:
                dropped = _drop(at, node, names)
                told.append(f"slots dropped on {node}: {', '.join(dropped) or 'none'}")
            except ConsoleError as error:
                drops = "; ".join(f"SELECT pg_drop_replication_slot('{name}')" for name in names)
                left.append(f"{node} keeps WAL for its slots until this is executed there: {drops} ({error.message})")
        if left:
            return ActionResult(state="failed", text=clean(redact("; ".join([*told, *left]))))
        return ActionResult(state="ok", text="; ".join(told) or "nothing was made")


def _alone(settings: BeginSettings, config: ClusterConfig, plan: CutoverPlan, world: ActionContext) -> CutoverPlan:
    """Make the slot that only one cutover of a cluster can have, on the primary. Raises Refused where there is one."""
    try:
        before = load_plan(world, settings.cluster, settings.to).alone
    except Refused:
        before = False
    with open_node(config.nodes[plan.old].dsn, world) as link:
        try:
            link.execute_change(_MAKE_ALONE, {"name": ALONE}, transaction=False)
        except StatementFailed as error:
            if error.sqlstate == _NO_SLOT_FREE:
                return plan
            if error.sqlstate != _DUPLICATE:
                raise
            if not before:
                raise Refused(
                    f"another cutover of {plan.cluster} is under way: {plan.old} has the slot {ALONE}; where none is, "
                    f"execute there: SELECT pg_drop_replication_slot('{ALONE}')"
                ) from None
    plan = replace(plan, alone=True)
    save_plan(world, plan)
    return plan


def _drop(at: Cutover, node: str, names: tuple[str, ...]) -> list[str]:
    with at.link(node) as (link, _):
        found = [row["name"] for row in link.rows(_SLOTS) if row["name"] in names and not row["active"]]
        for name in found:
            link.execute_change(_DROP_SLOT, {"name": name}, transaction=False)
    return found


def _plan(settings: BeginSettings, config: ClusterConfig, found: Survey, world: ActionContext) -> CutoverPlan:
    """Raises ConsoleError where a node cannot be asked, or the role may not do what a cutover needs."""
    known = found.node(settings.to)
    failover = settings.kind == "failover"
    old = dead_primary(found) if failover else found.primaries[0]
    if old is None:
        raise Refused("it is not known which node was the primary", hint="it would have to be fenced")
    if known is None or known.system_identifier is None or known.timeline is None or known.version_num is None:
        raise Refused(f"{settings.to} does not say which server it is", hint="its dsn needs a superuser")
    manager = None if failover else manager_plan(found, old.name, settings.to)
    nodes = {}
    for node in found.nodes:
        if node.reached:
            nodes[node.name] = _node(settings, config, node.name, world)
            if manager is not None:  # it has slots of its own, and drops what it does not know
                nodes[node.name] = replace(nodes[node.name], slot="")
        else:
            directory = config.nodes[node.name].data_directory or ""
            nodes[node.name] = NodePlan(data_directory=directory, slot=slot_name(node.name), reached=False)
    return CutoverPlan(
        cluster=settings.cluster,
        kind=settings.kind,
        old=old.name,
        to=settings.to,
        system_identifier=known.system_identifier,
        timeline=known.timeline,
        version_num=known.version_num,
        nodes=nodes,
        databases={
            pooler.name: tuple(one.name for one in pooler.databases) for pooler in found.poolers if pooler.reached
        },
        lost_bytes=loss(found, known).bytes if failover else None,
        manager=manager,
    )


def _check_pooler_files(config: ClusterConfig, plan: CutoverPlan, world: ActionContext) -> None:
    """Raises ConsoleError where a pooler could not be led to the new primary: after the promotion that is too late."""
    old, to = (node_address(config.nodes[name]) for name in (plan.old, plan.to))
    for name, databases in plan.databases.items():
        if config.poolers[name].config is not None:
            check_file(name, config.poolers[name], databases, old, to, world.clock)


def _node(settings: BeginSettings, config: ClusterConfig, name: str, world: ActionContext) -> NodePlan:
    with open_node(config.nodes[name].dsn, world) as link:
        [role] = link.rows(_SUPERUSER)
        if not role["yes"]:
            raise Refused(
                f"{role['who']} is not a superuser on {name}: it could not stop, promote or follow",
                hint=f"dsn of [clusters.{settings.cluster}.nodes.{name}] needs one",
            )
        directory, programs = discover(link, name, config.nodes[name], world.clock)
        [slot] = link.rows(_SLOT)
    return NodePlan(data_directory=directory, bin_directory=programs, slot=slot["slot"] or slot_name(name))


def discover(operator: ActingConnection, name: str, config: NodeConfig, clock: Clock) -> tuple[str, str | None]:
    """The data directory and the program directory of a running server: as configured, else as it says itself.

    Raises ConsoleError where the data directory is not known. None: the last start's options name the programs.
    """
    directory = config.data_directory
    if directory is None:
        try:
            directory = str(operator.rows("SELECT current_setting('data_directory') AS value")[0]["value"])
        except StatementFailed as error:
            raise ConfigError(
                f"the data directory of {name} is not known: {error.message}",
                hint=f"grant pg_read_all_settings to the role, or set data_directory of {name}",
            ) from error
    programs = config.bin_directory
    if programs is None:
        try:
            rows = operator.rows("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
            programs = str(rows[0]["setting"]) if rows else None
        except StatementFailed:
            pass  # may be read by pg_read_all_settings only
    return directory, programs


def _control(config: ClusterConfig, plan: CutoverPlan, world: ActionContext) -> ServerControl:
    node = plan.nodes[plan.old]
    return ServerControl(plan.old, config.nodes[plan.old], node.data_directory, node.bin_directory, world.clock)


def _check_directory(server: ServerControl, plan: CutoverPlan) -> None:
    """Raise where the directory, which a server may have named itself, is that of another server: it would be stopped
    in the place of the old primary."""
    found = server.control_file().system_identifier
    if found != plan.system_identifier:
        raise Refused(
            f"{server.data_directory} on {server.host.name} belongs to another server than {plan.old}: its system "
            f"identifier is {found}, not {plan.system_identifier}",
            hint=f"set ssh and data_directory of {plan.old}",
        )


def _first(bad: list[Check]) -> str:
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return clean(f"not ready: {bad[0].text}{more}")
