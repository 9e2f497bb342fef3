"""Cutover of a managed cluster: the manager's own switchover instead of our stop, fence and promotion.

Its outcome is read from the nodes: an exit code does not show which node is primary.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from dba_console.actions.action import ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import ServerIdentity
from dba_console.clusters import host_scripts
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.cluster_managers import SUPPORTED_KINDS, Manager, active_manager, switchover_command
from dba_console.clusters.cutover_plan import CutoverPlan, ManagerPlan, save_plan
from dba_console.clusters.node_host import HostConnectionLost
from dba_console.clusters.steps.step import POLL_S, Cutover, missing_wal_reason, remaining_seconds, wait_for_wal
from dba_console.clusters.survey import Survey
from dba_console.core.atomic_files import write_atomically
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult

DRY_RUN_S = 30.0
SETTLE_S = 5.0
"""How long the old primary may stay primary after the command has ended: Patroni's members act asynchronously."""
_SHOWN = 4000
PRINTED = "switchover.log"
"""Output of the manager's command, in the directory of the run."""
_END_OF_WAL = "SELECT pg_catalog.pg_current_wal_flush_lsn()::text AS lsn"


def manager_plan(found: Survey, old: str, to: str) -> ManagerPlan | None:
    """Return the manager whose switchover must be used; None: none active. Raises Refused if it cannot be run."""
    manager = active_manager(found)
    if manager is None or manager.kind not in SUPPORTED_KINDS:
        return None  # other active managers fail the readiness check
    command = switchover_command(manager, old, to)
    return ManagerPlan(kind=manager.kind, node=command.node, switchover=command.argv, status=_status(manager, to))


def _status(manager: Manager, to: str) -> str:
    at = to if to in manager.config else next(iter(manager.config), to)
    return f"on {at}: {manager.status}"


def check_by_manager(at: Cutover) -> None:
    """Raise Refused if the manager reports that its switchover would fail."""
    manager = at.plan.manager
    if manager is not None and manager.kind == "repmgr":
        ended = _run(at, [*manager.switchover, "--dry-run"], DRY_RUN_S)
        if ended.code != 0:
            raise Refused(f"repmgr would refuse its switchover: {_last_output(ended)}", hint=switchover_text(manager))


def switchover_text(manager: ManagerPlan) -> str:
    """Return the switchover command for the operator."""
    return clean(f"on {manager.node}: {shlex.join(manager.switchover)}")


def done_by_manager(manager: ManagerPlan, text: str) -> ActionPreview:
    """Return the preview of a step that the manager does."""
    return ActionPreview(text=f"{text}.", exact="", done=True, by=manager.kind)


def spared_sessions(plan: CutoverPlan) -> dict[str, list[str]]:
    """Return the patterns of `application_name` of the manager's sessions, which are not terminated."""
    return {"spared": [f"{plan.manager.kind}%"] if plan.manager is not None else []}


def check_received_while_held(at: Cutover, timeout_s: float, control: Control) -> ActionResult:
    """Check that the new primary has received and replayed all WAL of the old one, which is still running."""
    with at.connect(at.plan.old) as (connection, _):
        [end] = connection.rows(_END_OF_WAL)
    end_lsn = end["lsn"]
    complete, row = wait_for_wal(at, lambda lsn: lsn >= parse_lsn(end_lsn), timeout_s, control)
    has = f"{at.plan.to} has received {row.get('received')} and replayed {row.get('replayed')}"
    text = f"WAL of {at.plan.old} ends at {end_lsn}"
    if not complete:
        return ActionResult(state="failed", text=clean(f"{text}, but {has}: {missing_wal_reason(row)}"))
    save_plan(at.context, replace(at.plan, held_lsn=end_lsn))
    return ActionResult(state="ok", text=f"{text}; {has}", values={"held_lsn": end_lsn, **row})


class _SwitchoverThread(threading.Thread):
    """Runs the manager's command, also when no step waits for it; saves its output in the run's directory."""

    def __init__(self, at: Cutover, argv: Sequence[str], timeout_s: float) -> None:
        super().__init__(name="switchover", daemon=True)
        self._at, self._argv, self._timeout_s = at, argv, timeout_s
        self.ended: CommandResult | None = None
        self.error: ConsoleError | None = None

    def run(self) -> None:
        try:
            self.ended = _run(self._at, self._argv, self._timeout_s)
            write_atomically(self._at.context.run_directory, PRINTED, _output_text(self.ended).encode())
        except ConsoleError as error:
            self.error = error
        except OSError:
            return  # the directory of the run is full or removed: the output is not kept


def switch_over(at: Cutover, manager: ManagerPlan, timeout_s: float, control: Control) -> ActionResult:
    """Run the manager's switchover. `ok` as soon as the new primary is promoted, `refused` if nothing has changed.

    Clients do not wait for the rest of the command after the promotion: the return of the old primary.
    """
    control.report_progress(switchover_text(manager))
    command = _SwitchoverThread(at, manager.switchover, timeout_s)
    command.start()
    ended_at: float | None = None
    for left in remaining_seconds(at.context, timeout_s + SETTLE_S):
        if isinstance(command.error, HostConnectionLost):
            raise command.error
        if command.error is not None:  # it was not started
            return switchover_outcome(at, manager, f": {command.error.message}")
        if command.ended is not None and ended_at is None:
            ended_at = left
        # patronictl also ends with code 0 when Patroni refuses.
        settled = ended_at is not None and left < ended_at - SETTLE_S
        if _is_primary(at, at.plan.to) or (settled and _is_primary(at, at.plan.old)) or control.wait(POLL_S):
            break
    if command.ended is None or command.ended.code in (None, host_scripts.SWITCHING):
        found = switchover_outcome(at, manager, ": its command is still running")
        return found if found.state == "ok" else replace(found, state="unknown")  # it may still do it
    values = {"output": _output_text(command.ended)[-_SHOWN:]}
    return replace(switchover_outcome(at, manager, f": {_last_output(command.ended)}"), values=values)


def wait_for_command(at: Cutover, timeout_s: float) -> str:
    """Wait until the switchover has ended; return its last output, if known."""
    _run(at, ["true"], timeout_s + 1, wait_s=timeout_s)
    try:
        printed = (Path(at.context.run_directory) / PRINTED).read_text(errors="replace")
    except OSError:
        return ""
    return _last_output(CommandResult(0, printed, "", 0.0))


def settle_switchover(at: Cutover, manager: ManagerPlan, timeout_s: float) -> ActionResult:
    """Return the outcome of an interrupted switchover, which may still be running."""
    if _run(at, ["true"], timeout_s + 1, wait_s=timeout_s).code == host_scripts.SWITCHING:
        text = f"the switchover of {manager.kind} is still running; {manager.status}"
        return ActionResult(state="unknown", text=text)
    found = switchover_outcome(at, manager, "")
    return replace(found, again=found.state == "refused")


def switchover_outcome(at: Cutover, manager: ManagerPlan, printed: str) -> ActionResult:
    """Return the outcome from the current state of the nodes."""
    old, to = (_identity_of(at, name) for name in (at.plan.old, at.plan.to))
    new = to is not None and to.role == "primary"
    if old is not None and old.role == "primary" and new:
        text = f"{at.plan.old} and {at.plan.to} both answer as primary{printed}; {manager.status}"
        return ActionResult(state="unknown", text=clean(text))
    if new:
        return ActionResult(state="ok", text=f"{manager.kind} made {at.plan.to} the primary{printed}")
    same = old is not None and old.role == "primary" and old.timeline == at.plan.timeline
    if same and to is not None:
        text = f"{manager.kind} did not switch over, {at.plan.old} is still the primary{printed}"
        return ActionResult(state="refused", text=clean(text))
    text = (
        f"{at.plan.to} is {_role_text(to)} and {at.plan.old} is {_role_text(old)} after the switchover of "
        f"{manager.kind}"
    )
    return ActionResult(state="unknown", text=clean(f"{text}{printed}; {manager.status}"))


def _is_primary(at: Cutover, name: str) -> bool:
    found = _identity_of(at, name)
    return found is not None and found.role == "primary"


def _identity_of(at: Cutover, name: str) -> ServerIdentity | None:
    """Return the identity of the node; None: no answer. Raises Refused if it is another server."""
    try:
        with at.connect(name) as (_, now):
            return now
    except Refused:
        raise
    except ConsoleError:
        return None


def _role_text(identity: ServerIdentity | None) -> str:
    return "not answering" if identity is None else f"a {identity.role} on timeline {identity.timeline}"


def _run(at: Cutover, argv: Sequence[str], timeout_s: float, wait_s: float = 0.0) -> CommandResult:
    """Run a command on the manager's host. Raises as Host.run."""
    manager = at.plan.manager
    assert manager is not None
    server = at.control(manager.node)
    script = ["sh", "-c", host_scripts.SWITCHOVER, "sh", f"{wait_s:g}", server.data_directory]
    return server.host.run([*script, *argv], user=server.owner(), timeout_s=timeout_s)


def _output_text(ended: CommandResult) -> str:
    return clean(redact("\n".join([ended.output, ended.errors]).strip()))


def _last_output(ended: CommandResult) -> str:
    """Return the last lines of its output, without tables."""
    lines = [line.strip() for line in "\n".join([ended.output, ended.errors]).splitlines()]
    sentences = [line for line in lines if line and line[0] not in "+|"]
    return clean(redact("; ".join(sentences[-3:]))) or f"exit code {ended.code}"
