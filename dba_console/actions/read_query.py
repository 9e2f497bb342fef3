"""Rows of a statement that only reads: one statement, and no more rows than are wanted.

The text comes from a runbook. By the simple protocol it could be several statements, and one of them could end the
read-only transaction it runs in. The driver declares cursors and streams rows by the extended protocol, which has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import psycopg

from dba_console.actions.connection_api import Params, StatementResult
from dba_console.actions.deadline_connection import DeadlineConnection

MAX_ROWS = 10_000
MAX_BYTES = 8 << 20
"""Of text in the rows that are kept: what nobody reads need not fill the memory of whoever watches the server."""
_MAX_BATCH_ROWS = 512
_CURSOR = re.compile(r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/|\()*(?:select|with|values|table)\b", re.I | re.S)
"""What a cursor can be declared for; SHOW and EXPLAIN give few rows and go without one."""


def read_rows(connection: DeadlineConnection, sql: str, params: Params, limit: int = MAX_ROWS) -> StatementResult:
    """The first rows, within a transaction. Raises the driver's errors."""
    if not _CURSOR.match(sql):
        with connection.cursor() as cursor:
            rows, cut = _take_rows(([row] for row in cursor.stream(sql.encode(), params)), limit)
        return StatementResult(rows, len(rows), tuple(rows[0]) if rows else (), cut=cut)
    with connection.cursor("dba_console_look") as named:
        named.execute(sql.encode(), params)
        columns = tuple(column.name for column in named.description or ())
        rows, cut = _take_rows(_fetch_batches(named), limit)
        return StatementResult(rows, len(rows), columns, cut=cut)


def _fetch_batches(cursor: psycopg.ServerCursor[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """A row, then twice as many each time: how wide they are is known before many of them are here."""
    size = 1
    while batch := cursor.fetchmany(size):
        yield batch
        size = min(2 * size, _MAX_BATCH_ROWS)


def _take_rows(batches: Iterable[list[dict[str, Any]]], limit: int) -> tuple[tuple[dict[str, Any], ...], bool]:
    """The rows that are kept, and whether there are more."""
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        for row in batch:
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if len(rows) >= limit or (rows and size > MAX_BYTES):
                return tuple(rows), True
            rows.append(row)
    return tuple(rows), False
