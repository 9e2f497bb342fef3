"""`dba-console config`: show the configuration in force and the origin of each value. Passwords are masked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, new_app
from dba_console.cli.stdout import put
from dba_console.core.declarations import KeyPath, dotted_key
from dba_console.core.decoding import convert
from dba_console.core.errors import ExitCode
from dba_console.core.redact import redact

app = new_app("Show the configuration in force, and where each value comes from.")


@app.command("show")
def show(json: Json = False) -> int:
    """Show every value with its origin: default, FILE:LINE, environment VARIABLE."""
    loaded = load_config()
    rows = setting_rows(loaded)
    if json:
        for key, value, origin in rows:
            print_json({"key": key, "value": value, "origin": origin})
        return ExitCode.OK
    put(format_columns(["key", "value", "from"], [[key, _value_text(value), origin] for key, value, origin in rows]))
    if not loaded.file_found:
        put(f"\nno configuration file {loaded.file}; create it to change a value")
    return ExitCode.OK


@app.command("path")
def path() -> int:
    """Print the path of the configuration file, whether it exists or not."""
    put(str(load_config().file))
    return ExitCode.OK


def setting_rows(loaded: LoadedConfig) -> list[tuple[str, Any, str]]:
    """Return key, value and origin of every setting, including targets and clusters; passwords are masked."""
    # Loaded here, because it loads all rules.
    from dba_console.cli.config_declaration import declared_config

    values: dict[str, Any] = msgspec.to_builtins(convert(loaded.values, declared_config()))
    values["recording"]["directory"] = str(sessions_directory(loaded.config))
    return [(dotted_key(path), _masked(value), loaded.origin(dotted_key(path))) for path, value in _leaves(values)]


def _masked(value: Any) -> Any:
    if isinstance(value, list):
        return [redact(one) for one in value]
    return redact(value) if isinstance(value, str) else value


def _leaves(table: dict[str, Any], at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*at, name))
        else:
            yield (*at, name), value


def _value_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return str(value)
