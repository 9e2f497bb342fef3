"""Revert the temporary settings of an aborted run, from their records, as a run of `put-back` would.

It accepts the server that answers now instead of the one the run started on: a server that crashed meanwhile is another
one for the run, but the same one for the records.
"""

from __future__ import annotations

from pathlib import Path

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext
from dba_console.actions.permission_gate import ActRequest, CurrentTarget, PlannedTarget, authorize
from dba_console.actions.policy import find_read_only_target
from dba_console.actions.temporary_settings import PutBack, PutBackSettings, default_directory, read_all
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.server_connections import RunServers
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.recording.plan import Block, Plan
from dba_console.runbooks.walk_requests import Outcome


def revert_settings(
    block: Block, directory: Path, plan: Plan, servers: RunServers, controls: ActionControl, context: RunContext
) -> Outcome:
    """Revert what the run of this directory has set on the server of `block`. Never raises; unknown if that server does
    not answer, failed if a setting stays changed. The value `put_back` tells whether anything was recorded."""
    begun_us = context.clock.mono_us()
    controls.begin()
    try:
        if not any(revert.run == directory.name for revert in read_all(default_directory()).reverts):
            return Outcome(state="ok", text="no settings to revert were recorded")
        connection = servers.open_new_connection(block)
        try:
            outcome = _revert_on_server(connection, directory, plan, controls, context)
        finally:
            connection.close()
    except ConnectError as error:
        outcome = Outcome(state="unknown", text=redact(error.message))
    except (ConsoleError, OSError) as error:
        outcome = Outcome(state="failed", text=redact(error.message if isinstance(error, ConsoleError) else str(error)))
    finally:
        controls.end()
    machine_s = (context.clock.mono_us() - begun_us) / 1e6
    return Outcome(state=outcome.state, text=outcome.text, values={"put_back": True}, machine_s=machine_s)


def _revert_on_server(
    connection: ActingConnection, directory: Path, plan: Plan, controls: ActionControl, context: RunContext
) -> Outcome:
    """Revert on the connected server. Raises ConsoleError."""
    target, settings, acting = context.target, PutBackSettings(of="run"), PutBack()
    connection.planned = connection.read_identity()
    action_context = ActionContext(
        connection=connection, server_is_local=context.is_server_here(), clock=context.clock, run=directory.name,
        runbook=plan.id,
        run_directory=str(directory), target=target.name, target_key=target.key,
    )  # fmt: skip
    current = CurrentTarget(
        connection=connection, config=context.config.actions, read_only=find_read_only_target(context.config, target)
    )
    request = ActRequest(kind="action", action=acting.name, target=target.name, undo=True)
    preview = authorize(
        request,
        PlannedTarget(server=connection.planned),
        current,
        look=lambda: acting.preview(settings, action_context),
    ).preview
    if preview is None or not preview.count:
        who = connection.planned.describe()
        return Outcome(state="failed", text=f"its settings are on another server than the one that answers: {who}")
    done = acting.act(settings, preview, action_context, controls)
    if done.state != "ok":
        connection.read_identity()  # raises if the server was lost meanwhile; the revert is then tried again
    return Outcome(state="ok" if done.state == "ok" else "failed", text=done.text)
