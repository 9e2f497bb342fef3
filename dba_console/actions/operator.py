"""The second connection: opened on demand, identified before each act, bounded in everything it does.

Each statement that changes has a transaction of its own, begun with the question who answers, so that what was
identified and what is changed are the same backend, also behind a pooler. Its transaction id is written down before
COMMIT is sent: the end of a COMMIT that nobody saw can be asked for afterwards (`pg_xact_status`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from dba_console.actions import sql
from dba_console.actions.bounded import CANCEL_S
from dba_console.actions.conversation import SHORT_S, Conversation, begin
from dba_console.actions.identity import STANDBY, Identity, other_server, restarted
from dba_console.actions.link import Lost, Mark, Params, Result, StatementFailed, Watch
from dba_console.actions.reading import MOST_ROWS, read
from dba_console.clock import SYSTEM, Clock
from dba_console.errors import Refused

T = TypeVar("T")

LOCK_TIMEOUT_S = 2.0
"""Where nothing else is said: who waits for a lock on a relation has everybody else wait behind it."""
COMMIT_S = 30.0
"""COMMIT may wait for a synchronous standby. Beyond this its end is unknown, which is a state of its own."""


class Restarted(Refused):
    """It is the same server, but it was started anew since: whoever asks may be told and say that it is meant."""


class Operator:
    """Implements `ServerLink`. Used by one thread; `close` it."""

    def __init__(
        self,
        conninfo: str,
        *,
        planned: Identity | None = None,
        application: str = "dba-console:acting",
        on_mark: Callable[[Mark], None] = lambda mark: None,
        database: str | None = None,
        connect_timeout_s: float = 3.0,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock = SYSTEM,
    ) -> None:
        self._conninfo, self._clock = conninfo, clock
        self.planned = planned
        """Whom to act on; None until known. What it is not is refused."""
        self.application = application
        """Set anew for each block; the server is told with the next statement."""
        self.on_mark = on_mark
        """Writes the mark down, durably. What it raises stops the act before it takes effect."""
        self.commit_s: float | None = COMMIT_S
        self._database, self._connect_timeout_s, self._lock_timeout_s = database, connect_timeout_s, lock_timeout_s
        self._kept: dict[str, str] = {}
        self._others: dict[str, Operator] = {}
        self._open: Conversation | None = None

    def __repr__(self) -> str:
        return f"Operator({self.application!r})"  # the connection string may hold a password

    # -- what actions use ----------------------------------------------------------------------------------------

    def rows(self, sql: str, params: Params = None, *, timeout_s: float = SHORT_S) -> list[dict[str, Any]]:
        return list(self.look(sql, params, timeout_s=timeout_s).rows)

    def look(self, sql: str, params: Params = None, *, timeout_s: float = SHORT_S, limit: int = MOST_ROWS) -> Result:
        def once(open_: Conversation) -> Result:
            with open_.ending(), open_.within(timeout_s + CANCEL_S):
                open_.connection.begin("BEGIN READ ONLY")
                open_.limit(timeout_s, self._lock_timeout_s, local=True)
                result = read(open_.connection, sql, params, limit)
                open_.connection.execute("ROLLBACK")
                return result

        return self._again(once)

    def execute(
        self, sql: str, params: Params = None, *, timeout_s: float | None = None, transaction: bool = True
    ) -> int:
        return self.act(sql, params, timeout_s=timeout_s, transaction=transaction).count

    def act(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float | None = None,
        lock_timeout_s: float | None = None,
        transaction: bool = True,
        watch: Watch | None = None,
    ) -> Result:
        lock_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s
        until_s = None if timeout_s is None else timeout_s + 2 * CANCEL_S
        open_ = self._again(lambda open_: self._begin(open_, transaction))
        with open_.ending():
            open_.warnings.clear()
            open_.limit(timeout_s, lock_s, local=transaction)
            if not transaction:
                self.on_mark(open_.mark)
            # What breaks off within its transaction cannot be committed; what has none may have happened.
            with open_.watched(watch), open_.within(until_s, None if transaction else open_.mark):
                cursor = open_.connection.execute(sql.encode(), params)
            rows = cursor.fetchall() if cursor.description is not None else []
            columns = tuple(column.name for column in cursor.description or ())
            if transaction:
                self._commit(open_)
            return Result(
                tuple(rows), max(cursor.rowcount, 0), columns, tag=cursor.statusmessage or "",
                warnings=tuple(open_.warnings),
            )  # fmt: skip

    def to(self, database: str) -> Operator:
        if database == self._database or (self._open is not None and database == self._open.identity.database):
            return self
        if database not in self._others:
            self._others[database] = self._another(database)
        other = self._others[database]
        other.planned, other.application = self.planned, self.application
        return other

    def aside(self) -> Operator:
        return self._another(self._database)

    def identity(self) -> Identity:
        """Who answers now. Raises ConnectError where nobody does."""
        return self._again(lambda open_: open_.who())

    def direct(self) -> bool:
        """Whether no pooler stands between. Raises ConnectError where nobody answers."""
        return self._again(lambda open_: open_.connection.direct)

    def keep(self, name: str, value: str) -> None:
        def once(open_: Conversation) -> None:
            open_.refuse_pooled("what is set for this run would be handed to others")
            with open_.ending():
                open_.set(name, value)

        self._again(once)
        self._kept[name] = value

    def forget(self, name: str) -> None:
        def once(open_: Conversation) -> None:
            with open_.ending():
                open_.reset(name)

        self._again(once)
        self._kept.pop(name, None)

    @property
    def mark(self) -> Mark:
        """Of the open connection, without a transaction id; empty where none is open."""
        return Mark() if self._open is None else self._open.mark

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        self._others.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _again(self, once: Callable[[Conversation], T]) -> T:
        """Do what may be done twice; over a new connection where the one that was open turns out to be gone."""
        had = self._open is not None
        try:
            return once(self._ready())
        except Lost:
            if not had:
                raise
        return once(self._ready())

    def _ready(self) -> Conversation:
        """The open connection, or a new one. Raises ConnectError."""
        if self._open is not None and self._open.over:
            self._open.close()
            self._open = None
        if self._open is None:
            self._open = begin(
                self._conninfo,
                application=self.application,
                database=self._database,
                kept=self._kept,
                timeout_s=self._connect_timeout_s,
                clock=self._clock,
            )
        if self._open.mark.application != self.application:
            with self._open.ending():
                self._open.rename(self.application)
        return self._open

    def _another(self, database: str | None) -> Operator:
        return Operator(
            self._conninfo,
            planned=self.planned,
            application=self.application,
            on_mark=lambda mark: self.on_mark(mark),
            database=database,
            connect_timeout_s=self._connect_timeout_s,
            lock_timeout_s=self._lock_timeout_s,
            clock=self._clock,
        )

    def _begin(self, open_: Conversation, transaction: bool) -> Conversation:
        """The connection, identified, in a transaction where one is wanted. Raises Refused."""
        with open_.ending(), open_.within(SHORT_S):
            if transaction:
                open_.connection.begin("BEGIN" if open_.identity.role == STANDBY else "BEGIN READ WRITE")
            now = open_.who()
            if self.planned is not None:
                refuse_other(self.planned, now)
            if not transaction:
                open_.refuse_pooled("what runs in no transaction may end on another connection than it began on")
        return open_

    def _commit(self, open_: Conversation) -> None:
        """Write the transaction id down, then COMMIT."""
        if not open_.in_transaction():
            raise StatementFailed(
                "the statement ended its transaction itself; what it did before that stays",
                hint="a change may hold no COMMIT or ROLLBACK of its own; transaction=no is for what cannot be in one",
            )
        with open_.within(SHORT_S):
            [row] = open_.connection.execute(sql.XID).fetchall()
        mark = None if row["xid"] is None else replace(open_.mark, xid=int(row["xid"]))
        if mark is not None:
            self.on_mark(mark)
        try:
            with open_.within(self.commit_s, mark):
                open_.connection.execute("COMMIT")
        except Lost:
            if mark is not None:
                raise
            # Nothing was to be committed: what the statement did had its effect when it was executed.


def refuse_other(planned: Identity, now: Identity) -> None:
    """Raises Refused where it is another server, Restarted where it is the same one started anew."""
    if told := other_server(planned, now):
        raise Refused(told, hint="nothing was done; begin a run anew on the server that is meant")
    if told := restarted(planned, now):
        raise Restarted(told, hint="go on only if that restart was meant")
