"""Load the configuration: file, then environment, then options; each value keeps its origin.

The file is parsed strictly: an unknown key or a value of the wrong type stops the command with file, line and key,
because a silently ignored setting is discovered at the worst moment.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from dba_console.actions.policy import COMMAND_ACT, SQL_ACT
from dba_console.actions.registry import ACTIONS
from dba_console.core import paths
from dba_console.core.config import Config
from dba_console.core.declarations import InvalidSetting, KeyPath, dotted_key, find_invalid, leaf_settings
from dba_console.core.decoding import convert
from dba_console.core.errors import ConfigError, suggest
from dba_console.core.paths import trust_problem

# The line number of each key in a TOML file, which tomllib does not report.
#
# The text is already known to be valid TOML. Statements are found by parsing pieces again: a piece that does not parse
# alone continues on the next line, so multi-line strings and arrays need no extra rules.


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line number (from 1) of every key and table of `text`.

    >>> key_lines('[agent]\\ngrace = "1m"\\n[targets.db1]\\ndsn = ""')
    {('agent',): 1, ('agent', 'grace'): 2, ('targets',): 3, ('targets', 'db1'): 3, ('targets', 'db1', 'dsn'): 4}
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, values, is_header in _statements(text):
        paths = list(_key_paths(values))
        if is_header:
            table = paths[-1]
            for path in paths:
                lines.setdefault(path, number)
        else:
            for path in paths:
                lines.setdefault((*table, *path), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    piece, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not piece:
            first = number
        piece += line + "\n"
        try:
            values = tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            continue
        if values:
            yield first, values, piece.lstrip().startswith("[")
        piece = ""


def _key_paths(values: dict[str, Any], at: KeyPath = ()) -> Iterator[KeyPath]:
    for name, value in values.items():
        path = (*at, name)
        yield path
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict):
            yield from _key_paths(inner, path)


DEFAULT_ORIGIN = "default"

_THRESHOLD_VARIABLE = "DBA_CONSOLE_FINDINGS_"
_SHORT_NAMES = {"DBA_CONSOLE_SESSIONS": ("recording", "directory"), "DBA_CONSOLE_TARGET": ("default_target",)}
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration in force. `provenance` maps a dotted key to its origin; a missing key has its default."""

    config: Config = field(repr=False)  # a target's connection string may hold a password
    provenance: dict[str, str]
    file: Path
    """The file that was read, or that would be read."""
    file_found: bool
    values: dict[str, Any] = field(repr=False)
    """The values that were set, without defaults."""

    def origin(self, key: str) -> str:
        """Return `default`, `FILE:LINE`, `environment VARIABLE` or `option --NAME`."""
        return self.provenance.get(key, DEFAULT_ORIGIN)

    def with_option(self, path: KeyPath, value: Any, option: str) -> LoadedConfig:
        """Return the configuration with one value set by a command-line option. Raises ConfigError if invalid."""
        values = _merge(self.values, path, value)
        if problem := find_problem(values):
            raise ConfigError(f"{option}: {problem.text}", hint=problem.hint or None)
        return replace(
            self,
            config=_convert(values),
            provenance={**self.provenance, dotted_key(path): f"option {option}"},
            values=values,
        )


def load_config(
    file: Path | None = None, environ: Mapping[str, str] = os.environ, *, sessions: str | None = None
) -> LoadedConfig:
    """Return the configuration of this user. Raises ConfigError with file, line and key.

    A missing file means defaults, unless $DBA_CONSOLE_CONFIG names it. `sessions`: the option --sessions.
    """
    file = file or paths.config_file()
    text = _read_text(file, must_exist="DBA_CONSOLE_CONFIG" in environ)
    values, provenance = _parse(text, file) if text is not None else ({}, {})
    for variable, path, value in _from_environment(environ):
        values = _merge(values, path, value)
        provenance[dotted_key(path)] = f"environment {variable}"
        if problem := find_problem(values):
            raise ConfigError(f"{variable}: {problem.text}", hint=problem.hint or None)
    loaded = LoadedConfig(_convert(values), provenance, file, text is not None, values)
    return loaded if sessions is None else loaded.with_option(("recording", "directory"), sessions, "--sessions")


def find_problem(values: Mapping[str, Any]) -> InvalidSetting | None:
    """Return the first problem of `values`, or None.

    >>> find_problem({"agent": {"graze": "1m"}}).text
    "agent has no key 'graze'"
    """
    for problem in find_invalid(values, _declaration("findings" in values), "the configuration"):
        return problem
    unknown_action = _unknown_action(values.get("actions", {}).get("deny", []))
    return (_findings_problem(values["findings"]) if "findings" in values else None) or unknown_action


def _declaration(with_findings: bool) -> type[msgspec.Struct]:
    if not with_findings:
        return Config
    # Loaded here: it loads all rules, hardly any file has thresholds, and every command reads the file.
    from dba_console.cli.config_declaration import declared_config

    return declared_config()


def _findings_problem(findings: Mapping[str, Any]) -> InvalidSetting | None:
    from dba_console.watch.findings.configuration import find_order_conflict
    from dba_console.watch.findings.rule_engine import RULES

    if conflict := find_order_conflict(findings):
        return InvalidSetting(("findings", *conflict[0]), conflict[1])
    names: list[str] = findings.get("off", [])
    known = [rule.name for rule in RULES]
    for name in names:
        if name not in known:
            hint = suggest(name, known) or "`dba-console findings rules` lists them"
            return InvalidSetting(("findings", "off"), f"findings.off: unknown rule {name!r}", hint)
    return None


def _unknown_action(names: list[str]) -> InvalidSetting | None:
    known = (*ACTIONS, SQL_ACT, COMMAND_ACT)
    for name in names:
        if name not in known:
            hint = suggest(name, known) or f"known are {', '.join(known)}"
            return InvalidSetting(("actions", "deny"), f"actions.deny: unknown action {name!r}", hint)
    return None


def _convert(values: Mapping[str, Any]) -> Config:
    config = convert(values, Config)
    if config.recording.directory is None:
        return config
    # Expand `~` here, so that no user of the value has to.
    directory = os.path.abspath(os.path.expanduser(config.recording.directory))
    return msgspec.structs.replace(config, recording=msgspec.structs.replace(config.recording, directory=directory))


def sessions_directory(config: Config) -> Path:
    """Return the directory of sessions: `recording.directory` (set by $DBA_CONSOLE_SESSIONS), else the default."""
    if config.recording.directory:
        return Path(config.recording.directory)
    return paths.sessions_dir()


def _read_text(file: Path, *, must_exist: bool) -> str | None:
    if (why := trust_problem(file)) is not None and file.exists():
        raise ConfigError(f"{why.text}, so {file} cannot be trusted", hint=f"`{why.fix}`")
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(f"no configuration file {file}", hint="$DBA_CONSOLE_CONFIG names it") from None
        return None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text, as TOML requires") from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", hint=_home_hint()) from error


def _home_hint() -> str | None:
    """Return a hint if HOME belongs to another user, as `sudo -u` without `-H` may leave it."""
    home = os.environ.get("HOME", "")
    try:
        others = bool(home) and os.stat(home).st_uid != os.geteuid()
    except PermissionError:
        others = True
    except OSError:
        others = False
    return f"HOME is {home}, another user's: `sudo -H -u USER …` sets it" if others else None


def _parse(text: str, file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    lines = key_lines(text)
    if problem := find_problem(values):
        raise ConfigError(f"{_location(file, problem, lines)}: {problem.text}", hint=problem.hint or None)
    return values, {dotted_key(path): f"{file}:{line}" for path, line in lines.items()}


def _location(file: Path, problem: InvalidSetting, lines: Mapping[KeyPath, int]) -> str:
    line = lines.get(problem.path)
    return f"{file}:{line}" if line else str(file)


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, KeyPath, Any]]:
    """Return values set by variables: DBA_CONSOLE_SECTION_KEY for every single value, and the short names."""
    kinds = dict(leaf_settings(_declaration(any(name.startswith(_THRESHOLD_VARIABLE) for name in environ))))
    # A short name comes last and takes precedence: it is the documented one.
    variables = {"DBA_CONSOLE_" + "_".join(path).upper(): path for path in kinds if len(path) > 1} | _SHORT_NAMES
    return [
        (variable, path, _parse_variable(variable, environ[variable], kinds[path]))
        for variable, path in variables.items()
        if environ.get(variable)
    ]


def _parse_variable(variable: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) is list:
        return [piece for piece in text.split(os.pathsep) if piece]
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ConfigError(f"{variable} must be true or false, not {text!r}")
        return _BOOLEANS[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            word = "a whole number" if kind is int else "a number"
            raise ConfigError(f"{variable} must be {word}, not {text!r}") from None
    return text


def _merge(values: Mapping[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return a copy of `values` with the value at `path` set."""
    name, *rest = path
    if not rest:
        return {**values, name: value}
    return {**values, name: _merge(values.get(name, {}), tuple(rest), value)}
