"""Steps that make the old primary (start, pg_rewind or copy) and the other standbys follow the new primary."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionPreview, ActionResult, Control
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cutover_plan import LOCK_SLOT, conninfo_to
from dba_console.clusters.server_control import CLEAN_STATES
from dba_console.clusters.steps.manager_switchover import wait_for_command
from dba_console.clusters.steps.step import (
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    printed_line,
    remaining_seconds,
)
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.sanitize import clean

REWIND_S = 3600.0
CLONE_S = 24 * 3600.0
CHECKPOINT_S = 600.0
WAIT_S = 0.1
_CONNINFO = "SELECT pg_catalog.current_setting('primary_conninfo') AS conninfo"
_RECEIVER = "SELECT status, received_tli AS timeline FROM pg_stat_wal_receiver"
STREAM_AFTER_CRASH_S = 15.0
"""Time for a crashed server started as a standby to stream: more than twice wal_retrieve_retry_interval (5 s)."""
_STALE = "SELECT slot_name::text AS name FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active"
_DROP = "SELECT pg_catalog.pg_drop_replication_slot(%(name)s)"


class StandbySettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "60s"
    """Maximum time until a node streams, as a duration."""


class RejoinOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-rejoin"
    summary: ClassVar[str] = (
        "Starts the old primary as a standby of the new one, waits until it streams on the new timeline, and drops its "
        "replication slots for nodes that now follow the new primary. If it cannot follow, its result `streams` is "
        "false and the text gives the reason."
    )
    Settings: ClassVar[type[Struct]] = StandbySettings
    safe_to_repeat: ClassVar[str] = "starting it again is safe"

    def show(self, at: Cutover, settings: StandbySettings) -> ActionPreview:
        server = at.control(at.plan.old)
        refusal = _early_refusal(at)
        done = server.running() and _is_attached(at)
        text, exact = f"{at.plan.old} returns as a standby of {at.plan.to}", ""
        if at.plan.manager is not None:
            text += f": {at.plan.manager.kind} does this, and this step waits for it"
        else:
            exact = " ".join(server.start_command())
        return ActionPreview(
            text=f"{text}.", exact=exact,
            refusal=refusal, done=done,
        )  # fmt: skip

    def do(self, at: Cutover, settings: StandbySettings, control: Control) -> ActionResult:
        manager = at.plan.manager
        if manager is None and (failed := start_standby(at, settings.timeout_s)) is not None:
            return ActionResult(state="failed", text=failed, values={"streams": False})
        printed = "" if manager is None else wait_for_command(at, settings.timeout_s)
        why = _wait_for_stream(at, at.plan.old, settings.timeout_s, control)
        if why is not None and manager is not None:
            text = f"{at.plan.old} does not follow {at.plan.to} after {settings.timeout}: {why}"
            return ActionResult(state="failed", text=clean(f"{text}; {manager.kind} rejoins it: {manager.status}"))
        if why is not None:
            text = f"{at.plan.old} is running but does not follow {at.plan.to}: {why}"
            return ActionResult(state="ok", text=clean(text), values={"streams": False})
        dropped = _drop_stale_slots(at)
        dropped_text = f"; dropped its slots {', '.join(dropped)}" if dropped else ""
        text = f"{at.plan.old} streams from {at.plan.to} on timeline {at.plan.new_timeline}{dropped_text}"
        text += f"; {manager.kind}: {printed}" if manager is not None and printed else ""
        return ActionResult(state="ok", text=text, values={"streams": True})


class FollowNewPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-follow"
    summary: ClassVar[str] = (
        "Makes every other node follow the new primary (primary_conninfo and a reload), and waits until each streams "
        "on the new timeline."
    )
    Settings: ClassVar[type[Struct]] = StandbySettings
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: StandbySettings) -> ActionPreview:
        if not at.plan.others:
            return ActionPreview(text="The cluster has no other nodes.", exact="", done=True)
        text = f"{', '.join(at.plan.others)} follow {at.plan.to}"
        exact = "ALTER SYSTEM SET primary_conninfo = …; SELECT pg_reload_conf()"
        if at.plan.manager is not None:
            text, exact = f"{text}: {at.plan.manager.kind} does this, and this step waits for it", ""
        return ActionPreview(
            text=f"{text}.",
            exact=exact,
            refusal=_early_refusal(at),
        )

    def do(self, at: Cutover, settings: StandbySettings, control: Control) -> ActionResult:
        failed = []
        for name in at.plan.others:
            control.report_progress(f"{name} follows {at.plan.to}")
            try:
                if at.plan.manager is None:
                    follow_new_primary(at, name)
                why = _wait_for_stream(at, name, settings.timeout_s, control)
            except ConsoleError as error:
                why = error.message
            if why is not None:
                failed.append(f"{name}: {why}")
        if failed:
            return ActionResult(state="failed", text=clean("; ".join(failed)))
        return ActionResult(state="ok", text=f"{', '.join(at.plan.others)} stream from {at.plan.to}")


class RewindSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Only check whether it would work; nothing is written."""


class RewindOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-rewind"
    summary: ClassVar[str] = (
        "Stops the old primary and runs pg_rewind on it against the new one: changes that only the old one has are "
        "removed. If pg_rewind fails halfway, the node must be cloned again."
    )
    Settings: ClassVar[type[Struct]] = RewindSettings

    def show(self, at: Cutover, settings: RewindSettings) -> ActionPreview:
        refusal, hint = _manual_refusal(at)
        return ActionPreview(
            text=f"pg_rewind makes {at.plan.old} a copy of {at.plan.to} again"
            + (", as a dry run that writes nothing." if settings.dry_run else "."),
            exact=f"pg_rewind -D {at.plan.nodes[at.plan.old].data_directory} --source-server …"
            + (" --dry-run" if settings.dry_run else ""),
            destructive=not settings.dry_run,
            name=at.plan.old,
            refusal=refusal,
            hint=hint,
        )

    def do(self, at: Cutover, settings: RewindSettings, control: Control) -> ActionResult:
        server = at.control(at.plan.old)
        if not server.running() and server.control_file().state not in CLEAN_STATES:
            # It crashed: as a standby it recovers to the end of its WAL, and pg_rewind works after a clean stop.
            control.report_progress(f"{at.plan.old} recovers from its crash")
            make_standby(at)
            server.start(REWIND_S)
        if server.running():
            if _wait_for_stream(at, at.plan.old, STREAM_AFTER_CRASH_S, control) is None:
                # pg_rewind of a node that follows already would need WAL that is removed by now.
                return ActionResult(state="ok", text=f"{at.plan.old} already follows {at.plan.to}: no rewind is needed")
            server.stop(REWIND_S)
        with at.connect(at.plan.to) as (connection, _):
            # Without it pg_rewind reads the old timeline from pg_control and finds nothing to do.
            connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
        ended = server.rewind(at.node(at.plan.to).dsn, dry_run=settings.dry_run, timeout_s=REWIND_S)
        last_output = "".join(printed_line(ended)) or "no output"
        if ended.code != 0:
            return ActionResult(state="failed", text=f"pg_rewind of {at.plan.old}: {last_output}")
        if not settings.dry_run:
            make_standby(at)  # pg_rewind copies the configuration of its source
        return ActionResult(state="ok", text=f"pg_rewind of {at.plan.old}: {last_output}")

    def find_outcome(self, at: Cutover, settings: RewindSettings) -> ActionResult:
        if settings.dry_run:
            return self.retry_result("a dry run writes nothing")
        return ActionResult(
            state="unknown", text="pg_rewind may have ended halfway: if it fails now, clone the node again"
        )


class CloneOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-clone"
    summary: ClassVar[str] = (
        "Stops the old primary and replaces its data directory by a pg_basebackup of the new one; the old directory is "
        "renamed and kept. Its disk needs space for both. Configuration files and certificates are kept."
    )
    safe_to_repeat: ClassVar[str] = "repeating it is safe: it waits for a running copy, and keeps a complete one"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        refusal, hint = _manual_refusal(at)
        directory = at.plan.nodes[at.plan.old].data_directory
        return ActionPreview(
            text=f"pg_basebackup makes {at.plan.old} a copy of {at.plan.to}; the current {directory} is renamed",
            exact=f"pg_basebackup -D {directory} -X stream -c fast",
            destructive=True,
            name=at.plan.old,
            refusal=refusal,
            hint=hint,
        )

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        server = at.control(at.plan.old)
        if server.running():
            server.stop(REWIND_S)
        control.report_progress(f"pg_basebackup from {at.plan.to}")
        ended = server.clone(primary_conninfo(at, at.plan.old), CLONE_S)
        printed = "".join(printed_line(ended)) or "no output"
        if ended.code != 0:
            return ActionResult(state="failed", text=f"pg_basebackup for {at.plan.old}: {printed}")
        make_standby(at)
        return ActionResult(state="ok", text=f"{at.plan.old} is a copy of {at.plan.to}: {printed}")


def _early_refusal(at: Cutover) -> str | None:
    return None if at.plan.new_timeline else f"{at.plan.to} is not promoted"


def _manual_refusal(at: Cutover) -> tuple[str | None, str | None]:
    """Return why the console may not rebuild the old primary, and the hint; None: it may."""
    if at.plan.manager is not None:
        return f"{at.plan.manager.kind} does this itself", at.plan.manager.status
    return _early_refusal(at), None


def primary_conninfo(at: Cutover, follower: str) -> str:
    """Return primary_conninfo for a follower, from the new primary's own setting. May contain a password."""
    with at.connect(at.plan.to) as (connection, _):
        [row] = connection.rows(_CONNINFO)
    return conninfo_to(row["conninfo"], at.node(at.plan.to), follower)


def make_standby(at: Cutover) -> None:
    """Configure the stopped old primary as a standby of the new one."""
    at.control(at.plan.old).make_standby(primary_conninfo(at, at.plan.old), at.plan.nodes[at.plan.old].slot or None)


def start_standby(at: Cutover, timeout_s: float) -> str | None:
    """Start the old primary as a standby of the new one, unless it runs; return why it does not start, or None."""
    server = at.control(at.plan.old)
    if server.running():
        return None
    make_standby(at)
    ended = server.start(timeout_s)
    if ended.code != 0 and not server.running():
        return ": ".join([f"{at.plan.old} does not start", *printed_line(ended)])
    return None


def follow_new_primary(at: Cutover, name: str) -> None:
    """Make a running standby follow the new primary. Raises ConsoleError."""
    wanted_conninfo = primary_conninfo(at, name)
    with at.connect(name) as (connection, now):
        if now.role != "standby":
            raise Refused(f"{name} is a {now.role}, not a standby: two nodes accept writes")
        [row] = connection.rows(_CONNINFO)
        if row["conninfo"] == wanted_conninfo:
            return
        _set_without_logging(connection, wanted_conninfo)


def _set_without_logging(connection: ActingConnection, wanted_conninfo: str) -> None:
    """Set primary_conninfo without logging: the statement may contain a password."""
    for name, value in (("log_statement", "none"), ("log_min_duration_statement", "-1"),
                        ("log_min_error_statement", "panic"), ("track_activities", "off")):  # fmt: skip
        connection.set_parameter(name, value)
    literal = wanted_conninfo.replace("'", "''")
    connection.execute_change(f"ALTER SYSTEM SET primary_conninfo = '{literal}'", transaction=False)
    connection.execute_change("SELECT pg_catalog.pg_reload_conf()", transaction=False)


def _wait_for_stream(at: Cutover, name: str, timeout_s: float, control: Control) -> str | None:
    why: str | None = "it was not checked"
    for _left in remaining_seconds(at.context, timeout_s):
        why = streaming_problem(at, name)
        if why is None or control.wait(WAIT_S):
            break
    return why


def streaming_problem(at: Cutover, name: str) -> str | None:
    """Return why a node does not stream on the new timeline; None: it does."""
    try:
        with at.connect(name) as (connection, now):
            if now.role != "standby":
                return f"it is a {now.role}"
            rows = connection.rows(_RECEIVER)
    except ConsoleError as error:
        return error.message
    if not rows or rows[0]["status"] != "streaming":
        return "its WAL receiver is not streaming: see its server log"
    if rows[0]["timeline"] != at.plan.new_timeline:
        return f"it streams timeline {rows[0]['timeline']}, not {at.plan.new_timeline}"
    return None


def _is_attached(at: Cutover) -> bool:
    """Check whether the old primary streams from the new one and has no stale slots."""
    if streaming_problem(at, at.plan.old) is not None:
        return False
    with at.connect(at.plan.old) as (connection, _):
        return not _stale_slots(at, connection)


def _stale_slots(at: Cutover, connection: ActingConnection) -> list[str]:
    """Return the slots that nodes used while it was primary: on a standby they would retain WAL without limit."""
    known = {node.slot for name, node in at.plan.nodes.items() if name != at.plan.old and node.slot} | {LOCK_SLOT}
    return [row["name"] for row in connection.rows(_STALE) if row["name"] in known]


def _drop_stale_slots(at: Cutover) -> list[str]:
    dropped = []
    with at.connect(at.plan.old) as (connection, _):
        for name in _stale_slots(at, connection):
            try:
                connection.execute_change(_DROP, {"name": name}, transaction=False)
                dropped.append(name)
            except StatementFailed:
                pass  # in use again, so not stale
    return dropped
