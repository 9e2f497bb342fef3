"""A cutover of a managed cluster: its manager's own switchover in place of our stop, fence and promotion.

What became of it is read from the nodes: an exit code does not say who is primary.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dba_console.actions.action import ActionPreview, ActionResult, Control
from dba_console.actions.identity import ServerIdentity
from dba_console.clusters import scripts
from dba_console.clusters.checks import position
from dba_console.clusters.host import LostHost
from dba_console.clusters.managers import SWITCHED, Manager, in_charge, switchover
from dba_console.clusters.plan import CutoverPlan, ManagerPlan, save_plan
from dba_console.clusters.steps.step import POLL_S, Cutover, bounded
from dba_console.clusters.survey import Survey
from dba_console.errors import ConsoleError, Refused
from dba_console.keeping.atomic_files import write_atomically
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.short_command import CommandResult

DRY_RUN_S = 30.0
SETTLE_S = 5.0
"""How long the old primary may stay one after the command has ended: Patroni's members act on it by themselves."""
_SHOWN = 4000
PRINTED = "switchover.log"
"""In the directory of the run: what the manager's command printed."""
_END_OF_WAL = "SELECT pg_catalog.pg_current_wal_flush_lsn()::text AS lsn"
_POSITIONS = """
SELECT pg_last_wal_receive_lsn()::text AS received, pg_last_wal_replay_lsn()::text AS replayed,
       pg_is_wal_replay_paused() AS paused
"""


def manager_plan(found: Survey, old: str, to: str) -> ManagerPlan | None:
    """Return the manager whose switchover has to be used; None where none acts. Raises Refused where that cannot be."""
    manager = in_charge(found)
    if manager is None or manager.kind not in SWITCHED:
        return None  # readiness refuses what acts otherwise
    command = switchover(manager, old, to)
    return ManagerPlan(kind=manager.kind, node=command.node, switchover=command.argv, status=_status(manager, to))


def _status(manager: Manager, to: str) -> str:
    at = to if to in manager.config else next(iter(manager.config), to)
    return f"on {at}: {manager.status}"


def check_by_manager(at: Cutover) -> None:
    """Raises Refused where the manager itself says that its switchover would fail."""
    manager = at.plan.manager
    if manager is not None and manager.kind == "repmgr":
        ended = _run(at, [*manager.switchover, "--dry-run"], DRY_RUN_S)
        if ended.code != 0:
            raise Refused(f"repmgr would refuse its switchover: {_printed(ended)}", hint=shown(manager))


def shown(manager: ManagerPlan) -> str:
    """Its switchover, for a person."""
    return clean(f"on {manager.node}: {shlex.join(manager.switchover)}")


def left_to(manager: ManagerPlan, text: str) -> ActionPreview:
    """A step that the manager does."""
    return ActionPreview(text=f"{text}.", exact="", done=True, by=manager.kind)


def spared(plan: CutoverPlan) -> dict[str, list[str]]:
    """Patterns of `application_name` of the manager's sessions, which stay: it needs them."""
    return {"spared": [f"{plan.manager.kind}%"] if plan.manager is not None else []}


def passed_while_held(at: Cutover, timeout_s: float, control: Control) -> ActionResult:
    """The gate: the new primary has received and replayed what the old one, which runs on, has written."""
    with at.link(at.plan.old) as (link, _):
        [end] = link.rows(_END_OF_WAL)
    wanted, row = end["lsn"], dict[str, Any]()
    with at.link(at.plan.to) as (link, now):
        if now.role != "standby":
            return ActionResult(state="failed", text=f"{at.plan.to} is a {now.role} already")
        for _left in bounded(at.world, timeout_s):
            [row] = link.rows(_POSITIONS)
            if all(row[one] is not None and position(row[one]) >= position(wanted) for one in ("received", "replayed")):
                save_plan(at.world, replace(at.plan, held_lsn=wanted))
                text = f"WAL of {at.plan.old} ends at {wanted}; {at.plan.to} has received {row['received']} and "
                return ActionResult(
                    state="ok", text=f"{text}replayed {row['replayed']}", values={"held_lsn": wanted, **row}
                )
            if row["paused"] or control.wait(POLL_S):
                break
    why = "replay is paused there" if row.get("paused") else "its WAL receiver may have lost the connection"
    text = f"WAL of {at.plan.old} ends at {wanted}, and {at.plan.to} has received {row.get('received')} and replayed "
    return ActionResult(state="failed", text=clean(f"{text}{row.get('replayed')}: {why}"))


class _Running(threading.Thread):
    """The manager's command. It goes on when nobody waits for it, and leaves what it printed in the run's directory."""

    def __init__(self, at: Cutover, argv: Sequence[str], timeout_s: float) -> None:
        super().__init__(name="switchover", daemon=True)
        self._at, self._argv, self._timeout_s = at, argv, timeout_s
        self.ended: CommandResult | None = None
        self.error: ConsoleError | None = None

    def run(self) -> None:
        try:
            self.ended = _run(self._at, self._argv, self._timeout_s)
            write_atomically(self._at.world.run_directory, PRINTED, _lines(self.ended).encode())
        except ConsoleError as error:
            self.error = error
        except OSError:
            return  # the directory of the run is full or gone: what it printed is not kept


def switch_over(at: Cutover, manager: ManagerPlan, timeout_s: float, control: Control) -> ActionResult:
    """The manager's own switchover. `ok` as soon as the new primary is one, `refused` where nothing has changed.

    Clients are not kept waiting for what the command does after the promotion: the old primary coming back.
    """
    control.report_progress(shown(manager))
    command = _Running(at, manager.switchover, timeout_s)
    command.start()
    ended_at: float | None = None
    for left in bounded(at.world, timeout_s + SETTLE_S):
        if isinstance(command.error, LostHost):
            raise command.error
        if command.error is not None:  # it was not begun
            return came_of(at, manager, f": {command.error.message}")
        if command.ended is not None and ended_at is None:
            ended_at = left
        # patronictl also ends with code 0 where Patroni refuses.
        settled = ended_at is not None and left < ended_at - SETTLE_S
        if _primary(at, at.plan.to) or (settled and _primary(at, at.plan.old)) or control.wait(POLL_S):
            break
    if command.ended is None or command.ended.code in (None, scripts.SWITCHING):
        found = came_of(at, manager, ": its command still runs")
        return found if found.state == "ok" else replace(found, state="unknown")  # it may still do it
    values = {"output": _lines(command.ended)[-_SHOWN:]}
    return replace(came_of(at, manager, f": {_printed(command.ended)}"), values=values)


def wait_for_command(at: Cutover, timeout_s: float) -> str:
    """Wait until the switchover has ended; what it printed at last, as far as it is known."""
    _run(at, ["true"], timeout_s + 1, wait_s=timeout_s)
    try:
        printed = (Path(at.world.run_directory) / PRINTED).read_text(errors="replace")
    except OSError:
        return ""
    return _printed(CommandResult(0, printed, "", 0.0))


def settle_switchover(at: Cutover, manager: ManagerPlan, timeout_s: float) -> ActionResult:
    """What became of a switchover whose end was not seen: it may still run."""
    if _run(at, ["true"], timeout_s + 1, wait_s=timeout_s).code == scripts.SWITCHING:
        return ActionResult(state="unknown", text=f"the switchover of {manager.kind} still runs; {manager.status}")
    found = came_of(at, manager, "")
    return replace(found, again=found.state == "refused")


def came_of(at: Cutover, manager: ManagerPlan, printed: str) -> ActionResult:
    """As the nodes are now."""
    old, to = (_who(at, name) for name in (at.plan.old, at.plan.to))
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
    text = f"{at.plan.to} is {_told(to)} and {at.plan.old} is {_told(old)} after the switchover of {manager.kind}"
    return ActionResult(state="unknown", text=clean(f"{text}{printed}; {manager.status}"))


def _primary(at: Cutover, name: str) -> bool:
    found = _who(at, name)
    return found is not None and found.role == "primary"


def _who(at: Cutover, name: str) -> ServerIdentity | None:
    """Who answers there; None where nobody does. Raises Refused where it is another server."""
    try:
        with at.link(name) as (_, now):
            return now
    except Refused:
        raise
    except ConsoleError:
        return None


def _told(who: ServerIdentity | None) -> str:
    return "not answering" if who is None else f"a {who.role} on timeline {who.timeline}"


def _run(at: Cutover, argv: Sequence[str], timeout_s: float, wait_s: float = 0.0) -> CommandResult:
    """Run it where the manager is. Raises as Host.run."""
    manager = at.plan.manager
    assert manager is not None
    server = at.control(manager.node)
    script = ["sh", "-c", scripts.SWITCHOVER, "sh", f"{wait_s:g}", server.data_directory]
    return server.host.run([*script, *argv], user=server.owner(), timeout_s=timeout_s)


def _lines(ended: CommandResult) -> str:
    return clean(redact("\n".join([ended.output, ended.errors]).strip()))


def _printed(ended: CommandResult) -> str:
    """The last sentences it printed, without its tables."""
    lines = [line.strip() for line in "\n".join([ended.output, ended.errors]).splitlines()]
    sentences = [line for line in lines if line and line[0] not in "+|"]
    return clean(redact("; ".join(sentences[-3:]))) or f"exit code {ended.code}"
