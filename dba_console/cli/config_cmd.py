"""`dba-console config`: show the configuration in force and the origin of each value. Passwords are masked."""

from __future__ import annotations

from typing import Any

import msgspec

from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, new_app
from dba_console.cli.stdout import put
from dba_console.core.config import Config
from dba_console.core.declarations import dotted_key, leaf_settings
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
    values: dict[str, Any] = msgspec.to_builtins(loaded.config)
    values["recording"]["directory"] = str(sessions_directory(loaded.config))
    paths = [path for path, _ in leaf_settings(Config)]
    for name, target in values["targets"].items():
        paths += [("targets", name, key) for key in target]
    for name, one in values["clusters"].items():
        for group in ("nodes", "poolers"):
            paths += [("clusters", name, group, node, key) for node, of_node in one[group].items() for key in of_node]
    paths += [("jobs", "windows", name) for name in values["jobs"]["windows"]]
    rows = []
    for path in paths:
        value: Any = values
        for name in path:
            value = value[name]
        rows.append(
            (dotted_key(path), redact(value) if isinstance(value, str) else value, loaded.origin(dotted_key(path)))
        )
    return rows


def _value_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return str(value)
