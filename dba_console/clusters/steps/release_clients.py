"""Steps that connect clients to the new primary: repoint poolers and addresses, restore limits, RESUME."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionPreview, ActionResult, Control
from dba_console.clusters.current_conditions import parse_synchronous_names
from dba_console.clusters.cutover_plan import node_address
from dba_console.clusters.node_host import failure_text, run_command
from dba_console.clusters.pooler_file import change_file
from dba_console.clusters.steps.attach_standbys import WAIT_S, follow_new_primary, start_standby, streaming_problem
from dba_console.clusters.steps.hold_clients import restore_connection_limits
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    does_not_answer,
    remaining_seconds,
)
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

KNOWN_S = 1.0
"""Time within which the new primary counts a streaming standby as synchronous."""
_SYNCHRONOUS = """
SELECT current_setting('synchronous_standby_names') AS names,
       current_setting('synchronous_commit') IN ('off', 'local') AS relaxed,
       count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))::int4 AS there
  FROM pg_stat_replication
"""


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
        return ActionPreview(
            text=f"Point poolers and addresses to {at.plan.to}.", exact=clean(redact("; ".join(exact))), done=not exact
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        to = node_address(at.node(at.plan.to))
        count = 0
        for name, admin, databases in at.poolers():
            pooler = at.config.poolers[name]
            if pooler.config is None:
                continue
            control.report_progress(f"{pooler.config}: host={to[0]} port={to[1]}")
            change_file(name, pooler, databases, node_address(at.node(at.plan.old)), to, at.context.clock)
            admin.reload(dict.fromkeys(databases, to))
            count += 1
        for name, address in at.config.addresses.items():
            control.report_progress(f"address {name}")
            ended = run_command(
                address, cluster=at.plan.cluster, from_=at.plan.old, to=at.plan.to, undo=False, clock=at.context.clock
            )
            if (why := failure_text(f"address {name}", ended)) is not None:
                return ActionResult(state="failed", text=why)
        return ActionResult(
            state="ok", text=f"{count} poolers and {len(at.config.addresses)} addresses point to {at.plan.to}"
        )


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
                if (hang_reason := _commit_hang_reason(at, connection, settings.timeout_s, control)) is not None:
                    return ActionResult(state="failed", text=hang_reason)
                limits = restore_connection_limits(connection, at.plan.limits)
        except ConnectError as error:
            return ActionResult(state="failed", text=does_not_answer(at, at.plan.to, error, control))
        for _, admin, databases in at.poolers():
            admin.resume(databases)
        return ActionResult(state="ok", text=f"{limits}; clients write to {at.plan.to}")


def _commit_hang_reason(at: Cutover, connection: ActingConnection, timeout_s: float, control: Control) -> str | None:
    """Return why every commit would wait without limit; None: enough synchronous standbys follow, or none is needed.

    Nodes that are attached later anyway are attached now: the other nodes, then the old primary.
    """
    row = _synchronous(connection)
    if row["there"] >= row["needed"]:
        return None
    plan = at.plan
    led, lacking = [], []
    for name in plan.others if plan.manager is None else ():  # a manager does this itself
        control.report_progress(f"{name} follows {plan.to}: commits wait for it")
        try:
            follow_new_primary(at, name)
            led.append(name)
        except ConsoleError as error:
            lacking.append(f"{name}: {error.message}")
    returns = plan.manager is None and plan.kind == "cutover"
    if (led or not returns) and _enough_follow(at, connection, led, timeout_s, control):
        return None
    if returns:
        control.report_progress(f"{plan.old} returns as a standby: commits wait for it")
        try:
            why = start_standby(at, timeout_s)
        except ConsoleError as error:
            why = f"{plan.old}: {error.message}"
        if why is not None:
            lacking.append(why)
        elif _enough_follow(at, connection, [*led, plan.old], timeout_s, control):
            return None
    row = _synchronous(connection)
    more = f" ({'; '.join(lacking)})" if lacking else ""
    return clean(
        redact(
            f"every commit would hang, so clients are still held: synchronous_standby_names of {plan.to} is "
            f"{row['names']!r}, needs {row['needed']} such standbys and has {row['there']}{more}. On {plan.to}: ALTER "
            "SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf(); then retry"
        )
    )


def _enough_follow(
    at: Cutover, connection: ActingConnection, led: list[str], timeout_s: float, control: Control
) -> bool:
    """Wait until enough synchronous standbys follow, or all attached nodes stream and it is not enough."""
    for left in remaining_seconds(at.context, timeout_s):
        row = _synchronous(connection)
        if row["there"] >= row["needed"]:
            return True
        fresh = timeout_s - left < KNOWN_S
        if not fresh and at.plan.manager is None and all(streaming_problem(at, name) is None for name in led):
            break
        if control.wait(POLL_S if fresh else WAIT_S):
            break
    return False


def _synchronous(connection: ActingConnection) -> dict[str, Any]:
    """Return the setting, how many standbys a commit waits for, and how many there are."""
    [row] = connection.rows(_SYNCHRONOUS)
    waits = row["names"] and not row["relaxed"]
    return {**row, "needed": parse_synchronous_names(row["names"])[0] if waits else 0}
