"""Resolve the target of a command: from the argument, else the configuration, else libpq's environment.

A password on the command line works, because it must at 3 a.m., but a warning on stderr reports that every user of the
host could read it. It is never printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from dba_console.cli.config_file import LoadedConfig
from dba_console.core.config import TargetConfig
from dba_console.core.declarations import dotted_key
from dba_console.core.errors import ConfigError, ConsoleError, UsageError, suggest
from dba_console.core.target import (
    ADDRESS_VARIABLES,
    Target,
    address_of,
    holds_secret,
    looks_like_conninfo,
    make_target,
)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def resolve_target(
    dsn_or_name: str | None,
    loaded: LoadedConfig,
    *,
    environ: Mapping[str, str] = os.environ,
    warn: Callable[[str], None] = _to_stderr,
) -> Target:
    """Return the target of a command's argument.

    A connection string or URI is used as it is; another word names a configured target; None means `default_target`,
    else libpq's default. Raises UsageError for an unknown name (with the nearest one) or an invalid connection string,
    ConfigError if the configured one is invalid.
    """
    if dsn_or_name and looks_like_conninfo(dsn_or_name):
        if holds_secret(dsn_or_name):
            warn(
                "warning: every user of this host can read the password in the connection string (ps)\n"
                "hint: put it into ~/.pgpass (mode 0600) or into a service file"
            )
        return make_target(dsn_or_name, environ=environ)
    if dsn_or_name:
        return _named_target(dsn_or_name, loaded, environ, warn)
    if loaded.config.default_target:
        return _default_target(loaded.config.default_target, loaded, environ, warn)
    return make_target("", environ=environ)


def require_server(word: str | None, loaded: LoadedConfig) -> None:
    """Raise UsageError for a first word that is neither a target nor a connection string: it may be a typo.

    A configured target has precedence over a similar command; a connection string is never a command.
    """
    if word is None or looks_like_conninfo(word) or word in loaded.config.targets:
        return
    from dba_console.cli.app import did_you_mean  # imported only here: opening the console does not need it

    raise UsageError(
        f"{word!r} is neither a command nor a target of {loaded.file}",
        hint=f"{did_you_mean(word, loaded.config.targets)} (a database of that name is 'dbname={word}')",
    )


def names_server(loaded: LoadedConfig) -> bool:
    """Return whether the configuration or libpq's environment names the default server."""
    return bool(loaded.config.default_target) or any(os.environ.get(variable) for variable in ADDRESS_VARIABLES)


def known_target(key: str, name: str, conninfo: str, loaded: LoadedConfig) -> Target | None:
    """Return the target with that key: a configured one, else that of `conninfo` (stored without its secrets).

    None if neither has that key in this environment.
    """
    for configured in (None, *loaded.config.targets):
        try:
            target = resolve_target(configured, loaded, warn=lambda text: None)
        except ConsoleError:
            continue  # an invalid connection string of another target does not matter
        if target.key == key:
            return target
    if conninfo and address_of(conninfo).key == key:
        return Target(name, key, conninfo)
    return None


def _named_target(name: str, loaded: LoadedConfig, environ: Mapping[str, str], warn: Callable[[str], None]) -> Target:
    found = loaded.config.targets.get(name)
    if found is None:
        raise UsageError(f"no target named {name!r} in {loaded.file}", hint=_name_hint(name, loaded))
    return _configured_target(name, found, loaded, environ, warn)


def _configured_target(
    name: str, found: TargetConfig, loaded: LoadedConfig, environ: Mapping[str, str], warn: Callable[[str], None]
) -> Target:
    origin = loaded.origin(dotted_key(("targets", name, "dsn")))
    try:
        if holds_secret(found.dsn):
            warn(f"warning: {origin}: targets.{name}.dsn holds a password\nhint: move it into ~/.pgpass (mode 0600)")
        return make_target(found.dsn, name=name, host_panels=found.host_panels, environ=environ)
    except UsageError as error:
        raise ConfigError(f"{origin}: targets.{name}.dsn: {error.message}", hint=error.hint) from None


def _default_target(name: str, loaded: LoadedConfig, environ: Mapping[str, str], warn: Callable[[str], None]) -> Target:
    if looks_like_conninfo(name):
        return make_target(name, environ=environ)
    try:
        return _named_target(name, loaded, environ, warn)
    except UsageError as error:
        message = f"default_target ({loaded.origin('default_target')}): {error.message}"
        raise ConfigError(message, hint=error.hint) from None


def _name_hint(name: str, loaded: LoadedConfig) -> str:
    known = list(loaded.config.targets)
    hint = suggest(name, known, what="known:")
    if hint.startswith("did you mean"):
        return hint
    return f"{hint and hint + '; '}for a database of that name use 'dbname={name}'"
