"""Put back what a run has set for a time, once it was given up: by what is on record, as a run of `put-back` would.

It asks who answers now instead of holding to the server the run was begun on: one that crashed meanwhile is another one
to the run and the same to what is on record.
"""

from __future__ import annotations

from pathlib import Path

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext
from dba_console.actions.permission_gate import ActRequest, CurrentTarget, PlannedTarget, authorize
from dba_console.actions.policy import find_read_only_target
from dba_console.actions.put_back import PutBack, PutBackSettings
from dba_console.actions.temporary_settings import default_directory, read_all
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.server_connections import RunServers
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.recording.plan import Block, Plan
from dba_console.runbooks.requests import Outcome


def revert_settings(
    block: Block, directory: Path, plan: Plan, servers: RunServers, controls: ActionControl, around: RunContext
) -> Outcome:
    """What the run of this directory has set on the server of `block`. Never raises; unknown where that server does not
    answer, failed where something of it stays as it is. The value `revert_settings` says whether anything was on
    record."""
    begun_us = around.clock.mono_us()
    controls.begin()
    try:
        if not any(debt.run == directory.name for debt in read_all(default_directory()).reverts):
            return Outcome(state="ok", text="nothing was on record")
        link = servers.open_new_connection(block)
        try:
            outcome = _revert_on_server(link, directory, plan, controls, around)
        finally:
            link.close()
    except ConnectError as error:
        outcome = Outcome(state="unknown", text=redact(error.message))
    except (ConsoleError, OSError) as error:
        outcome = Outcome(state="failed", text=redact(error.message if isinstance(error, ConsoleError) else str(error)))
    finally:
        controls.end()
    machine_s = (around.clock.mono_us() - begun_us) / 1e6
    return Outcome(state=outcome.state, text=outcome.text, values={"put_back": True}, machine_s=machine_s)


def _revert_on_server(
    link: ActingConnection, directory: Path, plan: Plan, controls: ActionControl, around: RunContext
) -> Outcome:
    """Raises ConsoleError."""
    target, settings, acting = around.target, PutBackSettings(of="run"), PutBack()
    link.planned = link.read_identity()
    world = ActionContext(
        connection=link, server_is_local=around.is_server_here(), clock=around.clock, run=directory.name,
        runbook=plan.id,
        run_directory=str(directory), target=target.name, target_key=target.key,
    )  # fmt: skip
    place = CurrentTarget(
        connection=link, config=around.config.actions, read_only=find_read_only_target(around.config, target)
    )
    errand = ActRequest(kind="action", action=acting.name, target=target.name, undo=True)
    sight = authorize(
        errand, PlannedTarget(server=link.planned), place, look=lambda: acting.preview(settings, world)
    ).preview
    if sight is None or not sight.count:
        who = link.planned.describe()
        return Outcome(state="failed", text=f"what it has set is on another server than the one that answers: {who}")
    done = acting.act(settings, sight, world, controls)
    if done.state != "ok":
        link.read_identity()  # raises where it did not come to its end for want of a server, and then it is tried again
    return Outcome(state="ok" if done.state == "ok" else "failed", text=done.text)
