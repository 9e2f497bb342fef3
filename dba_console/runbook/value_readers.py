"""Values as an author writes them, read by the declaration of their key. What is wrong is told with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dba_console.errors import ConsoleError
from dba_console.plans.plan import Confirmation, Level
from dba_console.runbook.problems import Problems, suggest
from dba_console.runbook.schema import SHAPES, KeySpec
from dba_console.runbook.values import WHOLE
from dba_console.units import parse_duration, parse_size

NAME = re.compile(r"[a-z][a-z0-9_-]*")
RESULT = re.compile(r"[a-z][a-z0-9_]*")
"""Names that stand in expressions and in the environment."""
TEST_SQL = "sql:"
_SWITCH = {"yes": True, "no": False, "true": True, "false": False, True: True, False: False}
_LEVELS: Mapping[str, Level] = {"ack": "ack", "yes": "yes"}


class InvalidValue(Exception):
    """The value has another form; the message, if any, says more."""


def read_table(
    table: Mapping[str, Any], keys: Iterable[KeySpec], line_of: Callable[[str], int], problems: Problems, where: str
) -> dict[str, Any]:
    """The values of a table under the names of the plan. Unknown, missing and unreadable keys are problems."""
    known_keys = {key.name: key for key in keys}
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = known_keys.get(name)
        if key is None:
            problems.add(line_of(name), f"{where} has no key {name!r}", suggest(name, known_keys, what="it can have"))
            continue
        read = read_value(key, value, line_of(name), problems)
        if read is not None:
            values[key.to or key.name] = read
    for key in known_keys.values():
        if key.required and key.name not in table:
            problems.add(line_of(""), f"{where} needs {key.name!r}", key.help)
    return values


def read_value(key: KeySpec, value: Any, line: int, problems: Problems) -> Any:
    """The value, or None after telling what is wrong with it."""
    if key.reference and isinstance(value, str) and WHOLE.fullmatch(value):
        return value
    try:
        read = _READERS[key.shape](value)
    except (InvalidValue, ConsoleError, ValueError, TypeError) as error:
        detail = str(error) if isinstance(error, InvalidValue) else ""
        problems.add(line, f"{key.name}: {value!r} is not {_article(key)}", detail or f"write {SHAPES[key.shape]}")
        return None
    if key.choices and read not in key.choices:
        problems.add(line, f"{key.name} cannot be {read!r}", suggest(str(read), key.choices))
        return None
    return read


def read_test(text: Any) -> dict[str, str]:
    """`{"language": …, "text": …}` of an expression, or of SQL after `sql:`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue('as in "memory.free_bytes > 1GB", or "sql: select count(*) = 0 from …"')
    stripped = text.strip()
    if stripped.startswith(TEST_SQL):
        return {"language": "sql", "text": stripped[len(TEST_SQL) :].strip()}
    return {"language": "expr", "text": stripped}


def read_confirmation(text: Any) -> Confirmation:
    """`ack`, `yes`, `type:target`, `type:count`, `type:name`, `type:a phrase`."""
    if isinstance(text, str):
        if text in _LEVELS:
            return Confirmation(level=_LEVELS[text])
        kind, _, phrase = text.partition(":")
        if kind == "type" and phrase.strip():
            return Confirmation(level="type", text=phrase.strip())
    raise InvalidValue


def _article(key: KeySpec) -> str:
    what = {"flag": "alone", "texts": "a list of texts", "test": "a test", "confirm": "a confirmation",
            "switch": "yes or no", "int": "a whole number", "names": "a list of names", "exits": "exit codes",
            "options": "a list of options", "result": "a name"}  # fmt: skip
    return what.get(key.shape, f"a {key.shape}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidValue
    return value


def _result(value: Any) -> str:
    if not isinstance(value, str) or not RESULT.fullmatch(value):
        raise InvalidValue("expressions name it: small letters, digits and _")
    return value


def _flag(value: Any) -> bool:
    if value is not True:
        raise InvalidValue("write it alone, without a value")
    return True


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidValue
    read = int(value)
    if read < 0:
        raise InvalidValue
    return read


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidValue
    return float(value)


def _duration(value: Any) -> float:
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        raise InvalidValue("with its unit: 250ms, 5s, 10m, 2h")
    return parse_duration(value)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise InvalidValue
    return parse_size(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise InvalidValue('as in ["a", "b"]')
    return tuple(value)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(_name(one.strip()) for one in _text(value).split(","))


def _exits(value: Any) -> tuple[int, ...]:
    return tuple(_int(one.strip()) for one in _text(value).split(","))


def _switch(value: Any) -> bool:
    if value not in _SWITCH:
        raise InvalidValue
    return _SWITCH[value]


def _options(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise InvalidValue("as in [[options]] with key, text and goto")
    for one in value:
        if not isinstance(one, dict) or set(one) != {"key", "text", "goto"}:
            raise InvalidValue("each has key, text and goto, and nothing else")
        if not all(isinstance(text, str) and text.strip() for text in one.values()):
            raise InvalidValue("key, text and goto are texts")
    return [dict(one) for one in value]


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text, "name": _name, "flag": _flag, "int": _int, "number": _number, "duration": _duration, "size": _size,
    "texts": _texts, "names": _names, "test": read_test, "confirm": read_confirmation, "switch": _switch,
    "any": lambda value: value, "tables": lambda value: value, "result": _result, "exits": _exits, "options": _options,
}  # fmt: skip
