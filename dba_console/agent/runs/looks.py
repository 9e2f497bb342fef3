"""What a run looks at: expressions over the newest frame, SQL in a read-only transaction, short commands.

A look that fails says so and holds nothing: an error is never taken for yes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console.agent.runs.environment import server_environment
from dba_console.agent.runs.shell import DEFAULT_S, environment, script
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.errors import ConsoleError, Refused, UsageError
from dba_console.plans.plan import Block
from dba_console.plans.record import Record
from dba_console.plans.view import Table
from dba_console.redact import MASK, names_secret, redact
from dba_console.runbook.bound import act_values, hidden, named_values
from dba_console.runbook.expr import Scope, ask, measure_lines, measured
from dba_console.runbook.expr_lint import reads_the_world
from dba_console.runbook.fold_state import RunState
from dba_console.runbook.fold_tables import table_of
from dba_console.runbook.requests import Look, Seen
from dba_console.runbook.values import environment as values_environment
from dba_console.runbook.values import for_sql, shown, statement
from dba_console.runbook.viewing import counted
from dba_console.short_command import Ended, run_short

if TYPE_CHECKING:
    from dba_console.agent.runs.servers import Servers

SHOWN = 2000
"""Characters of a value in a sentence."""


class Looks:
    """The eyes of one run; used by its thread alone."""

    def __init__(
        self,
        state: RunState,
        inputs: dict[str, Any],
        secrets: frozenset[str],
        servers: Servers,
        around: Surroundings,
    ) -> None:
        self._state, self._inputs = state, inputs
        self.secrets = secrets
        """Names of values that are not told."""
        self._servers, self._around = servers, around
        self.plan = state.plan
        self.acted_us = 0
        """Monotonic time at which the last act ended: what was read before does not tell of it."""

    def look(self, wanted: Look) -> Seen:
        """What is seen. Never raises."""
        begun_us = self._around.clock.mono_us()
        try:
            seen = self._look(wanted)
        except ConsoleError as error:
            seen = Seen(error=redact(error.message), text=redact(error.message))
        except OSError as error:
            seen = Seen(error=str(error), text=str(error))
        took_s = (self._around.clock.mono_us() - begun_us) / 1e6
        return msgspec.structs.replace(seen, machine_s=took_s)

    def values(self, block: Block) -> dict[str, Any]:
        """What the names of its code mean: inputs, results, and the rows of previews by their name."""
        return named_values(self._state, self._inputs)

    def require_shown(self, block: Block, intent: Record, undo_of: Mapping[str, Any] | None) -> None:
        """Raises Refused where the statement, by the values it is sent with, is not the one that was confirmed."""
        named = named_values(self._state, {**self._inputs, **hidden(self.plan)})
        told = shown(block.body, for_sql(act_values(named, intent.fields, undo_of))).strip()
        if told != intent.fields.get("statement"):
            raise Refused("what would be sent is not what was shown", hint="nothing was done; look and try again")

    def _look(self, wanted: Look) -> Seen:
        block, test = wanted.block, wanted.test
        language = block.language if test is None else test.language
        text = block.body if test is None else test.text
        if language == "expr":
            return self._expression(wanted.purpose, text)
        if language == "sql":
            return self._sql(wanted, text)
        if language == "sh":
            return self._shell(wanted, text)
        return Seen(error=f"{block.id}: there is nothing to look at in {language}")

    def scope(self, *, framed: bool = True) -> Scope:
        """What an expression sees now; not `framed`: of inputs and results alone, which nothing has to be waited for.
        Raises ConsoleError where nothing was read lately."""
        results = {name: _counted(value) for name, value in self._state.values.items() if isinstance(value, Mapping)}
        plain = {name: value for name, value in self._state.values.items() if not isinstance(value, Mapping)}
        frame = self._around.frame(self.acted_us) if framed else None
        return Scope(frame=frame, inputs={**plain, **self._inputs}, results=results, secrets=self.secrets)

    def _expression(self, purpose: str, text: str) -> Seen:
        expressions = [one for _, one in measure_lines(text)] if purpose == "measure" else [text]
        known = {*self._state.values, *self._inputs}
        framed = any(reads_the_world(one, known) for one in expressions)
        scope = self.scope(framed=framed)
        if framed and scope.frame is None:
            return Seen(error="the agent has read nothing since: what it would say is of before")
        if purpose == "measure":
            values, said = measured(text, scope)
            return Seen(holds=True, text=said, values=_plain(values))
        verdict = ask(text, scope)
        return Seen(holds=verdict.holds, text=verdict.text, values=_plain(verdict.values), error=verdict.error)

    def _sql(self, wanted: Look, text: str) -> Seen:
        query, params = statement(text, for_sql(self.values(wanted.block)))
        server = self._servers.of(wanted.block)
        timeout_s = (wanted.block.timeout_s if wanted.block.kind != "wait" else None) or DEFAULT_S
        if wanted.purpose == "preview" and (source := wanted.block.settings.get("databases")) is not None:
            homes = self.values(wanted.block).get(source)
            if homes is None:
                raise UsageError(f"{source} has no rows: in which databases to look is not known")
            result = server.look_in([str(row["datname"]) for row in homes], query, params, timeout_s=timeout_s)
        else:
            result = server.look(query, params, timeout_s=timeout_s)
        if result.cut:
            return Seen(
                error=f"more than {counted(len(result.rows))}, or too much text: nobody acts on so much at once"
            )
        told = tuple(_plain(row) for row in result.rows)
        if wanted.purpose == "preview":
            table = table_of(told) or Table(columns=result.columns, rows=())
            return Seen(holds=True, text=counted(len(told)), rows=told, table=table)
        if wanted.purpose == "measure":
            return Seen(holds=True, text=_pairs(told[0]) if told else "no row", values=dict(told[0]) if told else {})
        return _verdict(told, text)

    def _shell(self, wanted: Look, text: str) -> Seen:
        block = wanted.block
        env = environment(values_environment(block.uses, self.values(block)))
        if self._servers.own is not None:
            env |= server_environment(self._around.target.conninfo, direct=self._servers.own.direct, read_only=True)
        ended = run_short(script(text), env, block.timeout_s or DEFAULT_S, self._around.clock)
        return _of_command(ended, wanted.purpose)


def _verdict(rows: Sequence[Mapping[str, Any]], text: str) -> Seen:
    """One row whose first column is true or false; NULL is unknown; anything else is no answer.

    >>> _verdict([{"?column?": True}], "select 1 = 1").text, _verdict([{"free": True}], "select 1 = 1 as free").text
    ('', 'free true')
    """
    if len(rows) != 1 or not rows[0]:
        return Seen(error=f"a test gives one row, not {len(rows)}", text=counted(len(rows)))
    first = next(iter(rows[0].values()))
    if first is not None and not isinstance(first, bool):
        return Seen(error=f"a test gives true or false, not {first!r}"[:SHOWN])
    name, *rest = rows[0]
    # A name that PostgreSQL made up, or `holds`, tells nothing beside the word for whether it holds.
    named = name != "holds" and re.search(rf'\bas\s+"?{re.escape(name)}\b', text, re.IGNORECASE) is not None
    told = rows[0] if named else {one: rows[0][one] for one in rest}
    return Seen(holds=first, text=_pairs(told), values=dict(rows[0]))


def _of_command(ended: Ended, purpose: str) -> Seen:
    said = (ended.output.strip() or ended.errors.strip())[:SHOWN]
    if ended.code is None:
        return Seen(error=f"it did not end within {ended.seconds:.0f} s", text=said)
    values = {"exit": ended.code, "first_line": said.split("\n", 1)[0]}
    if purpose in ("measure", "preview"):
        error = None if ended.code == 0 else f"exit {ended.code}: {ended.errors.strip()[:SHOWN] or said}"
        return Seen(holds=True if error is None else None, text=said, values={**values, **_lines(said)}, error=error)
    if ended.code in (0, 1):
        return Seen(holds=ended.code == 0, text=said or f"exit {ended.code}", values=values)
    return Seen(error=f"exit {ended.code}: {ended.errors.strip()[:SHOWN] or said}", text=said, values=values)


def _lines(text: str) -> dict[str, Any]:
    """`name=value` lines of a measurement's output.

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
"""Columns with the value of a parameter, as its views call them, and our own runbooks."""


def _counted(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a preview gave, as an expression sees it: `NAME.rows` is their number."""
    rows = value.get("rows")
    return {**value, "rows": len(rows)} if isinstance(rows, list | tuple) else value


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON can hold it, exactly: a time as RFC 3339, an interval in seconds, bytes in hexadecimal."""
    parameter = row.get("name")
    # A row of pg_settings or pg_file_settings whose parameter holds a secret by its name.
    hidden = _VALUES if isinstance(parameter, str) and names_secret(parameter) else ()
    return {name: MASK if name in hidden and value else plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    """
    >>> plain(Decimal("10")), plain(float("inf")), plain(timedelta(minutes=1))
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
        return _plain(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)


def _pairs(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_word(value)}" for name, value in row.items())[:SHOWN]


def _word(value: Any) -> str:
    return {None: "?", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
