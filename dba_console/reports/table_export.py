"""A session as a table: CSV (RFC 4180) or JSON lines, with the field names of `show --json` and their units.

The table `panels` has a row per tick with every single value of every panel. The tables inside the panels, as
`io.devices`, have a row per tick and line; `findings` and `events` are tables too.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, BinaryIO, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from dba_console.core.clock import rfc3339
from dba_console.core.errors import UsageError, suggest
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean, escape_json
from dba_console.reports.export_formats import Progress, Span
from dba_console.watch.frames.model import Finding, Frame, panel_fields
from dba_console.watch.panel import unit_of

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a cell that a spreadsheet may read as a formula (OWASP, CSV Injection); the last are fullwidth."""
_EVENTS = "events"
_EVENT_FIELDS = (
    "at", "recorded_at", "seq", "kind", "severity", "tag", "who", "text", "finding", "run", "step", "block", "details",
)  # fmt: skip


class ExportTable(NamedTuple):
    """Names of its columns, and its rows of plain values with their wall time."""

    columns: tuple[str, ...]
    rows: Callable[[Span, int], Iterator[tuple[int, Sequence[Any]]]]
    """Takes the minimum distance of two ticks in microseconds."""


def write_csv(span: Span, out: BinaryIO, progress: Progress, *, table: str = "panels", every_s: float = 0) -> None:
    """Write a table as CSV, units in brackets after the names. Raises UsageError for an unknown table."""
    chosen = find_table(table)
    writer = csv.writer(_Encoder(out), lineterminator="\n")
    writer.writerow([f"{name} [{unit}]" if (unit := unit_of(name)) else name for name in chosen.columns])
    for wall_us, row in chosen.rows(span, int(every_s * 1e6)):
        writer.writerow(map(_cell, row))
        progress(span.share(wall_us))


def write_jsonl(span: Span, out: BinaryIO, progress: Progress, *, table: str = "panels", every_s: float = 0) -> None:
    """Write a table as JSON lines; the first line names session, table, times, and the fields with their units.

    Raises UsageError for an unknown table.
    """
    chosen = find_table(table)
    meta = span.recording.meta
    head = {
        "session": span.recording.directory.name,
        "target": None if meta is None else meta.target,
        "table": table,
        "from": rfc3339(span.from_us),
        "to": rfc3339(span.to_us),
        "fields": {name: unit_of(name) for name in chosen.columns},
    }
    out.write(_json_line(head))
    for wall_us, row in chosen.rows(span, int(every_s * 1e6)):
        out.write(_json_line(dict(zip(chosen.columns, map(_masked, row), strict=True))))
        progress(span.share(wall_us))


def find_table(name: str) -> ExportTable:
    """Return a table by name. Raises UsageError."""
    known = tables()
    if name not in known:
        raise UsageError(f"unknown table {name!r}", hint=suggest(name, known) or f"tables: {', '.join(known)}")
    return known[name]


@cache
def tables() -> dict[str, ExportTable]:
    """Return every table by name."""
    made = {"panels": _panels_table(), _EVENTS: ExportTable(_EVENT_FIELDS, _event_rows)}
    made["findings"] = _rows_table(lambda frame: frame.findings, Finding)
    for panel, kind in _panels().items():
        for field, hint in get_type_hints(kind).items():
            if panel != _EVENTS and (row := _row_type(hint)) is not None:
                made[f"{panel}.{field}"] = _rows_table(_getter(panel, field), row)
    return made


def _panels() -> dict[str, type[Struct]]:
    hints = get_type_hints(Frame)
    return {"target": hints["target"], **panel_fields(), "self": hints["own"]}


def _row_type(hint: Any) -> type[Struct] | None:
    """Return the struct of a list of rows, None for other types."""
    inner = get_args(hint)[0] if get_origin(hint) is list else None
    return inner if isinstance(inner, type) and issubclass(inner, Struct) else None


def _getter(panel: str, field: str) -> Callable[[Frame], Sequence[Struct]]:
    return lambda frame: getattr(getattr(frame, panel), field)


def _panels_table() -> ExportTable:
    fields = [
        (panel, field)
        for panel, kind in _panels().items()
        for field, hint in get_type_hints(kind).items()
        if panel != _EVENTS and _row_type(hint) is None
    ]

    def rows(span: Span, every_us: int) -> Iterator[tuple[int, Sequence[Any]]]:
        for frame in span.frames(every_us):
            parts = {panel: getattr(frame, "own" if panel == "self" else panel) for panel, _ in fields}
            yield frame.at_us, [rfc3339(frame.at_us), *(getattr(parts[panel], field) for panel, field in fields)]

    return ExportTable(("at", *(f"{panel}.{field}" for panel, field in fields)), rows)


def _rows_table(rows_of: Callable[[Frame], Sequence[Struct]], kind: type[Struct]) -> ExportTable:
    """Return a table of rows; where a row has rows of its own kind, as sessions that wait, `under` names its parent."""
    hints = get_type_hints(kind)
    nested = next((name for name, hint in hints.items() if _row_type(hint) is kind), None)
    fields = [name for name in hints if name != nested]

    def flat(found: Sequence[Any], under: Any) -> Iterator[list[Any]]:
        for row in found:
            yield [getattr(row, name) for name in fields] + ([under] if nested else [])
            if nested:
                yield from flat(getattr(row, nested), getattr(row, fields[0]))

    def rows(span: Span, every_us: int) -> Iterator[tuple[int, Sequence[Any]]]:
        for frame in span.frames(every_us):
            at = rfc3339(frame.at_us)
            for row in flat(rows_of(frame), None):
                yield frame.at_us, [at, *row]

    return ExportTable(("tick", *fields, *(("under",) if nested else ())), rows)


def _event_rows(span: Span, every_us: int) -> Iterator[tuple[int, Sequence[Any]]]:
    for event in span.events():
        details = dict(event.details)
        named = [details.pop(name, None) for name in ("run", "step", "block")]
        finding = details.get("id") if event.kind.startswith("finding.") else None
        yield event.wall_us, [
            rfc3339(event.happened_us), rfc3339(event.wall_us), event.seq, event.kind, event.severity, event.tag,
            event.who, event.text, finding, *named, details or None,
        ]  # fmt: skip


# Values.


class _Encoder:
    """Takes the lines of a CSV writer as text."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text.encode())


def _cell(value: Any) -> Any:
    """Return a value as a cell: text that cannot become a formula, nothing for None, JSON for lists and tables."""
    if isinstance(value, str):
        return text_cell(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    return text_cell(msgspec.json.encode(_masked(value)).decode()) if value else ""


@lru_cache(4096)
def text_cell(text: str) -> str:
    """Return foreign text as a CSV cell, on one line, secrets masked.

    >>> text_cell("=1+1"), text_cell("select 1")
    ("'=1+1", 'select 1')
    """
    plain = clean(redact(text))
    return f"'{plain}" if plain.startswith(FORMULA_STARTS) else plain


@lru_cache(4096)
def _redacted(text: str) -> str:
    return redact(text)


def _masked(value: Any) -> Any:
    """Return plain JSON with secrets masked in every text."""
    if isinstance(value, str):
        return _redacted(value)
    if value is None or isinstance(value, int | float):
        return value
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        return {str(name): _masked(one) for name, one in plain.items()}
    return [_masked(one) for one in plain]


def _json_line(value: Any) -> bytes:
    return (escape_json(msgspec.json.encode(value).decode()) + "\n").encode()
