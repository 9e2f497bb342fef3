"""Steps that stop the old primary, compare WAL positions, and fence it against a start as primary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cutover_plan import save_plan
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.manager_switchover import check_received_while_held, done_by_manager
from dba_console.clusters.steps.second_primary import refuse_clients, refuse_second_primary, unfence
from dba_console.clusters.steps.step import (
    POLL_S,
    Cutover,
    CutoverStep,
    StepSettings,
    TimedSettings,
    missing_wal_reason,
    printed_line,
    remaining_seconds,
    wait_for_wal,
)
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult

SHUT_DOWN = "shut down"
"""DBState of a clean shutdown, as pg_controldata writes it."""
MAX_STARTS = 2
"""How often an abort tries to start the server."""


class StopSettings(TimedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Duration = "5m"
    """How long the server may take to stop, as a duration."""


class StopPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-stop"
    summary: ClassVar[str] = (
        "Stops the old primary in fast mode, never immediate: the stop waits for a checkpoint, the archiver and the "
        "standbys."
    )
    Settings: ClassVar[type[Struct]] = StopSettings
    undoable: ClassVar[bool] = True

    def show(self, at: Cutover, settings: StopSettings) -> ActionPreview:
        if at.plan.manager is not None:
            return done_by_manager(at.plan.manager, f"its switchover stops {at.plan.old}")
        control = at.control(at.plan.old)
        exact = shlex.join(control.stop_command(settings.timeout_s))
        return ActionPreview(text=f"Stop {at.plan.old}.", exact=exact, done=_is_down(at))

    def do(self, at: Cutover, settings: StopSettings, control: Control) -> ActionResult:
        control.report_progress(f"stopping {at.plan.old}")
        server = at.control(at.plan.old)
        server.should_stop_waiting = control.stop_requested
        ended = server.stop(settings.timeout_s)
        if _is_down(at):
            if not_archived := _unarchived_wal_files(server):
                # PostgreSQL gives up when archive_command fails three times during a shutdown (pgarch.c).
                text = (
                    f"{at.plan.old} is shut down, but {len(not_archived)} WAL files are not archived, starting with "
                    f"{not_archived[0]}"
                )
                choices = (
                    f"`retry` continues, then archive them from its pg_wal; `abort` starts {at.plan.old} again, unless "
                    "another node was promoted"
                )
                return ActionResult(state="failed", text=clean(f"{text}: {choices}"), undo={})
            return ActionResult(state="ok", text=f"{at.plan.old} is shut down", undo={})
        if control.stop_requested():
            return ActionResult(
                state="stopped", text=f"stopped waiting for {at.plan.old}: {_waiting_text(server)}", undo={}
            )
        if ended.code is None:
            text = f"{at.plan.old} is not shut down after {settings.timeout}: {_waiting_text(server)}"
        else:
            text = f"{at.plan.old} is not shut down: its stop command ended with exit code {ended.code}"
        return ActionResult(state="failed", text="; ".join([text, *printed_line(ended)]), undo={})

    def find_outcome(self, at: Cutover, settings: StopSettings) -> ActionResult:
        if _is_down(at):
            return ActionResult(state="ok", text=f"{at.plan.old} is shut down", undo={})
        return self.retry_result(
            f"{at.plan.old} is not shut down: pg_control says {at.control(at.plan.old).control_file().state}"
        )

    def revert(self, at: Cutover, settings: StopSettings, control: Control) -> ActionResult:
        refuse_clients(at)
        server = at.control(at.plan.old)
        why, starts = "", 0
        if server.running():
            _end_archiving(server)
        for left in remaining_seconds(at.context, settings.timeout_s):
            if not server.running():  # a server that is stopping ends first
                starts += 1
                refuse_second_primary(at)
                ended = server.start(left)
                if not server.running():
                    why = "; ".join([_not_started_text(ended), *printed_line(ended)])
                    if starts < MAX_STARTS:
                        continue
                    break
            try:
                with at.connect(at.plan.old) as (_, now):
                    if now.role == "primary" and now.timeline == at.plan.timeline:
                        return ActionResult(
                            state="ok", text=f"{at.plan.old} is primary again on timeline {now.timeline}"
                        )
                    return ActionResult(
                        state="failed", text=f"{at.plan.old} is a {now.role} on timeline {now.timeline}"
                    )
            except ConsoleError as error:
                why = error.message
            if control.wait(POLL_S * 5):
                break
        start = f"start it: {shlex.join(server.start_command())}"
        if server.running():
            why, start = _waiting_text(server), f"when it is down, {start}"
        text = f"{at.plan.old} does not answer: {why}; {start}"
        return ActionResult(state="failed", text=clean(redact(text)))


def _not_started_text(ended: CommandResult) -> str:
    how = "did not start it" if ended.code in (0, None) else f"ended with exit code {ended.code}"
    return f"the start command {how}"


def _is_down(at: Cutover) -> bool:
    server = at.control(at.plan.old)
    return not server.running() and server.control_file().state == SHUT_DOWN


def _waiting_text(server: ServerControl) -> str:
    """Return what a stopping server waits for, as far as its processes show it."""
    state, titles = server.control_file().state, _processes(server)
    archiver = next((one for one in titles if "archiver" in one), None)
    if state == SHUT_DOWN and archiver is not None:
        return clean(
            f"its checkpoint is written, and it waits for archive_command ({archiver}): fix the archive or end that "
            "command and retry; or abort, which ends the command and starts the server again"
        )
    return clean(f"pg_control says {state}, running processes: {', '.join(titles[:3]) or 'only the postmaster'}")


def _processes(server: ServerControl) -> list[str]:
    """Return pid, state and title of each process of the server, without the postmaster."""
    content = server.host.read(f"{server.data_directory}/postmaster.pid", user=server.owner()) or b""
    pid = content.split(b"\n", 1)[0].decode("ascii", "replace").strip()
    listed = server.host.run(["ps", "--ppid", pid, "-o", "pid=,stat=,args="]).output if pid.isdigit() else ""
    return [" ".join(line.split()) for line in listed.splitlines()]


def _end_archiving(server: ServerControl) -> None:
    """End the archive_command that the shutdown waits for; the archiver ends with it.

    The file stays marked as not archived, and the archiver retries after the start (pgarch.c, pgarch_archiveXlog).
    """
    if server.control_file().state == SHUT_DOWN:
        for archiver in (one.split()[0] for one in _processes(server) if "archiver" in one):
            # Each server process leads its own process group (miscinit.c, InitPostmasterChild), with its commands.
            server.host.run(["sh", "-c", 'kill -s TERM -- "-$1"', "sh", archiver], user=server.owner())


def _unarchived_wal_files(server: ServerControl) -> list[str]:
    """Return the WAL files that the stopped server has not archived."""
    listed = server.host.run(["ls", f"{server.data_directory}/pg_wal/archive_status"], user=server.owner())
    return [name.removesuffix(".ready") for name in listed.output.split() if name.endswith(".ready")]


class CheckPositions(CutoverStep):
    name: ClassVar[str] = "cutover-gate"
    summary: ClassVar[str] = (
        "Compares positions: pg_control of the old primary says `shut down`, and the new one has received and replayed "
        "the WAL including that checkpoint. Until then promotion is refused. If a cluster manager stops the old "
        "primary later, the new one is compared with the current end of its WAL, without writes."
    )
    Settings: ClassVar[type[Struct]] = TimedSettings
    safe_to_repeat: ClassVar[str] = "it only reads: repeating it is safe"

    def show(self, at: Cutover, settings: TimedSettings) -> ActionPreview:
        plan = at.plan
        exact = "pg_control; pg_last_wal_replay_lsn()"
        if plan.manager is not None:
            exact = "pg_current_wal_flush_lsn(); pg_last_wal_replay_lsn()"
        return ActionPreview(text=f"Check that {plan.to} has all WAL of {plan.old}.", exact=exact)

    def do(self, at: Cutover, settings: TimedSettings, control: Control) -> ActionResult:
        if at.plan.manager is not None:
            return check_received_while_held(at, settings.timeout_s, control)
        found = at.control(at.plan.old).control_file()
        if found.state != SHUT_DOWN or found.checkpoint_lsn is None:
            text = f"pg_control of {at.plan.old} says {found.state or 'nothing'}, not {SHUT_DOWN}"
            return ActionResult(state="failed", text=f"{text}: do not promote; {_abort_text(at)}")
        shutdown_lsn = found.checkpoint_lsn
        # Past the start of the checkpoint's record: so the record itself is included.
        complete, row = wait_for_wal(at, lambda lsn: lsn > parse_lsn(shutdown_lsn), settings.timeout_s, control)
        if not complete:
            return ActionResult(state="failed", text=_missing_wal_text(at, shutdown_lsn, row))
        save_plan(at.context, replace(at.plan, shutdown_lsn=shutdown_lsn))
        has = f"{at.plan.to} has received {row['received']} and replayed {row['replayed']}"
        text = f"{at.plan.old} was shut down at {shutdown_lsn}; {has}"
        return ActionResult(state="ok", text=text, values={"shutdown_lsn": shutdown_lsn, **row})


def _missing_wal_text(at: Cutover, shutdown_lsn: str, row: Mapping[str, Any]) -> str:
    end, missing = parse_lsn(shutdown_lsn), []
    for what in ("received", "replayed"):
        if (lsn := row.get(what)) is None:
            missing.append(f"not {what} an unknown part")
        elif parse_lsn(lsn) <= end:
            missing.append(f"not {what} {end - parse_lsn(lsn)} bytes")
    return (
        f"{at.plan.old} was shut down at {shutdown_lsn}, but {at.plan.to} has {' and '.join(missing)}: "
        f"{missing_wal_reason(row)}; {_abort_text(at)}"
    )


def _abort_text(at: Cutover) -> str:
    return f"abort starts {at.plan.old} again, unless another node was promoted"


class FenceOldPrimary(CutoverStep):
    name: ClassVar[str] = "cutover-fence"
    summary: ClassVar[str] = (
        "Writes standby.signal into the data directory of the stopped old primary: if a supervisor or a reboot starts "
        "it, it starts as a standby."
    )
    undoable: ClassVar[bool] = True
    safe_to_repeat: ClassVar[str] = "writing it again is safe"

    def show(self, at: Cutover, settings: StepSettings) -> ActionPreview:
        if at.plan.manager is not None:
            return done_by_manager(at.plan.manager, f"it prevents {at.plan.old} from becoming a second primary")
        directory = at.plan.nodes[at.plan.old].data_directory
        return ActionPreview(text=f"{at.plan.old} can only start as a standby.", exact=f"{directory}/standby.signal")

    def do(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        server = at.control(at.plan.old)
        if server.running():
            return ActionResult(state="failed", text=f"{at.plan.old} is running: it was started again")
        server.fence()
        return ActionResult(state="ok", text=f"{at.plan.old} can only start as a standby", undo={})

    def revert(self, at: Cutover, settings: StepSettings, control: Control) -> ActionResult:
        unfence(at)
        return ActionResult(state="ok", text=f"{at.plan.old} can start as a primary again")
