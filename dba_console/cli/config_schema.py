"""Validate the configuration against the declarations in `dba_console.core.config`, and its thresholds.

All functions are pure: a dictionary in, the first problem or None out. A problem names the key by its full path and the
expected value, so that the caller can add the line of the file.
"""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from dba_console.actions.policy import COMMAND_ACT, SQL_ACT
from dba_console.actions.registry import ACTIONS
from dba_console.core.config import COMMAND_PLACEHOLDERS, Config
from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError
from dba_console.core.thresholds import ORDERED_PAIRS, Limits
from dba_console.core.units import parse_duration, parse_size

# Thresholds of findings are not negative, percentages are at most 100, a warning is below its critical value.
#
# An invalid threshold is refused with its key, because a rule that never raises would be noticed too late.

_DEFAULTS = Limits()


def check_threshold(family: str, name: str, value: Any) -> None:
    """Check one threshold. Raises UsageError with the reason.

    >>> check_threshold("disks", "full_warning_pct", 180.0)
    Traceback (most recent call last):
    dba_console.core.errors.UsageError: 180.0 is more than 100 %
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise UsageError(f"{value} is not a valid threshold", hint="to disable a rule, name it in findings.off")
    if value < 0:
        raise UsageError(f"{value} is negative", hint="to disable a rule, name it in findings.off")
    # Some percentages are of a smaller base than the whole, and their default is above 100.
    if name.endswith("_pct") and value > 100 >= getattr(getattr(_DEFAULTS, family), name):
        raise UsageError(f"{value} is more than 100 %")


def check_disabled_rules(names: list[str]) -> None:
    """Check the names of disabled rules. Raises UsageError for an unknown rule."""
    # Loaded here, because few files name a rule and every command reads the file.
    from dba_console.watch.findings.rule_engine import RULES

    known = [rule.name for rule in RULES]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else "`dba-console findings rules` lists them"
            raise UsageError(f"unknown rule {name!r}", hint=hint)


def find_order_conflict(thresholds: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
    """Return the first threshold in the wrong order, as (family, name) and a sentence; unset ones have defaults."""
    for family, pairs in ORDERED_PAIRS.items():
        given = thresholds.get(family, {})
        for lower, upper in pairs:
            low, high = (given.get(name, getattr(getattr(_DEFAULTS, family), name)) for name in (lower, upper))
            if low > high:
                at = lower if lower in given else upper
                text = f"findings.{family}.{lower} ({low}) must be at most findings.{family}.{upper} ({high})"
                return (family, at), text
    return None


KeyPath = tuple[str, ...]

MIN_INTERVAL_S = 0.25
COLOUR_MODES = ("auto", "16", "256", "truecolor", "none")
FOREVER = "forever"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class ConfigProblem(NamedTuple):
    """Why a value is invalid. `key_path` is its key."""

    key_path: KeyPath
    text: str
    hint: str | None = None


def find_problem(values: Mapping[str, Any], kind: type[Any] = Config, at: KeyPath = ()) -> ConfigProblem | None:
    """Return the first value in `values` that the struct `kind` does not allow, in file order; else None.

    >>> find_problem({"agent": {"graze": "1m"}}).text
    'unknown key agent.graze'
    """
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        path = (*at, name)
        if name not in known:
            return ConfigProblem(path, f"unknown key {dotted_key(path)}", _did_you_mean(name, known))
        if problem := _check_value(value, known[name].type, path):
            return problem
    missing = [field.name for field in known.values() if field.required and field.name not in values]
    if missing:
        return ConfigProblem(
            at, f"{dotted_key(at)} has no {missing[0]}", f"add {missing[0]} = … under [{dotted_key(at)}]"
        )
    if kind is Limits and (found := find_order_conflict(values)):
        return ConfigProblem((*at, *found[0]), found[1])
    return None


def _check_value(value: Any, kind: Any, path: KeyPath) -> ConfigProblem | None:
    inner = _struct_of_table(kind)
    if inner is not None:
        if not isinstance(value, dict):
            return ConfigProblem(path, f"{dotted_key(path)} must be a table, not {_type_word(value)}")
        if typing.get_origin(kind) is not dict:
            return find_problem(value, inner, path)
        for name, entry in value.items():
            if path[:1] == ("clusters",) and name.startswith("-"):
                # The name becomes an argument of the operator's commands, which would parse it as an option.
                return ConfigProblem((*path, name), f"{dotted_key((*path, name))}: a name must not begin with `-`")
            if problem := _check_value(entry, inner, (*path, name)):
                return problem
        return None
    try:
        convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return ConfigProblem(
            path,
            f"{dotted_key(path)} must be {_expected_type(kind)}, not {_type_word(value)}",
            _quoting_hint(value, kind),
        )
    return _check_content(value, path)


def _struct_of_table(kind: Any) -> type[Any] | None:
    """Return the struct of a table: the type itself, or the value type of a dict of structs."""
    if typing.get_origin(kind) is dict:
        kind = typing.get_args(kind)[1]
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _check_content(value: Any, path: KeyPath) -> ConfigProblem | None:
    check = _CONTENT_CHECKS.get(dotted_key(path))
    try:
        if len(path) == 3 and path[0] == "findings":
            check_threshold(path[1], path[2], value)
        elif len(path) == 5 and path[0] == "clusters" and path[2] in ("addresses", "hooks"):
            _check_command(path[4], value)
        elif check is not None and value is not None:
            check(value)
    except UsageError as error:
        return ConfigProblem(path, f"{dotted_key(path)}: {error.message}", error.hint)
    return None


def _check_interval(text: str) -> None:
    if parse_duration(text) < MIN_INTERVAL_S:
        raise UsageError(f"{text} is too short", hint="the minimum interval is 250ms, so that monitoring stays cheap")


def _check_positive_duration(text: str) -> None:
    if parse_duration(text) <= 0:
        raise UsageError(f"{text} must be greater than zero")


def _check_grace(text: str) -> None:
    if text != FOREVER:
        parse_duration(text)


def _one_of(*known: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in known:
            raise UsageError(f"{text!r} is not one of {', '.join(known)}", hint=_nearest(text, known))

    return check


def _check_denied_actions(names: list[str]) -> None:
    for name in names:
        if name not in (known := (*ACTIONS, SQL_ACT, COMMAND_ACT)):
            raise UsageError(f"unknown action {name!r}", hint=_did_you_mean(name, known))


def _check_windows(named: dict[str, str]) -> None:
    for text in named.values():
        _check_positive_duration(text)


def _check_command(name: str, value: Any) -> None:
    """Check a key of `CommandConfig`: its placeholders are known, and it can be executed."""
    if name == "run" and not (value and value[0]):
        raise UsageError("names no program", hint='list the program and its arguments: ["/usr/local/bin/move-ip"]')
    if name == "timeout_s" and not 0 < value < math.inf:
        raise UsageError(f"{value} must be a number of seconds greater than 0")
    for argument in value if name in ("run", "undo") else ():
        for unknown in set(_PLACEHOLDER.findall(argument)) - set(COMMAND_PLACEHOLDERS):
            raise UsageError(
                f"unknown placeholder {{{unknown}}}", hint=f"known placeholders: {', '.join(COMMAND_PLACEHOLDERS)}"
            )


_CONTENT_CHECKS: dict[str, Callable[[Any], object]] = {
    "agent.grace": _check_grace,
    "agent.interval": _check_interval,
    "agent.statement_timeout": _check_positive_duration,
    "agent.lock_timeout": _check_positive_duration,
    "agent.connect_timeout": _check_positive_duration,
    "agent.query_texts": _one_of("full", "normalised", "none"),
    "recording.keep": _check_positive_duration,
    "recording.max_size": parse_size,
    "screen.colours": _one_of(*COLOUR_MODES),
    "jobs.window": _check_positive_duration,
    "jobs.windows": _check_windows,
    "findings.off": check_disabled_rules,
    "actions.deny": _check_denied_actions,
}


def leaf_settings(kind: type[Any] = Config, at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every single value of the configuration with its type, without named targets."""
    for field in msgspec.structs.fields(kind):
        path = (*at, field.name)
        if typing.get_origin(field.type) is dict:
            continue
        inner = _struct_of_table(field.type)
        if inner is None:
            yield path, field.type
        else:
            yield from leaf_settings(inner, path)


def dotted_key(path: KeyPath) -> str:
    """Return a key path as TOML writes it: `targets."db 1".dsn`.

    >>> dotted_key(("targets", "db 1", "dsn"))
    'targets."db 1".dsn'
    """
    return ".".join(name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"' for name in path)


def _quoting_hint(value: Any, kind: Any) -> str | None:
    """Return the hint for the most common mistake: a duration or size written as a bare number."""
    return (
        f'write it in quotes: "{value}"'
        if "string" in _expected_type(kind) and isinstance(value, int | float)
        else None
    )


def _did_you_mean(name: str, known: typing.Iterable[str]) -> str | None:
    return _nearest(name, known) or f"known here: {', '.join(known)}"


def _nearest(name: str, known: typing.Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else None


def _expected_type(kind: Any) -> str:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
    if typing.get_origin(kind) is dict:
        return "a table of strings"
    words = {bool: "true or false", str: "a string", int: "a whole number", float: "a number"}
    return words.get(kind, "a list of strings")


def _type_word(value: Any) -> str:
    words = {
        bool: "true or false",
        str: "a string",
        int: "a number",
        float: "a number",
        dict: "a table",
        list: "a list",
    }
    return words.get(type(value), "a date or time")
