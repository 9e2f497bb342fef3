"""The step failover-fence: keep a primary that does not answer from returning as a primary, and read what it has."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import lsn_text, parse_lsn
from dba_console.clusters.cutover_plan import CutoverPlan, save_failover
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.old_primary_alive import other_primary
from dba_console.clusters.steps.second_primary import unfence
from dba_console.clusters.steps.step import Cutover, CutoverStep, NothingChanged, TimedSettings
from dba_console.clusters.wal_transfer import read_wal_end, unarchived_files
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

_POSITION = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text AS lsn"
KILL_S = 10.0
_STANDBY_STATES = ("in archive recovery", "shut down in recovery")


class FenceDeadPrimary(CutoverStep):
    name: ClassVar[str] = "failover-fence"
    summary: ClassVar[str] = (
        "Prevents the old primary from returning as a primary: writes standby.signal into its data directory, and "
        "stops its server if it still runs; one that does not stop in time is killed with SIGKILL. Then it reads where "
        "its WAL ends, and what was not archived: `lost_bytes` is the WAL that the new primary lacks. If its host "
        "cannot be reached, its result `fenced` is false: then the operator must cut it off."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        directory = at.plan.nodes[at.plan.old].data_directory
        where = (
            f"{directory}/standby.signal"
            if directory
            else f"its data directory is unknown: {at.plan.old} cannot be kept down from here"
        )
        return ActionPreview(text=f"{at.plan.old} can only start as a standby.", exact=where)

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        old = at.plan.old
        if not at.plan.nodes[old].data_directory:
            hint = f"set data_directory of [clusters.{at.plan.cluster}.nodes.{old}]"
            return _not_fenced(f"the data directory of {old} is unknown; {hint}")
        if (back := other_primary(at)) is not None:
            hint = "abort: clients are released, and continue there"
            raise NothingChanged(f"{back} again: a failover is not needed", hint=hint)
        undo: dict[str, Any] | None = None
        try:
            server = at.control(old)
            _check_directory(at, server)
            at, undo = at._replace(plan=save_failover(at.context, at.plan, signal_written=True)), {}
            server.fence(running_too=True)  # first: a supervisor may start it again as soon as it has ended
            if not _is_down(server):
                _stop(at, server, settings, control)
            if not _is_down(server):
                return _not_fenced(f"{old} is still running after SIGKILL, and may accept writes", undo)
        except ConsoleError as error:
            return _not_fenced(f"{old} cannot be kept down from here: {error.message}", undo)
        plan = save_failover(at.context, at.plan, fenced=True)
        control.report_progress(f"reading the end of WAL of {old}")
        plan, text = _read_wal(at._replace(plan=plan), server)
        text = f"{old} is down and can only start as a standby; {text}"
        values = {"fenced": True, "lost_bytes": plan.lost_bytes}
        return ActionResult(state="ok", text=clean(redact(text)), values=values, undo={})

    def revert(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        if not at.plan.failover.signal_written:
            return ActionResult(state="ok", text=f"{at.plan.old} was not changed")
        server = at.control(at.plan.old)
        if not server.is_fenced():
            return ActionResult(state="ok", text=f"{at.plan.old} can start as a primary")
        if server.running():
            how = "a standby: stop it, remove standby.signal and start it" if server.is_fenced() else "a primary"
            return ActionResult(state="ok", text=f"{at.plan.old} was started meanwhile, as {how}")
        unfence(at)
        return ActionResult(state="ok", text=f"{at.plan.old} can start as a primary again")


def _stop(at: Cutover, server: ServerControl, settings: TimedSettings, control: Control) -> None:
    """Stop the server; if it does not stop in time, kill it: it may be frozen, and its WAL is complete on disk."""
    old = at.plan.old
    control.report_progress(f"stopping {old}, and killing it after {settings.timeout}")
    try:
        server.stop(settings.timeout_s)
    except ConsoleError as error:
        control.report_progress(clean(redact(f"the stop command of {old}: {error.message}")))
    if not _is_down(server):
        control.report_progress(f"{old} does not stop: SIGKILL to its processes")
        server.kill(KILL_S)


def _is_down(server: ServerControl) -> bool:
    """Whether the server is stopped, or was started again as a standby, after standby.signal was written."""
    return not server.running() or server.control_file().state in _STANDBY_STATES


def _check_directory(at: Cutover, server: ServerControl) -> None:
    """Raise Refused if the directory is not that of the old primary: another node would be stopped."""
    for name, node in at.plan.nodes.items():
        same_host = at.node(name).ssh == at.node(at.plan.old).ssh
        if name != at.plan.old and same_host and node.data_directory == server.data_directory:
            raise Refused(f"{server.data_directory} on {server.host.name} is the data directory of {name}",
                          hint=f"set ssh and data_directory of {at.plan.old}")  # fmt: skip
    found = server.control_file()
    if found.system_identifier != at.plan.system_identifier:
        raise Refused(
            f"{server.data_directory} on {server.host.name} belongs to another server: its system identifier is "
            f"{found.system_identifier}, not {at.plan.system_identifier}",
            hint=f"set ssh and data_directory of {at.plan.old}",
        )
    if found.state in _STANDBY_STATES and not at.plan.failover.fenced:
        raise Refused(f"{server.data_directory} on {server.host.name} is that of a standby: it is {found.state}")


def _read_wal(at: Cutover, server: ServerControl) -> tuple[CutoverPlan, str]:
    """Save what the stopped server has, with the exact loss; return the plan and a text. What fails stays unknown."""
    plan, texts = at.plan, []
    try:
        plan = save_failover(at.context, plan, not_archived=unarchived_files(server))
        if plan.failover.not_archived:
            texts.append(f"{len(plan.failover.not_archived)} of its WAL files are not archived")
    except ConsoleError as error:
        texts.append(error.message)
    try:
        if (newer := server.control_file().timeline or 0) > plan.timeline:
            raise ConsoleError(f"{plan.old} is on timeline {newer}, {plan.to} on {plan.timeline}")
        position = standby_position(at)
        end = read_wal_end(server, plan.timeline, position)
        lost = max(0, end - position)
        plan = replace(plan, lost_bytes=lost)
        plan = save_failover(at.context, plan, end_lsn=lsn_text(end))
        texts.insert(0, f"its WAL ends at {lsn_text(end)}: {plan.to} lacks {lost} bytes")
    except ConsoleError as error:
        texts.insert(0, f"the loss is unknown: {error.message}")
    return plan, "; ".join(texts)


def standby_position(at: Cutover) -> int:
    """Return the end of the WAL that the new primary has, while it is a standby. Raises ConsoleError."""
    with at.connect(at.plan.to) as (connection, now):
        if now.role != "standby":
            raise ConsoleError(f"{at.plan.to} is already a {now.role}")
        [row] = connection.rows(_POSITION)
    if row["lsn"] is None:
        raise ConsoleError(f"{at.plan.to} has no WAL position yet")
    return parse_lsn(row["lsn"])


def _not_fenced(text: str, undo: dict[str, Any] | None = None) -> ActionResult:
    return ActionResult(state="ok", text=clean(redact(text)), values={"fenced": False}, undo=undo)
