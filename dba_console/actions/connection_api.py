"""What actions see of the connection that acts, and how a statement on it may end.

Between sending COMMIT and its answer lies the one moment in which nobody on this side knows what happened. The
`StatementMark` is what is written down before that moment: by it the server can be asked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from dba_console.actions.action import QueryConnection
from dba_console.core.errors import ConnectError, ConsoleError, ExitCode, Unsupported
from dba_console.core.redact import redact

if TYPE_CHECKING:
    from dba_console.actions.action import ActionContext
    from dba_console.actions.identity import ServerIdentity

Params = Mapping[str, Any] | Sequence[Any] | None
"""None: the text is sent as it stands. Else `%(name)s` and `%s` are bound, and a percent sign is written twice."""
StatementWatch = Callable[[int], bool]
"""Called several times a second while a statement runs, with the process id of its backend; True has it cancelled."""


class StatementMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By what a statement is found again on the server: kept in the journal before it can take effect."""

    system_identifier: str | None = None
    timeline: int | None = None
    server_start_us: int = 0
    database: str = ""
    pid: int = 0
    backend_start_us: int = 0
    """With the process id it names one session, of now or of the past."""
    application: str = ""
    xid: int | None = None
    """64-bit transaction id (xid8); None for a statement that runs in no transaction of ours."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement gave."""

    rows: tuple[dict[str, Any], ...] = ()
    count: int = 0
    """Rows it touched or gave."""
    columns: tuple[str, ...] = ()
    cut: bool = False
    """There are more rows than these."""
    tag: str = ""
    """The server's word for what was done, as `ALTER ROLE` or `UPDATE 5`."""
    warnings: tuple[str, ...] = ()
    """What the server said beside it, at most ten; VACUUM says that it may not only here."""


class StatementFailed(ConsoleError):
    """The server said no, and nothing of the statement remains."""

    code = ExitCode.RUNBOOK_FAILED

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)
        self.sqlstate = sqlstate


class StatementStopped(StatementFailed):
    """Cancelled because the operator asked for it."""


class StatementLost(ConnectError):
    """The connection broke. `mark` None: before anything could take effect; else its end is unknown."""

    def __init__(self, message: str, *, mark: StatementMark | None = None) -> None:
        super().__init__(redact(message), hint="ask the server what became of it before it is done again")
        self.mark = mark


class ServerConnection(QueryConnection, Protocol):
    """The acting connection whole. Used by one thread."""

    def query(
        self, sql: str, params: Params = None, *, timeout_s: float = 10.0, limit: int = 10_000
    ) -> StatementResult:
        """What a statement gives that only reads: one statement, in a read-only transaction it cannot leave."""

    def execute_change(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float | None = None,
        lock_timeout_s: float | None = None,
        transaction: bool = True,
        watch: StatementWatch | None = None,
    ) -> StatementResult:
        """Execute one statement that changes, on the server the run was begun on and on no other.

        `timeout_s` None: as long as it takes. Raises what `Link` says.
        """

    def for_database(self, database: str) -> ServerConnection:
        """The acting connection to another database of the same server; kept, closed with this one."""

    def open_another(self) -> ServerConnection:
        """A connection more, for looking on while this one is busy; whoever asks for it closes it."""

    def close(self) -> None:
        """End the connection. The next statement opens another."""

    def read_identity(self) -> ServerIdentity:
        """Who answers now, asked anew."""

    def set_parameter(self, name: str, value: str) -> None:
        """Set a parameter for every later statement of this connection, also after it was opened anew."""

    def reset_parameter(self, name: str) -> None:
        """Set a parameter no more."""


def require_connection(context: ActionContext) -> ServerConnection:
    """The acting connection of a world. Raises Unsupported where there is none."""
    if context.connection is None:
        raise Unsupported(
            "this acts on a server, and no server belongs to this run",
            hint="name one: dba-console runbook run NAME --dsn DSN",
        )
    return cast("ServerConnection", context.connection)
