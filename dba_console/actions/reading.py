"""Rows of a statement that only reads: one statement, and no more rows than are wanted.

The text comes from a runbook. By the simple protocol it could be several statements, and one of them could end the
read-only transaction it runs in. The driver declares cursors and streams rows by the extended protocol, which has one.
"""

from __future__ import annotations

import re
from itertools import islice

from dba_console.actions.bounded import Bounded
from dba_console.actions.link import Params, Result

MOST_ROWS = 10_000
_CURSOR = re.compile(r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/|\()*(?:select|with|values|table)\b", re.I | re.S)
"""What a cursor can be declared for; SHOW and EXPLAIN give few rows and go without one."""


def read(connection: Bounded, sql: str, params: Params, limit: int = MOST_ROWS) -> Result:
    """The first rows, within a transaction. Raises the driver's errors."""
    if not _CURSOR.match(sql):
        with connection.cursor() as cursor:
            rows = list(islice(cursor.stream(sql.encode(), params), limit + 1))
        return _result(rows, tuple(rows[0]) if rows else (), limit)
    with connection.cursor("dba_console_look") as named:
        named.execute(sql.encode(), params)
        columns = tuple(column.name for column in named.description or ())
        return _result(named.fetchmany(limit + 1), columns, limit)


def _result(rows: list[dict[str, object]], columns: tuple[str, ...], limit: int) -> Result:
    kept = tuple(rows[:limit])
    return Result(kept, len(kept), columns, cut=len(rows) > limit)
