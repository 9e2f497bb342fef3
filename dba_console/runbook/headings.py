"""The head of a runbook: what it is called, what it answers and needs, and the values asked for before the start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dba_console.errors import UsageError
from dba_console.plans.plan import Input
from dba_console.runbook.patterns import backtracking_risk
from dba_console.runbook.problems import Problems
from dba_console.runbook.schema import INPUT, RUNBOOK
from dba_console.runbook.value_readers import RESULT, read_table
from dba_console.runbook.values import TYPES, value_of

RESERVED = frozenset({"rows", "true", "false", "and", "or", "not", "in", "is", "if", "else", "for"})
LARGEST_VERSION = 99


class RunbookHead(Struct, frozen=True, kw_only=True):
    """What the block `toml {runbook}` says."""

    id: str = ""
    answers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    strict: bool = False
    reverts: bool = False
    tag: str = ""
    min_version: int | None = None
    max_version: int | None = None
    inputs: tuple[Input, ...] = ()
    lines: dict[str, int] = {}
    """Of each key, and of each input by its name."""


def head_of(table: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> RunbookHead:
    """The head of its table; what cannot be read is left out and told."""
    values = read_table(table, RUNBOOK, line_of, problems, "the runbook")
    inputs = values.pop("inputs", {})
    if not isinstance(inputs, dict) or not all(isinstance(one, dict) for one in inputs.values()):
        problems.add(line_of("inputs"), "inputs are tables of their own", "as in [inputs.every], then type = …")
        inputs = {}
    for need in values.get("needs", ()):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", need):
            problems.add(line_of("needs"), f"{need!r} is neither a role nor a program", 'as in "pg_monitor"')
    if values.get("tag") and not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", values["tag"]):
        problems.add(line_of("tag"), f"tag {values['tag']!r} cannot stand in a log", "letters, digits, - and _")
    if (values.get("min_version") or 0) > (values.get("max_version") or LARGEST_VERSION):
        problems.add(line_of("max_version"), "no version of the server lies between min_version and max_version")
    read = [input_of(name, one, line_of, problems) for name, one in inputs.items()]
    lines = {name: line_of(name) for name in (*table, *inputs)}
    return RunbookHead(**values, inputs=tuple(one for one in read if one is not None), lines=lines)


def input_of(name: str, table: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> Input | None:
    """An input of its table; None after telling what is wrong with it."""
    where = f"input {name}" if name else "an input"
    if name and (not RESULT.fullmatch(name) or name in RESERVED):
        problems.add(line_of(name), f"an input cannot be called {name!r}", "small letters, digits and _")
        return None
    values = read_table(table, INPUT, lambda key: _within(name, key, line_of), problems, where)
    if "type" not in values:
        return None
    kind = values["type"]
    if (kind == "choice") != ("choices" in values):
        problems.add(line_of(name), f"{where}: choices and type choice go together", 'choices = ["a", "b"]')
        return None
    if kind == "secret" and "default" in table:
        problems.add(line_of(name), f"{where}: a secret has no default", "nothing secret belongs in a document")
        return None
    limits = {key: values.pop(key, None) for key in ("minimum", "maximum")}
    default = values.pop("default", None)
    one = Input(
        name=name,
        type=kind,
        help=values.get("help", ""),
        required=values.get("required", True),
        choices=values.get("choices", ()),
        secret=kind == "secret",
        pattern=_pattern(values.get("pattern"), where, line_of(name), problems),
    )
    return _with_values(one, default, limits, line_of, problems)


def _with_values(
    one: Input, default: Any, limits: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems
) -> Input:
    """The input with its default and limits, read as its type is."""
    for name, written in [*limits.items(), ("default", default)]:
        if written is None:
            continue
        try:
            value = value_of(one, written)
        except UsageError as error:
            problems.add(line_of(one.name), f"input {name.removesuffix('imum')}: {error.message}", error.hint or "")
            continue
        if name != "default" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            problems.add(line_of(one.name), f"input {one.name}: {TYPES[one.type]} has no {name.removesuffix('imum')}")
        else:
            one = replace(one, **{name: value})
    return one


def _pattern(text: str | None, where: str, line: int, problems: Problems) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
        why = backtracking_risk(text)
    except (re.error, RecursionError, OverflowError) as error:
        problems.add(line, f"{where}: the pattern is no regular expression: {error}")
        return None
    if why is not None:
        problems.add(line, f"{where}: the pattern may take for ever to match: it has {why}", "a simpler one")
        return None
    return text


def _within(name: str, key: str, line_of: Callable[[str], int]) -> int:
    """The line of a key of an input's table; that of the table itself where the key could be another's."""
    return line_of(name) if name else line_of(key)
