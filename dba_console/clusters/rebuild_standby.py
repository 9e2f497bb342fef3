"""The actions standby-rebuild and standby-attach: a server on this host becomes a standby of a running primary again.

They run on this host, also while its server is down. Both read and compare the two servers first, see local_standby.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.crash_recovery import recover_alone
from dba_console.clusters.local_standby import (
    LocalStandby,
    LocalStandbySettings,
    connect_primary,
    local_server,
    passed_fork,
    read_both,
    reserve_wal,
)
from dba_console.clusters.node_host import last_line
from dba_console.clusters.server_control import CLEAN_STATES
from dba_console.clusters.steps.rebuild_old_primary import TABLESPACES
from dba_console.clusters.steps.step import printed_line, remaining_seconds
from dba_console.core.declarations import Duration
from dba_console.core.errors import Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult
from dba_console.core.units import human_bytes, parse_duration

STOP_S, START_S, REWIND_S, CLONE_S, CHECKPOINT_S = 600.0, 600.0, 3600.0, 24 * 3600.0, 600.0
WAIT_S = 0.5
_NOW = "SELECT pg_current_wal_lsn()::text AS lsn, clock_timestamp()::text AS now"
_FOLLOWER = """
SELECT r.state, r.replay_lsn::text AS replayed FROM pg_stat_replication r
  LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
 WHERE r.backend_start >= %(since)s::timestamptz AND s.slot_name IS NOT DISTINCT FROM %(slot)s
   AND r.state IN ('streaming', 'catchup')
 ORDER BY r.backend_start DESC LIMIT 1
"""


class RebuildSettings(LocalStandbySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: Literal["check", "rewind", "clone"]
    """`check`: would pg_rewind work (a dry run)? `rewind`: run it. `clone`: copy the primary by pg_basebackup; the old
    data directory is renamed and kept."""


class AttachSettings(LocalStandbySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    follow: str | None = None
    """Connection string that the standby uses (primary_conninfo). Unset: as `primary`."""
    timeout: Duration = "10m"
    """Maximum time until the standby has replayed what the primary had written when it was started."""


class _StandbyAction(Action):
    """What both actions share. They run on this host, also while its server is down."""

    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True

    def settle(self, settings: Any, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return ActionResult(
            state="failed", text="interrupted: a running copy or rewind is waited for when it is repeated", again=True
        )


class RebuildStandby(_StandbyAction):
    name: ClassVar[str] = "standby-rebuild"
    summary: ClassVar[str] = (
        "Stops a standby or former primary on this host, and makes its data those of the primary again: by pg_rewind "
        "(after its crash recovery, if it crashed), or by pg_basebackup; then the old data directory and its "
        "tablespaces are renamed and kept. Configuration files are kept. It is not started: see `standby-attach`. "
        "Its result `works` is false if pg_rewind cannot do it. Refused if it runs as a primary, if the other server "
        "is not a primary of the same cluster, or is on an older timeline."
    )
    Settings: ClassVar[type[Struct]] = RebuildSettings
    undoable: ClassVar[bool] = True

    def preview(self, settings: RebuildSettings, context: ActionContext) -> ActionPreview:
        at = read_both(settings, context)
        refusal, hint = at.refusal(settings.method)
        directory = settings.directory
        before = "the server is stopped, then " if at.running else ""
        where = f"The primary is on timeline {at.primary.timeline}; this server: {at.position()}"
        copied = settings.method == "clone"
        text = (
            f"{before}pg_basebackup copies the primary; the current {directory} is renamed and kept"
            if copied
            else f"{before}pg_rewind removes the changes that only this server has"
            + (": a dry run, which changes no data" if settings.method == "check" else ", permanently")
        )
        return ActionPreview(
            text=clean(f"{text}. {where}"),
            exact=f"{'pg_basebackup -X stream -c fast' if copied else 'pg_rewind'} -D {directory}"
            + (" --dry-run" if settings.method == "check" else ""),
            values={"state": at.control.state, "timeline": at.control.timeline, "primary": at.primary.timeline},
            destructive=settings.method != "check",
            name=directory,
            refusal=refusal,
            hint=hint,
        )

    def act(
        self, settings: RebuildSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        at = read_both(settings, context)
        refusal, hint = at.refusal(settings.method)
        if refusal:
            raise Refused(refusal, hint=hint)
        undo = {"started": at.running}
        control.report_progress("stopping the server")
        if at.running and at.server.stop(STOP_S).code != 0:
            return ActionResult(state="failed", text=f"the server in {settings.directory} does not stop", undo=undo)
        if settings.method == "clone":
            return _clone(at, settings, context, control)
        if at.server.control_file().state not in CLEAN_STATES and not at.server.was_rebuilt():
            if settings.method == "check":
                text = "it crashed: pg_rewind can be tried after its crash recovery, which the rewind completes first"
                return ActionResult(state="ok", text=text, values={"works": True}, undo=undo)
            control.report_progress("completing its crash recovery, without clients")
            recover_alone(at.server, at.timeline, REWIND_S)
        with connect_primary(settings, context) as connection:
            # Without it pg_rewind reads the primary's old timeline from pg_control, and finds nothing to do.
            connection.execute_change("CHECKPOINT", timeout_s=CHECKPOINT_S, transaction=False)
            control.report_progress("pg_rewind --dry-run")
            ended = at.server.rewind(settings.primary, dry_run=True, timeout_s=REWIND_S)
            if ended.code == 0 and settings.method == "rewind":
                control.report_progress("pg_rewind")
                reserve_wal(connection, settings.slot)
                ended = at.server.rewind(settings.primary, dry_run=False, timeout_s=REWIND_S)
                if ended.code != 0:
                    return _unfinished("pg_rewind", ended)
        text = clean(redact(f"pg_rewind: {''.join(printed_line(ended)) or 'no output'}"))
        undo_data = undo if settings.method == "check" else None
        return ActionResult(state="ok", text=text, values={"works": ended.code == 0}, undo=undo_data)

    def undo(
        self, settings: RebuildSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        """After a dry run: start the server again if it ran. It can only have been a standby."""
        if not data.get("started"):
            return ActionResult(state="ok", text="the server was not running before")
        server = local_server(settings, context)
        server.fence()
        ended = server.start(START_S)
        text = "the standby runs again" if ended.code == 0 else f"the standby does not start: {last_line(ended)}"
        return ActionResult(state="ok" if ended.code == 0 else "failed", text=text)


class AttachStandby(_StandbyAction):
    name: ClassVar[str] = "standby-attach"
    summary: ClassVar[str] = (
        "Starts a stopped server on this host as a standby of the primary: makes its replication slot, writes "
        "standby.signal, primary_conninfo and primary_slot_name, and waits until it has replayed what the primary had "
        "written by then. Refused on the same conditions as `standby-rebuild`."
    )
    Settings: ClassVar[type[Struct]] = AttachSettings
    no_undo: ClassVar[str] = "a standby is detached by stopping it"

    def preview(self, settings: AttachSettings, context: ActionContext) -> ActionPreview:
        at = read_both(settings, context)
        refusal, hint = _attach_refusal(at, settings, context)
        slot = f" through slot {settings.slot}" if settings.slot else ", without a slot"
        return ActionPreview(
            text=clean(
                f"the server in {settings.directory} becomes a standby of the primary (timeline {at.primary.timeline})"
                f"{slot}; now {at.position()}"
            ),
            exact="standby.signal, primary_conninfo, primary_slot_name; start",
            name=settings.directory,
            refusal=refusal,
            hint=hint,
        )

    def act(
        self, settings: AttachSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        at = read_both(settings, context)
        refusal, hint = _attach_refusal(at, settings, context)
        if refusal:
            raise Refused(refusal, hint=hint)
        if at.running and at.server.stop(STOP_S).code != 0:
            return ActionResult(state="failed", text=f"the server in {settings.directory} does not stop")
        with connect_primary(settings, context) as connection:
            reserve_wal(connection, settings.slot)
            [begun] = connection.rows(_NOW)
            at.server.make_standby(settings.follow or settings.primary, settings.slot)
            control.report_progress("starting the standby")
            ended = at.server.start(START_S)
            if ended.code != 0 and not at.server.running():
                text = f"the standby does not start: {''.join(printed_line(ended))}; its server log shows why"
                return ActionResult(state="failed", text=clean(redact(text)))
            return _wait_for_replay(settings, connection, begun, context, control)


def _attach_refusal(
    at: LocalStandby, settings: AttachSettings, context: ActionContext
) -> tuple[str | None, str | None]:  # fmt: skip
    refusal, hint = at.refusal("attach")
    if refusal is None and not at.server.was_rebuilt():
        with connect_primary(settings, context) as connection:
            refusal, hint = passed_fork(at, connection), "rebuild it: pg_rewind, or a new copy"
    return refusal, hint


def _clone(
    at: LocalStandby, settings: RebuildSettings, context: ActionContext, control: Control
) -> ActionResult:  # fmt: skip
    with connect_primary(settings, context) as connection:
        reserve_wal(connection, settings.slot)
        tablespaces = {row["oid"]: row["location"] for row in connection.rows(TABLESPACES)}
    control.report_progress("pg_basebackup")
    ended = at.server.clone(settings.primary, CLONE_S, tablespaces)
    if ended.code != 0:
        return _unfinished("pg_basebackup", ended)
    text = clean(redact(f"pg_basebackup: {''.join(printed_line(ended)) or 'no output'}"))
    return ActionResult(state="ok", text=text, values={"works": True})


def _unfinished(program: str, ended: CommandResult) -> ActionResult:
    if ended.code is None:
        return ActionResult(state="unknown", text=f"{program} still runs on this host: repeat the step to wait for it")
    text = f"{program}: {''.join(printed_line(ended)) or 'no output'}"
    return ActionResult(state="failed", text=clean(redact(text)), values={"works": False})


def _wait_for_replay(
    settings: AttachSettings, connection: ActingConnection, begun: Mapping[str, Any], context: ActionContext,
    control: Control,
) -> ActionResult:  # fmt: skip
    """Wait until the standby has replayed the position the primary had when it was started: one with other WAL may
    stream for a moment, but does not get there."""
    left: int | None = None
    for _ in remaining_seconds(context, parse_duration(settings.timeout)):
        row = next(iter(connection.rows(_FOLLOWER, {"since": begun["now"], "slot": settings.slot or None})), None)
        left = None if row is None or row["replayed"] is None else parse_lsn(begun["lsn"]) - parse_lsn(row["replayed"])
        if left is not None and left <= 0:
            return ActionResult(
                state="ok", text="the standby streams and replays", values={"streams": True, "behind": 0}
            )
        control.report_progress("not streaming yet" if left is None else f"{human_bytes(left)} of WAL to replay")
        if control.wait(WAIT_S):
            break
    if left is None:
        text = f"the standby does not stream after {settings.timeout}: its server log shows why"
        return ActionResult(state="failed", text=text, values={"streams": False})
    text = f"the standby streams, and has {human_bytes(left)} of WAL to replay"
    return ActionResult(state="ok", text=text, values={"streams": True, "behind": left})
