"""Start a run and write its plan to a new journal, or resume a run from its journal. Called in the run's own thread,
because it queries servers and disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console import __version__
from dba_console.actions.identity import ServerIdentity, host_identity
from dba_console.actions.permission_gate import PlannedTarget
from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.agent.runs.operator_answers import OperatorQuestions
from dba_console.agent.runs.preparation import (
    RunOrder,
    read_run_request,
    refuse_second_run,
    require_needs,
    restore_run_request,
    uses_server,
)
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.run_execution import RESTART, RunExecution
from dba_console.core.decoding import convert
from dba_console.core.errors import ConnectError, ConsoleError, Unsupported, UsageError
from dba_console.core.redact import redact
from dba_console.core.target import without_secrets
from dba_console.recording.plan import JournalRecord, Plan, log_tag
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import new_run_id, run_directory
from dba_console.recording.run_reader import read_run
from dba_console.recording.run_records import RunAbout, masked_value
from dba_console.recording.run_verification import compare_with_sessions
from dba_console.runbooks.libpq_environment import find_secrets
from dba_console.runbooks.library import is_shipped
from dba_console.runbooks.walk_context import interrupted, planned, resumed

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun

APPLICATION = "dba-console:start"
"""application_name of the connection that identifies the server before a run."""
SESSION_S = 10.0
"""Maximum wait for the recording, which is opened after the agent's first picture; slow on a slow disk."""


def start_run(active_run: ActiveRun, request: RunBegin, who: str, active_text: str) -> RunExecution:
    """Plan a run and record that. `active_text`: the active run, beside which only settings may be reverted. Raises
    ConsoleError if it cannot be created; then there is no run.
    """
    order, context = read_run_request(request), active_run.context
    refuse_second_run(order.plan, active_text)
    session = _wait_for_session(context, active_run.questions)
    _refuse_masked(order)
    about = _identify_server_and_host(order.plan, context)
    run = new_run_id(order.plan.id, context.clock.wall_us())
    secrets = find_secrets(context.target.conninfo, context.config, order.values, order.secret)
    journal = RunJournal.create(
        run_directory(session, run), _about(order, who, context), text=order.text, plan=order.plan, secrets=secrets,
        clock=context.clock,
    )  # fmt: skip
    with _close_on_error(journal):
        first = planned(
            order.plan, run=run, mode=order.mode, target=context.target.name, who=who, inputs=order.values,
            identity="" if about.server is None else about.server.describe(),
            server=msgspec.to_builtins(about.server), host=msgspec.to_builtins(about.host),
            shipped=is_shipped(order.plan.id, order.text),
        )  # fmt: skip
        written = journal.append(convert(msgspec.to_builtins(first, enc_hook=str), JournalRecord))
        context.emit(journal.event(log_tag(order.plan)))
        return RunExecution(order, journal, [written], about, active_run)


@contextmanager
def _close_on_error(journal: RunJournal) -> Iterator[None]:
    """Close the journal after an error, so that the run can be resumed later."""
    try:
        yield
    except BaseException:
        journal.close()
        raise


def _refuse_masked(order: RunOrder) -> None:
    """Raise UsageError for an input that looks like a secret but is not declared so: it could not be stored."""
    for name, value in order.values.items():
        if name not in order.secret and masked_value(msgspec.to_builtins(value, enc_hook=str), redact) != value:
            raise UsageError(
                f"{name} contains what looks like a password, and its runbook does not declare it as secret",
                hint='give it without the password, or set type = "secret" in the runbook',
            )


def _wait_for_session(context: RunContext, questions: OperatorQuestions) -> Path:
    """Wait for the session of the run, which may still be opening. Raises Unsupported, RunAbandoned."""
    until_us = context.clock.mono_us() + int(SESSION_S * 1e6)
    while (session := context.session()) is None:
        error = context.recording_error()
        if error is None and context.clock.mono_us() >= until_us:
            error = f"the recording is not open after {SESSION_S:.0f} s: the disk of the sessions is stalled"
        if error is not None:
            raise Unsupported(
                f"cannot start a run, because a run must be recorded; {error}",
                hint="dba-console doctor checks the directory of the sessions; the agent tries again each minute",
            )
        questions.wait(0.02)
    return session


def resume_run(active_run: ActiveRun, directory: Path, request: RunResume, who: str, active_text: str) -> RunExecution:
    """Reopen the run in that directory, to resume it. Raises ConsoleError if that is not possible."""
    stored_run, context = compare_with_sessions(read_run(directory)), active_run.context
    order = restore_run_request(stored_run, request.inputs, ending=bool(request.abort))
    refuse_second_run(order.plan, active_text)
    if not request.abort:
        require_login(order.plan, context)
    about = planned_servers(stored_run.records)
    secrets = find_secrets(context.target.conninfo, context.config, order.values, order.secret)
    journal = RunJournal.reopen(stored_run, secrets=secrets, who=who, clock=context.clock)
    records = list(stored_run.records)
    with _close_on_error(journal):
        # The time of its death is unknown; only records up to the last one exist.
        for record in (interrupted("its agent was gone", stored_run.records[-1].wall_us), resumed(who)):
            records.append(journal.append(record))
            context.emit(journal.event(log_tag(order.plan)))
        return RunExecution(order, journal, records, about, active_run)


def require_login(plan: Plan, context: RunContext) -> None:
    """Raise ConnectError if the server refuses the login: a resumed run would fail because of it.

    A server that does not answer is left to the walk: the run may be waiting for it.
    """
    if not uses_server(plan):
        return
    from dba_console.actions.query_connection import QueryConnection
    from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

    connection = QueryConnection(context.target.conninfo, application=APPLICATION, clock=context.clock)
    try:
        connection.read_identity()
    except ConnectFailed as error:
        if error.kind == "auth":
            hint = "passwords in connection strings are not stored: give the run its --dsn, PGPASSWORD or a passfile"
            raise ConnectError(error.message, hint=hint) from None
    except ConsoleError:
        pass
    finally:
        connection.close()


def planned_servers(records: Sequence[JournalRecord]) -> PlannedTarget:
    """Return the server and host a run was started on."""
    first = next((record for record in records if record.kind == "run.planned"), None)
    fields: dict[str, Any] = {} if first is None else first.fields
    given = {"server": fields.get("server"), "host": fields.get("host")}
    for record in records:
        if record.kind == RESTART and "server" in record.fields and "name" not in record.fields:
            given["server"] = record.fields["server"]
    return convert(given, PlannedTarget)


def _identify_server_and_host(plan: Plan, context: RunContext) -> PlannedTarget:
    """Identify the server and host the run starts on, and check its needs. Raises ConsoleError."""
    if not uses_server(plan):
        require_needs(plan, None)
        return PlannedTarget(host=host_identity())
    from dba_console.actions.query_connection import QueryConnection

    with closing(QueryConnection(context.target.conninfo, application=APPLICATION, clock=context.clock)) as connection:
        identity: ServerIdentity = connection.read_identity()
        require_needs(plan, connection)
    return PlannedTarget(server=identity, host=host_identity())


def _about(order: RunOrder, who: str, context: RunContext) -> RunAbout:
    host = host_identity()
    return RunAbout(
        run="", runbook=order.plan.id, title=order.plan.title, mode=order.mode, target=context.target.name,
        target_key=context.target.key, conninfo=without_secrets(context.target.conninfo), host=host.name,
        boot_id=host.boot_id, program_version=__version__, who=who, source=order.source,
    )  # fmt: skip
