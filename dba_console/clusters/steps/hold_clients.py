"""Steps that hold clients: schedulers with hooks, pooled clients with PAUSE, all others with a connection limit of 0.

The limit is stored in pg_database and replicated: it is reverted on the node that is primary at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionPreview, ActionResult, Control
from dba_console.clusters.cutover_plan import save_plan
from dba_console.clusters.node_host import failure_text, run_command
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.pooler_state import quote_name
from dba_console.clusters.steps.manager_switchover import spared_sessions
from dba_console.clusters.steps.step import (
    APPLICATION,
    POLL_S,
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    remaining_seconds,
)
from dba_console.core.errors import ConnectError, ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

CHECKPOINT_S = 3600.0
EQUAL_READINGS = 3
"""Consecutive equal WAL positions that prove that there are no writes."""
_LIMITS = """
SELECT datname::text AS database, datconnlimit AS connections,
       'ALTER DATABASE ' || quote_ident(datname) || ' CONNECTION LIMIT ' AS statement,
       datname IN (SELECT a.datname FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid AND NOT r.rolsuper
                    WHERE a.application_name LIKE ANY (%(spared)s::text[]) AND a.pid <> pg_backend_pid()) AS needed
  FROM pg_database WHERE datallowconn AND datconnlimit >= -1 ORDER BY datname
"""
"""`needed`: a cluster manager uses the database, and its role is not a superuser, so the limit would block it too."""
_CLIENT = f"""backend_type = 'client backend' AND pid <> pg_backend_pid()
         AND NOT (starts_with(application_name, '{APPLICATION}') AND usename = current_user)
         AND NOT application_name LIKE ANY (%(spared)s::text[])"""
"""Any client could use our application_name: it counts only with our own role. `spared`: those of a manager."""
_END_SESSIONS = f"""
SELECT count(pg_terminate_backend(pid))::int4 FROM pg_stat_activity WHERE {_CLIENT}
"""
_WRITE_ACTIVITY = f"""
SELECT pg_current_wal_insert_lsn()::text AS lsn,
       count(*) FILTER (WHERE {_CLIENT})::int4 AS clients,
       count(*) FILTER (WHERE backend_type = 'autovacuum worker')::int4 AS autovacuum,
       min(usename::text) FILTER (WHERE {_CLIENT}) AS example,
       (SELECT count(*)::int4 FROM pg_prepared_xacts) AS prepared
  FROM pg_stat_activity
"""
_STANDBY_STATE = """
SELECT (SELECT status FROM pg_stat_wal_receiver) AS receiver, pg_is_wal_replay_paused() AS paused,
       current_setting('recovery_min_apply_delay') AS delay
"""


class HookSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    release: bool = False
    """Run the undo commands of the hooks: schedulers continue."""


class RunHooks(CutoverStep):
    name: ClassVar[str] = "cutover-hooks"
    summary: ClassVar[str] = (
        "Runs the hooks of the cluster, which hold schedulers and other writers, or with `release` the commands that "
        "release them."
    )
    Settings: ClassVar[type[Struct]] = HookSettings
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "it is unknown which hooks have run; hooks must be safe to run twice"

    def show(self, at: Cutover, settings: HookSettings) -> ActionPreview:
        hooks = at.config.hooks
        names = ", ".join(hooks)
        if not hooks:
            return ActionPreview(text="No hooks are configured.", exact="", done=True)
        what = "release their writers" if settings.release else "hold their writers"
        commands = "; ".join(" ".join(one.undo if settings.release else one.run) for one in hooks.values())
        return ActionPreview(text=f"The hooks {names} {what}.", exact=clean(redact(commands)))

    def do(self, at: Cutover, settings: HookSettings, control: Control) -> ActionResult:
        return _run_hooks(at, release=settings.release)

    def revert(self, at: Cutover, settings: HookSettings, control: Control) -> ActionResult:
        return _run_hooks(at, release=not settings.release)


def _run_hooks(at: Cutover, *, release: bool) -> ActionResult:
    for name, hook in at.config.hooks.items():
        if release and not hook.undo:
            continue
        ended = run_command(
            hook, cluster=at.plan.cluster, from_=at.plan.old, to=at.plan.to, undo=release, clock=at.context.clock
        )
        if (why := failure_text(f"hook {name}", ended)) is not None:
            return ActionResult(state="failed", text=why)
    return ActionResult(state="ok", text=f"{len(at.config.hooks)} hooks", undo={})


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
        paused: list[tuple[PoolerAdmin, tuple[str, ...]]] = []
        for name, admin, databases in at.poolers():
            control.report_progress(f"PAUSE on {name}")
            try:
                admin.pause(databases, settings.timeout_s, control.stop_requested)
            except ConsoleError as error:
                for one, names in paused:
                    one.resume(names)
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
        for _, admin, databases in at.poolers():
            admin.resume(databases)
        return ActionResult(state="ok", text="clients of the poolers are released")


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
            if closing := [f"{one['statement']}0" for one in limits if one["connections"] != 0]:
                connection.execute_change("; ".join(closing))
            ended = connection.execute_change(_END_SESSIONS, spared_sessions(at.plan), transaction=False).rows[0][
                "count"
            ]
        return ActionResult(
            state="ok", text=f"{len(limits)} databases accept no connections, {ended} sessions terminated", undo={}
        )

    def revert(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
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


class WaitUntilNoWrites(CutoverStep):
    name: ClassVar[str] = "cutover-drain"
    summary: ClassVar[str] = (
        "Proves that there are no writes on the primary: no client sessions (those that reconnect are terminated "
        "again), no prepared transactions, and the same WAL insert position in three readings. Then it checks that the "
        "new primary streams and replays: otherwise the old one would be stopped in vain."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    safe_to_repeat: ClassVar[str] = "it only reads: repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        plan = at.plan
        return ActionPreview(
            text=f"Wait until there are no writes on {plan.old}.", exact="SELECT pg_current_wal_insert_lsn()"
        )

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        readings: list[str] = []
        row: dict[str, Any] = {}
        came_back, example = 0, ""
        with at.connect(at.plan.old) as (connection, _):
            for _left in remaining_seconds(at.context, settings.timeout_s):
                [row] = connection.rows(_WRITE_ACTIVITY, spared_sessions(at.plan))
                if row["clients"]:
                    came_back, example = came_back + row["clients"], row["example"]
                    # A session that was logging in when the limits were set appears now; superusers have no limit.
                    connection.execute_change(_END_SESSIONS, spared_sessions(at.plan), transaction=False)
                no_clients = row["clients"] == 0 and row["prepared"] == 0
                readings = [*readings[1 - EQUAL_READINGS :], row["lsn"]] if no_clients else []
                if len(readings) == EQUAL_READINGS and (len(set(readings)) == 1 or row["autovacuum"]):
                    _check_target_streams(at)
                if len(readings) == EQUAL_READINGS and len(set(readings)) == 1:
                    return ActionResult(
                        state="ok", text=f"no writes: WAL ends at {row['lsn']}", values={"lsn": row["lsn"]}
                    )
                if no_clients and row["autovacuum"] and len(readings) == EQUAL_READINGS:
                    text = (
                        f"no client is connected; only autovacuum writes, and it ends with the server (at {row['lsn']})"
                    )
                    return ActionResult(state="ok", text=text, values={"lsn": row["lsn"]})
                if control.wait(POLL_S):
                    return ActionResult(state="stopped", text="stopped before the writes on the primary had ended")
        if came_back:
            text = f"clients of {at.plan.old} reconnect: {came_back} sessions were terminated in {settings.timeout}"
            hint = f"the last user was {example}; superusers have no connection limit: stop that program"
            return ActionResult(state="failed", text=clean(f"{text}, {hint}"))
        return ActionResult(state="failed", text=_still_writing_text(at.plan.old, row, settings.timeout))


def _check_target_streams(at: Cutover) -> None:
    """Raise ConsoleError if the new primary could not be promoted after the old one is stopped."""
    old, to = at.plan.old, at.plan.to
    with at.connect(to) as (connection, now):
        if now.role != "standby":
            raise Refused(
                f"{to} is already a {now.role}, on timeline {now.timeline}; {old} is primary on timeline "
                f"{at.plan.timeline}: two nodes accept writes, and nothing was stopped",
                hint="let clients write to one of them only: find out which one has their last writes",
            )
        [row] = connection.rows(_STANDBY_STATE)
    if row["receiver"] != "streaming":
        why = f"its WAL receiver is {row['receiver'] or 'not running'}"
    elif row["paused"]:
        why = "replay is paused there"
    elif row["delay"] != "0":
        why = f"recovery_min_apply_delay is {row['delay']} there"
    else:
        return
    raise Refused(f"{to} cannot be promoted, so {old} was not stopped: {why}")


def _still_writing_text(node: str, row: Mapping[str, Any], timeout: str) -> str:
    if row.get("prepared"):
        return f"{node} has {row['prepared']} prepared transactions: commit or roll them back"
    return f"the WAL of {node} still grows after {timeout} without clients: a background process writes"
