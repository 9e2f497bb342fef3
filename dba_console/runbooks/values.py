"""Values of inputs and results, and the only ways they reach SQL and commands: bound parameters, quoted identifiers
and literals, separate arguments, environment. They are never pasted into text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from re import _compiler as compiler  # type: ignore[attr-defined]  # what `re` is made of has no public names
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import msgspec

from dba_console.core.declarations import Form
from dba_console.core.errors import ConsoleError, UsageError, suggest
from dba_console.core.units import parse_duration, parse_size
from dba_console.recording.plan import CONFIRMATION_WORDS, Block, Input, Plan

# Patterns of inputs: only those that a backtracking matcher evaluates in milliseconds. A document may come from
# anywhere, and matching blocks the whole process. So: no nested repetitions, few ambiguous ones, short texts.

MOST_DOUBTFUL = 3
"""Repetitions with an ambiguous end: each multiplies the matching time by the length of the text."""
MOST_OPTIONAL = 8
LONGEST_VALUE, LONGEST_SIMPLE = 200, 2000
"""Maximum characters of a value that is matched with a pattern; the latter if the pattern is simple enough."""
MOST_STEPS = LONGEST_VALUE**MOST_DOUBTFUL
FEW = 8
"""A part repeated a fixed number of times, at most this often (as in an IP address), does not count as a repetition."""
_CHARACTERS = [chr(code) for code in range(128)] + ["é"]
_ANY = frozenset(_CHARACTERS)
_SINGLE = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)

Tree = list[tuple[Any, Any]]


def backtracking_risk(pattern: str) -> str | None:
    """Return why matching a pattern may take forever; None if it cannot. Raises re.error for an invalid pattern.

    >>> backtracking_risk("(a+)+$"), backtracking_risk(r"[a-z]{1,63}-\\d+(\\.\\d+)?")
    ('a repetition within a repetition', None)
    """
    try:
        counted = _count(pattern)
    except RecursionError:
        return "too many brackets"
    if counted.why is None and (counted.doubtful > MOST_DOUBTFUL or counted.optional > MOST_OPTIONAL):
        return "too many parts whose end is ambiguous"
    return counted.why


def longest_value(pattern: str) -> int:
    """Return the maximum characters of a value for this pattern, so that matching takes milliseconds.

    >>> longest_value(".*%p.*"), longest_value("a*a*a*x")
    (2000, 200)
    """
    counted = _count(pattern)
    steps: int = LONGEST_SIMPLE ** (counted.doubtful + 1) * 2**counted.optional
    return LONGEST_SIMPLE if steps <= MOST_STEPS else LONGEST_VALUE


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether the whole text matches; a text longer than `longest_value` never does."""
    return len(text) <= longest_value(pattern) and re.fullmatch(pattern, text) is not None


def _count(pattern: str) -> _Counted:
    counted = _Counted()
    counted.see(list(parser.parse(pattern)), frozenset(), within=False)
    return counted


class _Counted:
    """Counts the ambiguous parts of a pattern."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.doubtful = self.optional = 0

    def see(self, tree: Tree, follow: frozenset[str], *, within: bool) -> None:
        """Count the parts of `tree`. `follow`: characters that may come after it; `within`: inside a repetition."""
        for at, (what, value) in enumerate(tree):
            first, empty = _first(tree[at + 1 :])
            after = first | follow if empty else first
            if what in (op.GROUPREF, op.GROUPREF_EXISTS):
                self.why = "a reference to a group"
            elif what in (op.MAX_REPEAT, op.MIN_REPEAT, getattr(op, "POSSESSIVE_REPEAT", None)):
                self._repeat(int(value[0]), int(value[1]), list(value[2]), after, within=within)
            elif what is op.SUBPATTERN:
                self.see(list(value[3]), after, within=within)
            elif what is op.BRANCH:
                if within:
                    self.why = "a choice within a repetition"
                for branch in value[1]:
                    self.see(list(branch), after, within=within)
            elif what in (op.ASSERT, op.ASSERT_NOT):
                self.see(list(value[1]), _ANY, within=within)

    def _repeat(self, low: int, high: int, body: Tree, after: frozenset[str], *, within: bool) -> None:
        if within and low != high:
            self.why = "a repetition within a repetition"
        first, _ = _first(body)
        if low != high and first & after:
            self.doubtful += high > 1
            self.optional += high <= 1
        self.see(body, after | first if high > 1 else after, within=within or (high > 1 and not low == high <= FEW))


def _first(tree: Tree) -> tuple[frozenset[str], bool]:
    """Return the characters that `tree` may start with, and whether it may be empty."""
    found: frozenset[str] = frozenset()
    for what, value in tree:
        if what in _SINGLE:
            return found | _matching(what, value), False
        if what in (op.MAX_REPEAT, op.MIN_REPEAT, getattr(op, "POSSESSIVE_REPEAT", None)):
            inner, empty = _first(list(value[2]))
            found, empty = found | inner, empty or int(value[0]) == 0
        elif what is op.SUBPATTERN:
            inner, empty = _first(list(value[3]))
            found |= inner
        elif what is op.BRANCH:
            parts = [_first(list(branch)) for branch in value[1]]
            found, empty = found.union(*(part for part, _ in parts)), any(empty for _, empty in parts)
        elif what is op.AT:
            empty = True
        else:
            return _ANY, True
        if not empty:
            return found, False
    return found, True


def _matching(what: Any, value: Any) -> frozenset[str]:
    compiled = compiler.compile(parser.SubPattern(parser.State(), [(what, value)]))
    return frozenset(one for one in _CHARACTERS if compiled.fullmatch(one))


REFERENCE = re.compile(r"%\((\w+(?:\.\w+)?)\)([sIRL])")
"""In SQL: `%(name)s` bound value, `%(name)I` quoted identifier, `%(name)R` quoted name with its schema, `%(name)L`
quoted literal, for commands that take no bound values (ALTER, CREATE, VACUUM …). `name.part` is a part of a result."""
WHOLE = re.compile(r"%\((\w+)(?:\.(\w+))?\)s")
"""In settings and arguments: the whole text must be the reference; `%(name.part)s` is a part of a result."""
PHRASE_REFERENCE = re.compile(r"%\((\w+)\)s")
"""In the phrase of a confirmation: the value of an input."""
IDENTIFIER_BYTES = 63
LONGEST_TEXT = 10_000

_TIMES = (("d", 86400), ("h", 3600), ("m", 60))
_SIZES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))
_TRUE = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def typed(plan: Plan, inputs_given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every input of the plan with its value: the given one, else its default, else None if it is optional.

    Given values are text as typed. Raises UsageError naming the input.
    """
    inputs = {one.name: one for one in plan.inputs}
    for name in inputs_given:
        if name not in inputs:
            raise UsageError(f"runbook {plan.id} has no input {name!r}",
                             hint=suggest(name, inputs, what="it has") or "it has no inputs")  # fmt: skip
    values: dict[str, Any] = {}
    missing = []
    for name, one in inputs.items():
        if name in inputs_given and inputs_given[name] is not None:
            values[name] = value_of(one, inputs_given[name])
        elif one.default is not None or not one.required:
            values[name] = one.default
        else:
            missing.append(name)
    if missing:
        names = ", ".join(missing)
        raise UsageError(f"runbook {plan.id} needs {names}", hint=f"--input {missing[0]}=…")
    for _, block in plan.blocks():
        fill_phrase(plan, block, values)
    return values


def value_of(one: Input, text: Any) -> Any:
    """Return the value of an input from its text. Raises UsageError naming the input and its type."""
    value_text = text if isinstance(text, str) else _written(text)
    if "\0" in value_text or len(value_text) > LONGEST_TEXT:
        raise UsageError(f"{one.name}: the value is too long, or contains a zero byte")
    try:
        value = TYPES[one.type].read(value_text.strip() if one.type != "secret" else value_text)
    except (ValueError, LookupError, ConsoleError) as error:
        shown = "the value" if one.secret else repr(value_text)
        hint = error.hint if isinstance(error, ConsoleError) else None
        raise UsageError(f"{one.name}: {shown} is not {TYPES[one.type].noun}", hint=hint or one.help or None) from None
    _within(one, value)
    return value


def as_written(one: Input, value: Any) -> str:
    """Return a value as typed text that converts back to the same value: `1m`, `8GB`, `no`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if one.type == "duration" and isinstance(value, (int, float)):
        return next((f"{value / each:g}{unit}" for unit, each in _TIMES if value and value % each == 0), f"{value:g}s")
    if one.type == "size" and isinstance(value, int):
        return next((f"{value // each}{unit}" for unit, each in _SIZES if value and value % each == 0), f"{value}B")
    return _written(value)


def fill_phrase(plan: Plan, block: Block, values: Mapping[str, Any]) -> Block:
    """Return the block with the inputs in its confirmation phrase. Raises UsageError if the phrase is empty, has more
    than one line, or is a reserved word."""
    confirmation = block.confirm
    if confirmation is None or PHRASE_REFERENCE.search(confirmation.text) is None:
        return block
    texts = {one.name: as_written(one, values[one.name]) for one in plan.inputs if values.get(one.name) is not None}
    phrase = PHRASE_REFERENCE.sub(lambda match: texts.get(match[1], ""), confirmation.text)
    if phrase.strip() != phrase or not phrase.isprintable() or phrase in ("", *CONFIRMATION_WORDS):
        raise UsageError(
            f"{block.id}: the confirmation phrase {confirmation.text} becomes {phrase!r}, which cannot be typed",
            hint=f"it must be one line, not empty, and none of the words {', '.join(CONFIRMATION_WORDS)}",
        )
    return msgspec.structs.replace(block, confirm=msgspec.structs.replace(confirmation, text=phrase))


def fill_references(settings: Any, values: Mapping[str, Any]) -> Any:
    """Return settings or arguments with each text that is a reference replaced by its value. Raises KeyError."""
    if isinstance(settings, str):
        match = WHOLE.fullmatch(settings)
        return _referenced_value(match, values) if match else settings
    if isinstance(settings, dict):
        return {key: fill_references(value, values) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [fill_references(value, values) for value in settings]
    return settings


def arguments(argv: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return the argv of a command, each reference as one argument. Raises UsageError for an unknown value."""
    found = []
    for argument in argv:
        match = WHOLE.fullmatch(argument)
        if match is None:
            found.append(argument)
        elif match[1] not in values or (value := _referenced_value(match, values)) is None:
            raise UsageError(f"{match[1]} has no value: cannot pass {argument} to the command")
        else:
            found.append(_written(value))
    return found


def _referenced_value(match: re.Match[str], values: Mapping[str, Any]) -> Any:
    """Return the value of a reference; None for a part that the result does not have. Raises KeyError."""
    value = values[match[1]]
    if match[2] is None:
        return value
    return value.get(match[2]) if isinstance(value, Mapping) else None


def statement(text: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return SQL for the driver and its parameters: identifiers quoted, every other `%` doubled. Raises UsageError.

    >>> statement("select %(n)s from %(t)I where x like 'a%'", {"n": 1, "t": 'a"b'})
    ('select %(n)s from "a""b" where x like \\'a%%\\'', {'n': 1})
    """
    pieces: list[str] = []
    params: dict[str, Any] = {}
    at = 0
    for match in REFERENCE.finditer(text):
        name, form = match[1], match[2]
        pieces.append(text[at : match.start()].replace("%", "%%"))
        at = match.end()
        if name not in values:
            raise UsageError(f"{name} has no value: the statement that uses it cannot run")
        if form == "s":
            params[name] = values[name]
            pieces.append(f"%({name})s")
        else:
            made = literal(values[name]) if form == "L" else quoted(values[name], schema=form == "R")
            pieces.append(made.replace("%", "%%"))
    pieces.append(text[at:].replace("%", "%%"))
    return "".join(pieces), params


def statement_text(text: str, values: Mapping[str, Any], most: int | None = None) -> str:
    """Return the same statement for display: bound values as literals. A reference without a value, or whose value
    cannot be written or has more than `most` characters, stays as its author wrote it.

    >>> print(statement_text("select %(n)s from %(t)I where a = %(gone)s", {"n": "it's", "t": 'a"b'}))
    select 'it''s' from "a""b" where a = %(gone)s
    """

    def written(match: re.Match[str]) -> str:
        name, form = match[1], match[2]
        if name not in values:
            return match[0]
        try:
            literal_text = quoted(values[name], schema=form == "R") if form in "IR" else literal(values[name])
        except UsageError:
            return match[0]
        return literal_text if most is None or len(literal_text) <= most else match[0]

    return REFERENCE.sub(written, text)


def for_sql(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for SQL: rows and results as JSON text, whose type the server infers, the parts of a result also as
    `name.part`; all others unchanged."""
    whole = {name: json.dumps(value, default=str) if is_record(value) else value for name, value in values.items()}
    parts = {
        f"{name}.{part}": one
        for name, value in values.items() if isinstance(value, Mapping)
        for part, one in value.items()
    }  # fmt: skip
    return whole | parts


def is_record(value: Any) -> bool:
    """Return whether the value is the result of a block, or rows."""
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and (not value or isinstance(value[0], Mapping))
    )


def rows_or_value(value: Any) -> Any:
    """Return the rows of a preview's result, which its name means in SQL and settings; any other value unchanged."""
    return value["rows"] if isinstance(value, Mapping) and isinstance(value.get("rows"), list | tuple) else value


def quoted(name: Any, *, schema: bool = False) -> str:
    """Return a quoted SQL identifier. Raises UsageError for an invalid name.

    >>> quoted("order"), quoted("s.order", schema=True)
    ('"order"', '"s"."order"')
    """
    parts = _split_name(name) if schema and isinstance(name, str) else [name]
    for part in parts:
        if not isinstance(part, str) or not part or "\0" in part or len(part.encode()) > IDENTIFIER_BYTES:
            raise UsageError(f"{name!r} is not a valid SQL identifier")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal(value: Any) -> str:
    """Return a value as an SQL literal. Raises UsageError if it cannot be written.

    >>> literal(5), literal("it's"), literal(None)
    ('5', "'it''s'", 'NULL')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"ARRAY[{', '.join(literal(one).strip() for one in value)}]"
    if isinstance(value, (int, float)):
        # A space prevents two minus signs from starting a comment.
        return f" {value!r}" if value < 0 else repr(value)
    if not isinstance(value, str) or "\0" in value:
        raise UsageError(f"{value!r} cannot be written as SQL")
    text = value.replace("'", "''")
    # The space separates E from a word before it.
    return " E'" + text.replace("\\", "\\\\") + "'" if "\\" in text else f"'{text}'"


def environment(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, str]:
    """Return `RB_name` of each known value: sizes in bytes, durations in seconds, yes and no as 1 and 0, everything
    else as text; the parts of a result as `RB_copy_exit`.
    """
    found: dict[str, str] = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, Mapping):
            found.update({f"RB_{name}_{key}": _written(part) for key, part in value.items() if part is not None})
        elif value is not None:
            found[f"RB_{name}"] = _written(value)
    return found


def _split_name(name: str) -> list[str]:
    """Split a name with its schema; inside double quotes a dot is part of the name, as in PostgreSQL."""
    if not re.fullmatch(r'(?:"(?:[^"]|"")*"|[^".]+)(?:\.(?:"(?:[^"]|"")*"|[^".]+))?', name):
        return [""]
    found = re.findall(r'"((?:[^"]|"")*)"|([^".]+)', name)
    return [inner.replace('""', '"') if inner else plain for inner, plain in found]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return value if isinstance(value, str) else str(value)


def _within(one: Input, value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if one.minimum is not None and value < one.minimum:
            raise UsageError(f"{one.name}: must be at least {_written(one.minimum)}", hint=one.help or None)
        if one.maximum is not None and value > one.maximum:
            raise UsageError(f"{one.name}: must be at most {_written(one.maximum)}", hint=one.help or None)
    if one.choices and value not in one.choices:
        raise UsageError(f"{one.name}: {value!r} is not one of {', '.join(one.choices)}")
    if one.pattern is not None and len(str(value)) > (longest := longest_value(one.pattern)):
        raise UsageError(f"{one.name}: the value has {len(str(value))} characters; at most {longest} are accepted")
    if one.pattern is not None and not matches_pattern(one.pattern, str(value)):
        raise UsageError(f"{one.name}: {'the value' if one.secret else repr(value)} does not match {one.pattern}",
                         hint=one.help or None)  # fmt: skip


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def _identifier(text: str) -> str:
    quoted(text)
    return text


def _relation(text: str) -> str:
    quoted(text, schema=True)
    return text


def _path(text: str) -> str:
    if not text.startswith("/") or any(part == ".." for part in text.split("/")):
        raise UsageError("not a path", hint="use an absolute path without `..`, as in /var/backups/old.tar")
    return text


TYPES: dict[str, Form] = {
    "text": Form(noun="text", read=_text),
    "int": Form(noun="a whole number", read=int),
    "number": Form(noun="a number", read=_number),
    "duration": Form(noun="a duration", read=parse_duration),
    "size": Form(noun="a size", read=parse_size),
    "bool": Form(noun="yes or no", read=lambda text: _TRUE[text.lower()]),
    "choice": Form(noun="one of the choices", read=_text),
    "identifier": Form(noun="an SQL identifier", read=_identifier),
    "relation": Form(noun="a table name with its schema", read=_relation),
    "database": Form(noun="a database name", read=_identifier),
    "role": Form(noun="a role name", read=_identifier),
    "path": Form(noun="an absolute path", read=_path),
    "secret": Form(noun="a secret", read=_text),
}
"""Types of inputs."""
