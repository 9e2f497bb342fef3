"""The connections of a run: to its own server, and to others its document names. Opened on demand, always identified.

What was planned on one server is neither looked at nor done on another, whatever answers to the name by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dba_console.actions.identity import Identity
from dba_console.actions.link import Mark, Result
from dba_console.actions.operator import Operator, Restarted, refuse_other
from dba_console.actions.reading import MOST_ROWS
from dba_console.clock import Clock
from dba_console.config import Config
from dba_console.errors import ConsoleError, Refused, Unsupported
from dba_console.plans.plan import Block
from dba_console.target import Target

APPLICATION_BYTES = 63
"""The server cuts application_name at this (NAMEDATALEN - 1)."""
ROLES = ("primary", "standby")


Meant = Callable[[str, Identity, str], bool]
"""Asks whether a server that was started anew is still the one that is meant: in words, who it is now, and its name,
which the run's own has not."""
Met = Callable[[str, Identity], None]
"""Writes down whom another server of the run was met as."""


class Server:
    """One server of a run. Used by the run's thread alone."""

    def __init__(self, operator: Operator, planned: Identity | None, meant: Meant, name: str = "") -> None:
        self.operator, self._meant, self._name = operator, meant, name
        self.operator.planned = planned

    @property
    def planned(self) -> Identity | None:
        return self.operator.planned

    @property
    def direct(self) -> bool:
        """Whether no pooler stands between; taken for granted where nobody answers."""
        try:
            return self.operator.direct()
        except ConsoleError:
            return True

    def require(self) -> None:
        """Raises Refused where it is not the server the run was begun on; one that was started anew may be meant."""
        if self.planned is None:
            return
        now = self.operator.identity()
        try:
            refuse_other(self.planned, now)
        except Restarted as restarted:
            if not self._meant(restarted.message, now, self._name):
                raise
            self.operator.planned = now

    def look(self, sql: str, params: Any, *, timeout_s: float) -> Result:
        """Rows of one statement that only reads. Raises Refused where another server answers, and as `Link.rows`."""
        self.require()
        return self.operator.look(sql, params, timeout_s=timeout_s)

    def look_in(self, databases: Sequence[str], sql: str, params: Any, *, timeout_s: float) -> Result:
        """Rows of the same statement in each of these databases, with `datname` before their own columns. Raises as
        `look`, and ConnectError with the name of a database that lets nobody in."""
        self.require()
        rows: list[dict[str, Any]] = []
        columns: tuple[str, ...] = ("datname",)
        cut = False
        for name in dict.fromkeys(databases):
            link = self.operator.to(name)
            try:
                result = link.look(sql, params, timeout_s=timeout_s)
            except ConsoleError as error:
                error.message = f"in database {name}: {error.message}"
                raise
            finally:
                if link is not self.operator:
                    link.close()  # a server has many databases, and few connections to spare
            rows += [{"datname": name, **row} for row in result.rows]
            columns, cut = ("datname", *result.columns), cut or result.cut
        return Result(tuple(rows), len(rows), columns, cut=cut or len(rows) > MOST_ROWS)


class Servers:
    """The servers of one run."""

    def __init__(
        self,
        target: Target,
        planned: Identity | None,
        run: str,
        config: Config,
        clock: Clock,
        on_mark: Callable[[Mark], None],
        meant: Meant,
        met: Met,
        known: Mapping[str, Identity],
    ) -> None:
        self._meant, self._met, self._known = meant, met, known
        self._run, self._config, self._clock, self._on_mark = run, config, clock, on_mark
        self._target = target
        self._own = None if planned is None else self._server(target.conninfo, planned)
        self._named: dict[str, Server] = {}

    @property
    def own(self) -> Server | None:
        """The run's own; None where it was begun without one."""
        return self._own

    def of(self, block: Block) -> Server:
        """The server a block is for. Raises Unsupported where there is none, Refused where it has another role."""
        server = self._own if not block.on or block.on in ROLES else self._other(block.on)
        if server is None:
            raise Unsupported(
                f"{block.id} speaks to a server, and this run was begun without one",
                hint="begin it anew with --dsn DSN",
            )
        if block.on in ROLES and server.planned is not None and server.planned.role != block.on:
            raise Refused(
                f"{block.id} is for the {block.on}, and {self._target.name} is a {server.planned.role}",
                hint=f"skip it, or walk this runbook on the {block.on}",
            )
        server.operator.application = application(self._run, block.id.partition("/")[0])
        return server

    def anew(self, block: Block) -> Operator:
        """A connection of its own to the server a block is for, whoever answers there now; the caller closes it. Raises
        Unsupported where the configuration names none."""
        named = block.on and block.on not in ROLES
        if named and block.on not in self._config.targets:
            raise Unsupported(f"there is no target {block.on!r} in the configuration")
        conninfo = self._config.targets[block.on].dsn if named else self._target.conninfo
        return Operator(conninfo, application=application(self._run, "put-back"), clock=self._clock)

    def close(self) -> None:
        for server in (self._own, *self._named.values()):
            if server is not None:
                server.operator.close()

    def _other(self, name: str) -> Server:
        known = self._config.targets.get(name)
        if known is None:
            raise Unsupported(
                f"there is no target {name!r} in the configuration", hint=f"[targets.{name}] with its dsn names it"
            )
        if name not in self._named:
            server = self._server(known.dsn, self._known.get(name), name)
            if server.planned is None:
                # What is met first is what is meant from then on, by an agent that goes on with the run too.
                now = server.operator.identity()
                self._met(name, now)
                server.operator.planned = now
            self._named[name] = server
        return self._named[name]

    def _server(self, conninfo: str, planned: Identity | None, name: str = "") -> Server:
        operator = Operator(conninfo, planned=planned, clock=self._clock, on_mark=self._on_mark)
        return Server(operator, planned, self._meant, name)


def application(run: str, step: str) -> str:
    """As the acting connection calls itself on the server: the run's time and token, and the step.

    >>> application("20261120T145307Z-cache-drop-1a2b", "drop-it")
    'dba-console:145307Z-1a2b:drop-it'
    """
    start, _, rest = run.partition("-")
    short = f"{start.rpartition('T')[2]}-{rest.rpartition('-')[2]}"
    return f"dba-console:{short}:{step}".encode()[:APPLICATION_BYTES].decode("utf-8", "ignore")
