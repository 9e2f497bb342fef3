"""How a run comes to be: planned and recorded as such, or taken up again where an agent left it. Done in the run's own
thread, for servers and disks are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console import __version__
from dba_console.actions.identity import ServerIdentity, host_identity
from dba_console.actions.permission_gate import PlannedTarget
from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.agent.runs.preparation import (
    RunOrder,
    read_run_request,
    refuse_second_run,
    require_needs,
    restore_run_request,
    uses_server,
)
from dba_console.agent.runs.questions import OperatorQuestions
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
from dba_console.runbooks.command_environment import find_secrets
from dba_console.runbooks.library import is_shipped
from dba_console.runbooks.walk_context import interrupted, planned, resumed

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun

SESSION_S = 10.0
"""A recording is opened after the agent's first picture, and on a slow disk that takes its time."""


def start_run(under_way: ActiveRun, asked: RunBegin, who: str, beside: str) -> RunExecution:
    """A run that is planned and recorded as such. `beside`: the run that is under way, beside which only settings may
    be put back. Raises ConsoleError where it cannot be, and then there is none.
    """
    order, around = read_run_request(asked), under_way.around
    refuse_second_run(order.plan, beside)
    session = _wait_for_session(around, under_way.questions)
    _refuse_masked(order)
    about = _identify_server_and_host(order.plan, around)
    run = new_run_id(order.plan.id, around.clock.wall_us())
    secrets = find_secrets(around.target.conninfo, around.config, order.values, order.secret)
    journal = RunJournal.create(
        run_directory(session, run), _about(order, who, around), text=order.text, plan=order.plan, secrets=secrets,
        clock=around.clock,
    )  # fmt: skip
    with _close_on_error(journal):
        first = planned(
            order.plan, run=run, mode=order.mode, target=around.target.name, who=who, inputs=order.values,
            identity="" if about.server is None else about.server.describe(),
            server=msgspec.to_builtins(about.server), host=msgspec.to_builtins(about.host),
            shipped=is_shipped(order.plan.id, order.text),
        )  # fmt: skip
        written = journal.append(convert(msgspec.to_builtins(first, enc_hook=str), JournalRecord))
        around.emit(journal.event(log_tag(order.plan)))
        return RunExecution(order, journal, [written], about, under_way)


@contextmanager
def _close_on_error(journal: RunJournal) -> Iterator[None]:
    """A run that comes to nothing is not held: it can be gone on with once what kept it is over."""
    try:
        yield
    except BaseException:
        journal.close()
        raise


def _refuse_masked(order: RunOrder) -> None:
    """Raises UsageError where an input that is not declared secret looks like one: it could not be kept as it is."""
    for name, value in order.values.items():
        if name not in order.secret and masked_value(msgspec.to_builtins(value, enc_hook=str), redact) != value:
            raise UsageError(
                f"{name} holds what looks like a password, and its runbook does not declare it a secret",
                hint='give it without the password, or write type = "secret" in the runbook',
            )


def _wait_for_session(around: RunContext, desk: OperatorQuestions) -> Path:
    """The session the run belongs to; one that is only being opened is waited for. Raises Unsupported, Left."""
    until_us = around.clock.mono_us() + int(SESSION_S * 1e6)
    while (session := around.session()) is None and around.clock.mono_us() < until_us:
        desk.wait(0.1)
    if session is None:
        raise Unsupported(
            "nothing is recorded now, and nothing is done that is not recorded",
            hint="the console's own panel says why; see `recording`",
        )
    return session


def resume_run(under_way: ActiveRun, directory: Path, asked: RunResume, who: str, beside: str) -> RunExecution:
    """The run in that directory, to be gone on with. Raises ConsoleError where it cannot be."""
    papers, around = compare_with_sessions(read_run(directory)), under_way.around
    order = restore_run_request(papers, asked.inputs, ending=bool(asked.abort))
    refuse_second_run(order.plan, beside)
    if not asked.abort:
        require_login(order.plan, around)
    about = planned_servers(papers.records)
    secrets = find_secrets(around.target.conninfo, around.config, order.values, order.secret)
    journal = RunJournal.reopen(papers, secrets=secrets, who=who, clock=around.clock)
    records = list(papers.records)
    with _close_on_error(journal):
        # When it died is not known: what came before its last record is all that is.
        for record in (interrupted("its agent was gone", papers.records[-1].wall_us), resumed(who)):
            records.append(journal.append(record))
            around.emit(journal.event(log_tag(order.plan)))
        return RunExecution(order, journal, records, about, under_way)


def require_login(plan: Plan, around: RunContext) -> None:
    """Raises ConnectError where the server refuses the login: a run that is resumed would fail by it.

    A server that does not answer is left to the walk: it may be what the run waits for.
    """
    if not uses_server(plan):
        return
    from dba_console.actions.acting_connection import ActingConnection
    from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

    operator = ActingConnection(around.target.conninfo, clock=around.clock)
    try:
        operator.read_identity()
    except ConnectFailed as error:
        if error.kind == "auth":
            hint = "a password in the connection string is not kept: give the run its --dsn, PGPASSWORD or a passfile"
            raise ConnectError(error.message, hint=hint) from None
    except ConsoleError:
        pass
    finally:
        operator.close()


def planned_servers(records: Sequence[JournalRecord]) -> PlannedTarget:
    """What a run was begun on."""
    first = next((record for record in records if record.kind == "run.planned"), None)
    fields: dict[str, Any] = {} if first is None else first.fields
    given = {"server": fields.get("server"), "host": fields.get("host")}
    for record in records:
        if record.kind == RESTART and "server" in record.fields and "name" not in record.fields:
            given["server"] = record.fields["server"]
    return convert(given, PlannedTarget)


def _identify_server_and_host(plan: Plan, around: RunContext) -> PlannedTarget:
    """The server and host it is begun on, with all it needs there. Raises ConsoleError."""
    if not uses_server(plan):
        require_needs(plan, None)
        return PlannedTarget(host=host_identity())
    from dba_console.actions.acting_connection import ActingConnection

    operator = ActingConnection(around.target.conninfo, clock=around.clock)
    try:
        identity: ServerIdentity = operator.read_identity()
        require_needs(plan, operator)
    finally:
        operator.close()
    return PlannedTarget(server=identity, host=host_identity())


def _about(order: RunOrder, who: str, around: RunContext) -> RunAbout:
    host = host_identity()
    return RunAbout(
        run="", runbook=order.plan.id, title=order.plan.title, mode=order.mode, target=around.target.name,
        target_key=around.target.key, conninfo=without_secrets(around.target.conninfo), host=host.name,
        boot_id=host.boot_id, program_version=__version__, who=who, source=order.source,
    )  # fmt: skip
