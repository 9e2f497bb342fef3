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
from dba_console.actions.gate import Planned
from dba_console.actions.identity import Identity, host_identity
from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.agent.runs.conduct import RESTART, Conduct
from dba_console.agent.runs.desk import Desk
from dba_console.agent.runs.environment import secrets_of
from dba_console.agent.runs.preparing import Order, order_again, order_of, refuse_beside, require, uses_server
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.errors import ConnectError, ConsoleError, Unsupported, UsageError
from dba_console.plans.plan import Plan, tag_of
from dba_console.plans.record import Record
from dba_console.records import convert
from dba_console.redact import redact
from dba_console.runbook.library import is_shipped
from dba_console.runbook.walk_records import interrupted, planned, resumed
from dba_console.session.runjournal import RunJournal
from dba_console.session.runplaces import new_run_id, run_directory
from dba_console.session.runread import read_run
from dba_console.session.runrecords import RunAbout, masked_value
from dba_console.session.runverify import against_sessions
from dba_console.target import without_secrets

if TYPE_CHECKING:
    from dba_console.agent.runs.under_way import UnderWay

SESSION_S = 10.0
"""A recording is opened after the agent's first picture, and on a slow disk that takes its time."""


def begin(under_way: UnderWay, asked: RunBegin, who: str, beside: str) -> Conduct:
    """A run that is planned and recorded as such. `beside`: the run that is under way, beside which only settings may
    be put back. Raises ConsoleError where it cannot be, and then there is none.
    """
    order, around = order_of(asked), under_way.around
    refuse_beside(order.plan, beside)
    session = _session(around, under_way.desk)
    _refuse_masked(order)
    about = _met(order.plan, around)
    run = new_run_id(order.plan.id, around.clock.wall_us())
    secrets = secrets_of(around.target.conninfo, around.config, order.values, order.secret)
    journal = RunJournal.create(
        run_directory(session, run), _about(order, who, around), text=order.text, plan=order.plan, secrets=secrets,
        clock=around.clock,
    )  # fmt: skip
    with _closed_unless_made(journal):
        first = planned(
            order.plan, run=run, mode=order.mode, target=around.target.name, who=who, inputs=order.values,
            identity="" if about.server is None else about.server.words(),
            server=msgspec.to_builtins(about.server), host=msgspec.to_builtins(about.host),
            shipped=is_shipped(order.plan.id, order.text),
        )  # fmt: skip
        written = journal.append(convert(msgspec.to_builtins(first, enc_hook=str), Record))
        around.emit(journal.event(tag_of(order.plan)))
        return Conduct(order, journal, [written], about, under_way)


@contextmanager
def _closed_unless_made(journal: RunJournal) -> Iterator[None]:
    """A run that comes to nothing is not held: it can be gone on with once what kept it is over."""
    try:
        yield
    except BaseException:
        journal.close()
        raise


def _refuse_masked(order: Order) -> None:
    """Raises UsageError where an input that is not declared secret looks like one: it could not be kept as it is."""
    for name, value in order.values.items():
        if name not in order.secret and masked_value(msgspec.to_builtins(value, enc_hook=str), redact) != value:
            raise UsageError(
                f"{name} holds what looks like a password, and its runbook does not declare it a secret",
                hint='give it without the password, or write type = "secret" in the runbook',
            )


def _session(around: Surroundings, desk: Desk) -> Path:
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


def resume(under_way: UnderWay, directory: Path, asked: RunResume, who: str, beside: str) -> Conduct:
    """The run in that directory, to be gone on with. Raises ConsoleError where it cannot be."""
    papers, around = against_sessions(read_run(directory)), under_way.around
    order = order_again(papers, asked.inputs, ending=bool(asked.abort))
    refuse_beside(order.plan, beside)
    if not asked.abort:
        require_login(order.plan, around)
    about = planned_of(papers.records)
    secrets = secrets_of(around.target.conninfo, around.config, order.values, order.secret)
    journal = RunJournal.reopen(papers, secrets=secrets, who=who, clock=around.clock)
    records = list(papers.records)
    with _closed_unless_made(journal):
        # When it died is not known: what came before its last record is all that is.
        for record in (interrupted("its agent was gone", papers.records[-1].wall_us), resumed(who)):
            records.append(journal.append(record))
            around.emit(journal.event(tag_of(order.plan)))
        return Conduct(order, journal, records, about, under_way)


def require_login(plan: Plan, around: Surroundings) -> None:
    """Raises ConnectError where the server refuses the login: a run that is resumed would fail by it.

    A server that does not answer is left to the walk: it may be what the run waits for.
    """
    if not uses_server(plan):
        return
    from dba_console.actions.operator import Operator
    from dba_console.probes.postgres.failures import ConnectFailed

    operator = Operator(around.target.conninfo, clock=around.clock)
    try:
        operator.identity()
    except ConnectFailed as error:
        if error.kind == "auth":
            hint = "a password in the connection string is not kept: give the run its --dsn, PGPASSWORD or a passfile"
            raise ConnectError(error.message, hint=hint) from None
    except ConsoleError:
        pass
    finally:
        operator.close()


def planned_of(records: Sequence[Record]) -> Planned:
    """What a run was begun on."""
    first = next((record for record in records if record.kind == "run.planned"), None)
    fields: dict[str, Any] = {} if first is None else first.fields
    given = {"server": fields.get("server"), "host": fields.get("host")}
    for record in records:
        if record.kind == RESTART and "server" in record.fields and "name" not in record.fields:
            given["server"] = record.fields["server"]
    return convert(given, Planned)


def _met(plan: Plan, around: Surroundings) -> Planned:
    """The server and host it is begun on, with all it needs there. Raises ConsoleError."""
    if not uses_server(plan):
        require(plan, None)
        return Planned(host=host_identity())
    from dba_console.actions.operator import Operator

    operator = Operator(around.target.conninfo, clock=around.clock)
    try:
        identity: Identity = operator.identity()
        require(plan, operator)
    finally:
        operator.close()
    return Planned(server=identity, host=host_identity())


def _about(order: Order, who: str, around: Surroundings) -> RunAbout:
    host = host_identity()
    return RunAbout(
        run="", runbook=order.plan.id, title=order.plan.title, mode=order.mode, target=around.target.name,
        target_key=around.target.key, conninfo=without_secrets(around.target.conninfo), host=host.name,
        boot_id=host.boot_id, program_version=__version__, who=who, source=order.source,
    )  # fmt: skip
