"""Decodes rows to structs by the names of their columns, a whole column at a time.

How a value is decoded follows from the type of its column: a timestamptz is microseconds since 1970, a pg_lsn a byte
position, a text is decoded. All other values are as psycopg returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, structs

from dba_console.watch.part import Query, ServerPart
from dba_console.watch.probes.postgres.binary_results import (
    LSN,
    TEXTS,
    TIMESTAMPTZ,
    ResultRows,
    decode_name,
    lsn,
    wall_us,
)

S = TypeVar("S", bound=Struct)
Values = Sequence[Any]


def decode_columns(rows: ResultRows, codec: str) -> dict[str, Values]:
    """Return the decoded values of each column by its name; nothing without rows."""
    values = zip(*rows, strict=True)
    return {
        name: _decoded(column, kind, codec) for (name, kind), column in zip(rows.columns, values, strict=bool(rows))
    }


def decode_rows(rows: ResultRows, kind: type[S], codec: str) -> list[S]:
    """Return a record for each row. A field without a column has its default.

    Raises TypeError for a column without a field, or a field without column and default.
    """
    columns = decode_columns(rows, codec)
    if not columns:
        return []
    in_order: list[Iterable[Any]] = [
        columns.pop(name) if name in columns else repeat(_default(kind, name)) for name in kind.__struct_fields__
    ]
    if columns:
        raise TypeError(f"{kind.__name__} has no field {', '.join(columns)}")
    return list(map(kind, *in_order))


class PartDecoder:
    """Makes the readings of one declared part from the rows of its queries, for one connection."""

    def __init__(self, part: ServerPart, codec: str) -> None:
        self._part, self._codec = part, codec
        self._finish = None if part.finish is None else part.finish()
        hints = get_type_hints(part.reading)
        self._records = {query.name: _row_type(hints[query.rows]) for query in part.queries if query.rows}

    def decode(self, rows: Mapping[str, ResultRows]) -> Any:
        """Return the reading. `rows` by query; a query that was refused is missing, and its fields have defaults."""
        fields: dict[str, Any] = {}
        for query in self._part.queries:
            if query.name in rows:
                fields |= self._fields(query, rows[query.name], fields)
        reading = self._part.reading(**fields)
        return reading if self._finish is None else self._finish(reading)

    def _fields(self, query: Query, rows: ResultRows, known: Mapping[str, Any]) -> dict[str, Any]:
        if query.rows:
            return {query.rows: decode_rows(rows, self._records[query.name], self._codec)}
        row = {name: column[0] for name, column in decode_columns(rows, self._codec).items()}
        return {name: value for name, value in row.items() if value is not None or name not in known}


def _row_type(hint: Any) -> type[Struct]:
    """Return the type of the rows of a list, which may be unknown."""
    rows = hint if get_origin(hint) is list else next(arm for arm in get_args(hint) if get_origin(arm) is list)
    kind: type[Struct] = get_args(rows)[0]
    return kind


def _decoded(column: Values, kind: int, codec: str) -> Values:
    if kind == TIMESTAMPTZ:
        return [wall_us(value) for value in column]
    if kind == LSN:
        return [lsn(value) for value in column]
    return _texts(column, codec) if kind in TEXTS else column


def _texts(column: Values, codec: str) -> Values:
    """Return texts, usually UTF-8; one that is not is decoded by the encoding of the database."""
    try:
        return [None if raw is None else raw.decode() for raw in column]
    except UnicodeDecodeError:
        return [None if raw is None else decode_name(raw, codec) for raw in column]


def _default(kind: type[Struct], name: str) -> Any:
    if name not in (defaults := _defaults(kind)):
        raise TypeError(f"no column for {kind.__name__}.{name}")
    return defaults[name]


@cache
def _defaults(kind: type[Struct]) -> dict[str, Any]:
    return {field.name: field.default for field in structs.fields(kind) if field.default is not NODEFAULT}
