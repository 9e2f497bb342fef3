"""Records of the results and errors of SQL statements: succeeded, failed, cancelled, answer lost.

If the answer to COMMIT is lost, the outcome is unknown here. The `StatementMark`, recorded before COMMIT is sent,
identifies the transaction, so its outcome can be queried from the server afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dba_console.core.errors import ConnectError, ConsoleError, ExitCode
from dba_console.core.redact import redact

Params = Mapping[str, Any] | Sequence[Any] | None
"""None: the text is sent unchanged. Otherwise `%(name)s` and `%s` are bound, and a percent sign is written twice."""
StatementWatch = Callable[[int], bool]
"""Called several times a second while a statement runs, with the pid of its backend; True cancels the statement."""


class StatementMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identifies a statement on the server: recorded in the journal before the statement can take effect."""

    system_identifier: str | None = None
    timeline: int | None = None
    server_start_us: int = 0
    database: str = ""
    pid: int = 0
    backend_start_us: int = 0
    """Together with the pid it identifies one session, current or past."""
    application: str = ""
    xid: int | None = None
    """64-bit transaction id (xid8); None for a statement outside our own transaction."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """Result of a statement."""

    rows: tuple[dict[str, Any], ...] = ()
    count: int = 0
    """Rows affected or returned."""
    columns: tuple[str, ...] = ()
    cut: bool = False
    """The server has more rows than these."""
    tag: str = ""
    """Command tag, for example `ALTER ROLE` or `UPDATE 5`."""
    warnings: tuple[str, ...] = ()
    """Warnings of the server, at most ten; VACUUM reports missing privileges only here."""


class StatementFailed(ConsoleError):
    """The server reported an error, and the statement has no effect."""

    code = ExitCode.RUNBOOK_FAILED

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)
        self.sqlstate = sqlstate


class StatementStopped(StatementFailed):
    """Cancelled by the operator."""


class StatementLost(ConnectError):
    """The connection broke. `mark` None: before anything could take effect; otherwise the outcome is unknown."""

    def __init__(self, message: str, *, mark: StatementMark | None = None) -> None:
        hint = None if mark is None else "check its outcome on the server before repeating it"
        super().__init__(redact(message), hint=hint)
        self.mark = mark
