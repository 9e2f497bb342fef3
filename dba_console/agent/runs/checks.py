"""The read-only checks of a run: expressions over the latest frame, SQL in a read-only transaction, short commands.

A check that fails reports its error and does not hold: an error never counts as true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console.agent.runs.commands import DEFAULT_S, command_environment, script_argv
from dba_console.agent.runs.run_context import RunContext
from dba_console.core.errors import ConsoleError, Refused, UsageError
from dba_console.core.redact import MASK, is_secret_name, names_secret, redact, redact_statement
from dba_console.core.short_command import CommandResult, run_short
from dba_console.recording.plan import Block, JournalRecord
from dba_console.runbooks.expr import Scope, evaluate, evaluate_measurement, measure_lines
from dba_console.runbooks.expr_lint import reads_live_data
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.runbooks.preview_rows import act_values, masked_inputs, named_values
from dba_console.runbooks.result_tables import counted, table_of
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.run_view import RunTable
from dba_console.runbooks.values import environment as values_environment
from dba_console.runbooks.values import for_sql, statement, statement_text
from dba_console.runbooks.walk_requests import ReadRequest, ReadResult

if TYPE_CHECKING:
    from dba_console.agent.runs.server_connections import RunServers

MAX_VALUE_LENGTH = 2000
"""Maximum characters of a value in a sentence."""


class ReadOnlyChecks:
    """Runs the read-only checks of one run. Not thread-safe."""

    def __init__(
        self,
        state: RunState,
        inputs: dict[str, Any],
        secrets: frozenset[str],
        servers: RunServers,
        context: RunContext,
    ) -> None:
        self._state, self._inputs = state, inputs
        self.secrets = secrets
        """Names of values that are not shown."""
        self._servers, self._context = servers, context
        self.plan = state.plan
        self.acted_us = 0
        """Monotonic time at which the last act ended: earlier readings do not show its effect."""

    def check(self, wanted: ReadRequest) -> ReadResult:
        """Return the result of a check. Never raises."""
        begun_us = self._context.clock.mono_us()
        try:
            result = self._check(wanted)
        except ConsoleError as error:
            result = ReadResult(error=redact(error.message), text=redact(error.message))
        except OSError as error:
            result = ReadResult(error=str(error), text=str(error))
        took_s = (self._context.clock.mono_us() - begun_us) / 1e6
        return msgspec.structs.replace(result, machine_s=took_s)

    def values(self) -> dict[str, Any]:
        """Return the values for the code of a block: inputs, results, and the rows of previews by name."""
        return named_values(self._state, self._inputs)

    def require_shown(self, block: Block, intent: JournalRecord, undo_of: Mapping[str, Any] | None) -> None:
        """Raise Refused if the statement with its current values is not the one that was confirmed."""
        named = named_values(self._state, {**self._inputs, **masked_inputs(self.plan)})
        current = statement_text(block.body, for_sql(act_values(named, intent.fields, undo_of))).strip()
        if current != intent.fields.get("statement"):
            raise Refused("the statement is not the one that was shown", hint="nothing was done; check and try again")

    def _check(self, wanted: ReadRequest) -> ReadResult:
        block, test = wanted.block, wanted.test
        language = block.language if test is None else test.language
        text = block.body if test is None else test.text
        if language == "expr":
            return self._check_expression(wanted.purpose, text)
        if language == "sql":
            return self._check_sql(wanted, text)
        if language == "sh":
            return self._check_command(wanted, text)
        return ReadResult(error=f"{block.id}: {language} cannot be used for a check")

    def scope(self, *, framed: bool = True) -> Scope:
        """Return the scope of expressions; without `framed` only inputs and results, which need no wait. Raises
        ConsoleError if nothing was read lately."""
        results = {
            name: _with_row_count(value) for name, value in self._state.values.items() if isinstance(value, Mapping)
        }
        plain = {name: value for name, value in self._state.values.items() if not isinstance(value, Mapping)}
        frame = self._context.frame(self.acted_us) if framed else None
        return Scope(frame=frame, inputs={**plain, **self._inputs}, results=results, secrets=self.secrets)

    def _check_expression(self, purpose: str, text: str) -> ReadResult:
        expressions = [one for _, one in measure_lines(text)] if purpose == "measure" else [text]
        known = {*self._state.values, *self._inputs}
        framed = any(reads_live_data(one, known) for one in expressions)
        scope = self.scope(framed=framed)
        if framed and scope.frame is None:
            return ReadResult(error="no reading since the last action: the values would be outdated")
        if purpose == "measure":
            values, summary = evaluate_measurement(text, scope)
            return ReadResult(holds=True, text=summary, values=_to_json_row(values))
        verdict = evaluate(text, scope)
        return ReadResult(
            holds=verdict.holds, text=verdict.text, values=_to_json_row(verdict.values), error=verdict.error
        )

    def _check_sql(self, wanted: ReadRequest, text: str) -> ReadResult:
        query, params = statement(text, for_sql(self.values()))
        server = self._servers.for_block(wanted.block)
        timeout_s = (wanted.block.timeout_s if wanted.block.kind != "wait" else None) or DEFAULT_S
        if wanted.purpose == "preview" and (source := wanted.block.settings.get("databases")) is not None:
            databases = self.values().get(source)
            if databases is None:
                raise UsageError(f"{source} has no rows: the databases to query are unknown")
            result = server.query_databases(
                [str(row["datname"]) for row in databases], query, params, timeout_s=timeout_s
            )
        else:
            result = server.query(query, params, timeout_s=timeout_s)
        if result.cut:
            return ReadResult(
                error=f"more than {counted(len(result.rows))}, or too much text: too many to act on at once"
            )
        rows = tuple(_to_json_row(row) for row in result.rows)
        if wanted.purpose == "preview":
            table = table_of(rows) or RunTable(columns=result.columns, rows=())
            return ReadResult(holds=True, text=counted(len(rows)), rows=rows, table=table)
        if wanted.purpose == "measure":
            return ReadResult(
                holds=True, text=_pairs(rows[0]) if rows else "no row", values=dict(rows[0]) if rows else {}
            )
        return _verdict(rows, text)

    def _check_command(self, wanted: ReadRequest, text: str) -> ReadResult:
        block = wanted.block
        env = command_environment(values_environment(block.uses, self.values()))
        if self._servers.own is not None:
            env |= server_environment(self._context.target.conninfo, direct=self._servers.own.direct, read_only=True)
        ended = run_short(script_argv(text), env, block.timeout_s or DEFAULT_S, self._context.clock)
        return _command_result(ended, wanted.purpose)


def _verdict(rows: Sequence[Mapping[str, Any]], text: str) -> ReadResult:
    """Return the verdict of one row whose first column is boolean; NULL is unknown; anything else is an error.

    >>> _verdict([{"?column?": True}], "select 1 = 1").text, _verdict([{"free": True}], "select 1 = 1 as free").text
    ('', 'free true')
    """
    if len(rows) != 1 or not rows[0]:
        return ReadResult(error=f"a condition must return one row, not {len(rows)}", text=counted(len(rows)))
    first = next(iter(rows[0].values()))
    if first is not None and not isinstance(first, bool):
        return ReadResult(error=f"a condition must return true or false, not {first!r}"[:MAX_VALUE_LENGTH])
    name, *rest = rows[0]
    # A name generated by PostgreSQL, or `holds`, adds nothing to the verdict.
    named = name != "holds" and re.search(rf'\bas\s+"?{re.escape(name)}\b', text, re.IGNORECASE) is not None
    shown = rows[0] if named else {one: rows[0][one] for one in rest}
    return ReadResult(holds=first, text=_pairs(shown), values=dict(rows[0]))


def _command_result(ended: CommandResult, purpose: str) -> ReadResult:
    output = (ended.output.strip() or ended.errors.strip())[:MAX_VALUE_LENGTH]
    if ended.code is None:
        return ReadResult(error=f"it did not end within {ended.seconds:.0f} s", text=output)
    values = {"exit": ended.code, "first_line": output.split("\n", 1)[0]}
    if purpose in ("measure", "preview"):
        error = None if ended.code == 0 else f"exit {ended.code}: {ended.errors.strip()[:MAX_VALUE_LENGTH] or output}"
        return ReadResult(
            holds=True if error is None else None, text=output, values={**values, **_lines(output)}, error=error
        )
    if ended.code in (0, 1):
        return ReadResult(holds=ended.code == 0, text=output or f"exit {ended.code}", values=values)
    return ReadResult(
        error=f"exit {ended.code}: {ended.errors.strip()[:MAX_VALUE_LENGTH] or output}", text=output, values=values
    )


def _lines(text: str) -> dict[str, Any]:
    """Return the `name=value` lines of a measurement's output.

    >>> _lines("free=12.5\\nnote=full of it\\nprose")
    {'free': 12.5, 'note': 'full of it'}
    """
    found: dict[str, Any] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip().isidentifier():
            try:
                number = float(value)
                found[name.strip()] = number if math.isfinite(number) else value.strip()
            except ValueError:
                found[name.strip()] = value.strip()
    return found


_VALUES = frozenset(("setting", "reset_val", "boot_val", "now", "after_it", "value"))
"""Columns with a parameter's value, in PostgreSQL's views and in the shipped runbooks."""


def _with_row_count(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a preview's value as an expression reads it: `NAME.rows` is the number of rows."""
    rows = value.get("rows")
    return {**value, "rows": len(rows)} if isinstance(rows, list | tuple) else value


def _to_json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON, without loss: time as RFC 3339, interval in seconds, bytes in hexadecimal."""
    parameter = row.get("name")
    # A row of pg_settings or pg_file_settings whose parameter is secret by its name.
    hidden = _VALUES if isinstance(parameter, str) and names_secret(parameter) else ()
    return {
        name: MASK if value and (name in hidden or (isinstance(value, str) and is_secret_name(name)))
        else _statement(value) if name in _STATEMENTS and isinstance(value, str)
        else to_json_value(value)
        for name, value in row.items()
    }  # fmt: skip


_STATEMENTS = frozenset(("query", "statement"))
"""Columns with statements, in PostgreSQL's views."""
_SHORTEST_CUT = 1020
"""Bytes; the server may have cut a statement of this length (track_activity_query_size, at its default)."""


def _statement(text: str) -> str:
    return redact_statement(text, cut=len(text.encode()) >= _SHORTEST_CUT)


def to_json_value(value: Any) -> Any:
    """
    >>> to_json_value(Decimal("10")), to_json_value(float("inf")), to_json_value(timedelta(minutes=1))
    (10, None, 60.0)
    """
    if value is None or isinstance(value, bool | int | str):
        return redact(value) if isinstance(value, str) else value
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() and value.is_finite() else float(value)
    if isinstance(value, float | int):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return _to_json_row(value)
    if isinstance(value, list | tuple):
        return [to_json_value(one) for one in value]
    return str(value)


def _pairs(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value_text(value)}" for name, value in row.items())[:MAX_VALUE_LENGTH]


def _value_text(value: Any) -> str:
    return {None: "?", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
