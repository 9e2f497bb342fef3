"""The connections of a run: to its own server and to others named in its document. Opened on demand, always identified.

What was planned on one server is neither read nor executed on another, even if that one has its name now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dba_console.actions.acting_connection import ActingConnection, ServerRestarted, refuse_other_server
from dba_console.actions.deadline_connection import MAX_ROWS
from dba_console.actions.identity import ServerIdentity
from dba_console.actions.statement_results import StatementMark, StatementResult
from dba_console.core.clock import Clock
from dba_console.core.config import Config
from dba_console.core.errors import ConsoleError, Refused, Unsupported
from dba_console.core.target import Target
from dba_console.recording.plan import Block

APPLICATION_BYTES = 63
"""The server truncates application_name to this (NAMEDATALEN - 1)."""
ROLES = ("primary", "standby")


ConfirmRestart = Callable[[str, ServerIdentity, str], bool]
"""Asks whether a restarted server is still the intended one: text, its identity now, and its name, empty for the run's
own server."""
RecordServer = Callable[[str, ServerIdentity], None]
"""Records the identity of another server of the run."""


class RunServer:
    """One server of a run. Used only by the run's thread."""

    def __init__(
        self,
        connection: ActingConnection,
        planned: ServerIdentity | None,
        confirm_restart: ConfirmRestart,
        name: str = "",
    ) -> None:
        self.connection = connection
        self._confirm_restart = confirm_restart
        self._name = name
        self.connection.planned = planned

    @property
    def planned(self) -> ServerIdentity | None:
        return self.connection.planned

    @property
    def direct(self) -> bool:
        """Whether no pooler is in between; True if nobody answers."""
        try:
            return self.connection.direct()
        except ConsoleError:
            return True

    def require_same(self) -> None:
        """Raise Refused if it is not the server of the run; the operator may confirm a restarted one."""
        if self.planned is None:
            return
        now = self.connection.read_identity()
        try:
            refuse_other_server(self.planned, now)
        except ServerRestarted as restarted:
            if not self._confirm_restart(restarted.message, now, self._name):
                raise
            self.connection.planned = now

    def query(self, sql: str, params: Any, *, timeout_s: float) -> StatementResult:
        """Return the rows of one read-only statement. Raises Refused if another server answers, and as `rows`."""
        self.require_same()
        return self.connection.query(sql, params, timeout_s=timeout_s)

    def query_databases(self, databases: Sequence[str], sql: str, params: Any, *, timeout_s: float) -> StatementResult:
        """Return the rows of the same statement in each database, with `datname` as first column. Raises as `query`,
        and ConnectError with the name of a database that refuses the connection."""
        self.require_same()
        rows: list[dict[str, Any]] = []
        columns: tuple[str, ...] = ("datname",)
        cut = False
        for name in dict.fromkeys(databases):
            other = self.connection.for_database(name)
            try:
                result = other.query(sql, params, timeout_s=timeout_s)
            except ConsoleError as error:
                error.message = f"in database {name}: {error.message}"
                raise
            finally:
                if other is not self.connection:
                    other.close()  # many databases, but few connections to spare
            rows += [{"datname": name, **row} for row in result.rows]
            columns, cut = ("datname", *result.columns), cut or result.cut
        return StatementResult(tuple(rows), len(rows), columns, cut=cut or len(rows) > MAX_ROWS)


class RunServers:
    """The servers of one run."""

    def __init__(
        self,
        target: Target,
        planned: ServerIdentity | None,
        run: str,
        config: Config,
        clock: Clock,
        on_mark: Callable[[StatementMark], None],
        confirm_restart: ConfirmRestart,
        record_server: RecordServer,
        known: Mapping[str, ServerIdentity],
    ) -> None:
        self._confirm_restart = confirm_restart
        self._record_server = record_server
        self._known = known
        self._run, self._config, self._clock, self._on_mark = run, config, clock, on_mark
        self._target = target
        self.own = None if planned is None else self._server(target.conninfo, planned)
        """The run's own server; None if it was started without one."""
        self._named: dict[str, RunServer] = {}

    def for_block(self, block: Block) -> RunServer:
        """Return the server of a block. Raises Unsupported if there is none, Refused if it has another role."""
        server = self.own if not block.on or block.on in ROLES else self._named_server(block.on)
        if server is None:
            raise Unsupported(
                f"{block.id} needs a server, and this run was started without one",
                hint="start it again with --dsn DSN",
            )
        if block.on in ROLES and server.planned is not None and server.planned.role != block.on:
            raise Refused(
                f"{block.id} is for the {block.on}, and {self._target.name} is a {server.planned.role}",
                hint=f"skip it, or run this runbook on the {block.on}",
            )
        server.connection.application = application_name(self._run, block.id.partition("/")[0])
        return server

    def open_new_connection(self, block: Block) -> ActingConnection:
        """Open a new connection to the server of a block, whatever server answers now; the caller closes it. Raises
        Unsupported if the configuration has no such target."""
        named = block.on and block.on not in ROLES
        if named and block.on not in self._config.targets:
            raise Unsupported(f"no target {block.on!r} in the configuration")
        conninfo = self._config.targets[block.on].dsn if named else self._target.conninfo
        return ActingConnection(conninfo, application=application_name(self._run, "put-back"), clock=self._clock)

    def close(self) -> None:
        for server in (self.own, *self._named.values()):
            if server is not None:
                server.connection.close()

    def _named_server(self, name: str) -> RunServer:
        known = self._config.targets.get(name)
        if known is None:
            raise Unsupported(f"no target {name!r} in the configuration", hint=f"add [targets.{name}] with its dsn")
        if name not in self._named:
            server = self._server(known.dsn, self._known.get(name), name)
            if server.planned is None:
                # The first server found is the intended one from now on, also for an agent that resumes the run.
                now = server.connection.read_identity()
                self._record_server(name, now)
                server.connection.planned = now
            self._named[name] = server
        return self._named[name]

    def _server(self, conninfo: str, planned: ServerIdentity | None, name: str = "") -> RunServer:
        connection = ActingConnection(conninfo, planned=planned, clock=self._clock, on_mark=self._on_mark)
        return RunServer(connection, planned, self._confirm_restart, name)


def application_name(run: str, step: str) -> str:
    """Return the application_name of the acting connection: the run's time and token, and the step.

    >>> application_name("20261120T145307Z-cache-drop-1a2b", "drop-it")
    'dba-console:145307Z-1a2b:drop-it'
    """
    start, _, rest = run.partition("-")
    short = f"{start.rpartition('T')[2]}-{rest.rpartition('-')[2]}"
    return f"dba-console:{short}:{step}".encode()[:APPLICATION_BYTES].decode("utf-8", "ignore")
