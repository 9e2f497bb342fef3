"""Steps that hold clients: pooled ones with PAUSE, all others with a connection limit of 0.

The limit is stored in pg_database and replicated: it is reverted on the node that is primary at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cutover_mark import CHECKED, HELD, HOLDING
from dba_console.clusters.cutover_plan import save_plan
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.pooler_state import quote_name
from dba_console.clusters.steps.manager_switchover import spared_sessions
from dba_console.clusters.steps.mark_stage import show_stage, stage_statements
from dba_console.clusters.steps.second_primary import refuse_clients
from dba_console.clusters.steps.step import (
    APPLICATION,
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
)
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

CHECKPOINT_S = 3600.0
_LIMITS = """
SELECT datname::text AS database, datconnlimit AS connections,
       'ALTER DATABASE ' || quote_ident(datname) || ' CONNECTION LIMIT ' AS statement,
       datname IN (SELECT a.datname FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid AND NOT r.rolsuper
                    WHERE a.application_name LIKE ANY (%(spared)s::text[]) AND a.pid <> pg_backend_pid()) AS needed
  FROM pg_database WHERE datallowconn AND datconnlimit >= -1 ORDER BY datname
"""
"""`needed`: a cluster manager uses the database, and its role is not a superuser, so the limit would block it too."""
CLIENT = f"""backend_type = 'client backend' AND pid <> pg_backend_pid()
         AND NOT (starts_with(application_name, '{APPLICATION}') AND usename = current_user)
         AND NOT application_name LIKE ANY (%(spared)s::text[])"""
"""Any client could use our application_name: it counts only with our own role. `spared`: those of a manager."""
END_SESSIONS = f"""
SELECT count(pg_terminate_backend(pid))::int4 FROM pg_stat_activity WHERE {CLIENT}
"""


class PausePoolers(CutoverStep):
    name: ClassVar[str] = "cutover-pause"
    summary: ClassVar[str] = (
        "Runs a CHECKPOINT on the old primary, then PAUSE on every pooler of the cluster, each with the time limit: "
        "PgBouncer waits until transactions end "
        "(in session mode until clients disconnect). When the limit is exceeded, everything is resumed."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    undoable: ClassVar[bool] = True

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        if not at.plan.databases:
            return ActionPreview(text="No pooler is configured: only the connection limit blocks clients.",
            exact="",
                         done=True)  # fmt: skip
        named = [f"{database} of {name}" for name, each in at.plan.databases.items() for database in each]
        warnings = [one for _, admin, databases in at.poolers() for one in admin.pause_warnings(databases)]
        exact = "; ".join(f"PAUSE {database}" for each in at.plan.databases.values() for database in each)
        text = "; ".join([f"Clients of {', '.join(named)} wait from now on", *warnings])
        return ActionPreview(text=f"{text}.", exact=exact, done=_all_paused(at))

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        if at.plan.kind == "cutover":
            with at.connect(at.plan.old) as (connection, _):
                # Pages written now need not be written while clients wait.
                control.report_progress(f"CHECKPOINT on {at.plan.old}")
                connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
                limits = at.plan.pooler_settings | {name: admin.wait_limits() for name, admin, _ in at.poolers()}
                at = at._replace(plan=replace(at.plan, pooler_settings=limits))
                save_plan(at.context, at.plan)  # the settings must be known before they are changed
                show_stage(
                    at, connection, HOLDING, held_since_us=at.context.clock.wall_us(), poolers=at.plan.databases,
                    settings=limits,
                )  # fmt: skip
        paused: list[tuple[PoolerAdmin, tuple[str, ...]]] = []
        for name, admin, databases in at.poolers():
            control.report_progress(f"PAUSE on {name}")
            try:
                admin.lift_wait_limits(at.plan.pooler_settings.get(name, {}))  # before it: clients still work
                admin.pause(databases, settings.timeout_s, control.stop_requested)
            except ConsoleError as error:
                for one, names in [*paused, (admin, databases)]:
                    with suppress(ConsoleError):
                        one.resume(names)
                restore_wait_limits(at)
                return ActionResult(
                    state="failed", text="; ".join([error.message, *([error.hint] if error.hint else [])])
                )
            paused.append((admin, databases))
        return ActionResult(state="ok", text="all clients of the poolers are waiting", undo={})

    def find_outcome(self, at: Cutover, settings: TimedSettings) -> ActionResult:
        if _all_paused(at):
            return ActionResult(state="ok", text="every database is paused", undo={})
        return self.retry_result("not every database is paused")

    def revert(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        refuse_clients(at)
        for _, admin, databases in at.poolers():
            admin.resume(databases)
        restore_wait_limits(at)
        with suppress(ConsoleError), at.connect(at.plan.old) as (connection, _):
            show_stage(at, connection, CHECKED, held_since_us=None, poolers={})
        return ActionResult(state="ok", text="clients of the poolers are released")


def restore_wait_limits(at: Cutover) -> str:
    """Let the poolers disconnect clients that wait too long again, as before; return what could not be restored."""
    failed = []
    for name, admin, databases in at.poolers():
        if limits := at.plan.pooler_settings.get(name):
            try:
                admin.restore_wait_limits(limits, databases)
            except ConsoleError as error:
                sets = "; ".join(f"SET {setting} = '{value}'" for setting, value in limits.items())
                failed.append(f"on the admin console of {name}: {sets} ({error.message})")
    return clean(redact("; ".join(failed)))


def _all_paused(at: Cutover) -> bool:
    """Whether all clients are held, and no transaction is running."""
    return all(
        all(admin.paused(databases).values()) and not admin.blockers(databases) for _, admin, databases in at.poolers()
    )


class BlockConnections(CutoverStep):
    name: ClassVar[str] = "cutover-keep-out"
    summary: ClassVar[str] = (
        "Sets CONNECTION LIMIT 0 on every database of the primary and terminates the remaining sessions, so that "
        "clients that do not use a pooler cannot write. The limit does not apply to superusers: their sessions are "
        "terminated too. The old limits are saved, and restored on the new primary before clients are released. "
        "Sessions of a cluster manager stay, and a database that it uses with a role that is not a superuser gets no "
        "limit."
    )
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "repeating it is safe: the old limits are saved"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        plan = at.plan
        return ActionPreview(
            text=f"The databases of {plan.old} accept no new connections, and their sessions are terminated.",
            exact="for each database: ALTER DATABASE … CONNECTION LIMIT 0; then pg_terminate_backend of every session",
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        with at.connect(at.plan.old) as (connection, _):
            limits = [one for one in connection.rows(_LIMITS, spared_sessions(at.plan)) if not one["needed"]]
            # An earlier attempt may have set some of them: the first saved value is the original one.
            before = {one["database"]: one["connections"] for one in limits} | at.plan.limits
            save_plan(at.context, replace(at.plan, limits=before))
            closing = [f"{one['statement']}0" for one in limits if one["connections"] != 0]
            # In the same transaction: a standby that has the limits has the mark that shows the old ones.
            if closing := [*closing, *stage_statements(at, HELD, limits=before)]:
                connection.execute_change("; ".join(closing))
            ended = connection.execute_change(END_SESSIONS, spared_sessions(at.plan), transaction=False).rows[0][
                "count"
            ]
        return ActionResult(
            state="ok", text=f"{len(limits)} databases accept no connections, {ended} sessions terminated", undo={}
        )

    def revert(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        refuse_clients(at)
        try:
            with at.connect(at.plan.old) as (connection, _):
                return ActionResult(state="ok", text=restore_connection_limits(connection, at.plan.limits))
        except ConnectError as error:
            limits = "; ".join(
                f"ALTER DATABASE {quote_name(one)} CONNECTION LIMIT {n}" for one, n in at.plan.limits.items()
            )
            text = f"{at.plan.old} does not answer: {error.message}. Clients cannot log in there until this is executed"
            return ActionResult(state="failed", text=clean(redact(f"{text}: {limits}")))


def restore_connection_limits(connection: ActingConnection, limits: Mapping[str, int]) -> str:
    """Restore the connection limits; return a text about it."""
    connection.set_parameter("synchronous_commit", "local")  # the standby it would wait for may not follow yet
    changed = [
        one
        for one in connection.rows(_LIMITS, {"spared": []})
        if limits.get(one["database"], one["connections"]) != one["connections"]
    ]
    if changed:
        connection.execute_change("; ".join(f"{one['statement']}{limits[one['database']]}" for one in changed))
    return f"connection limits of {len(changed)} databases restored"
