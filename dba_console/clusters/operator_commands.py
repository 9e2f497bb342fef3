"""The operator's own commands of a cutover: what moves an address, what holds and releases a scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing

from dba_console.clock import Clock
from dba_console.clusters.node_host import Host, last_line
from dba_console.config import COMMAND_PLACEHOLDERS, CommandConfig
from dba_console.sanitize import clean
from dba_console.short_command import CommandResult


def run_command(config: CommandConfig, *, cluster: str, from_: str, to: str, undo: bool, clock: Clock) -> CommandResult:
    """Run it, or what reverts it, on its host. Raises ConsoleError where the host cannot be reached."""
    names = dict(zip(COMMAND_PLACEHOLDERS, (cluster, from_, to), strict=True))
    with closing(Host(config.ssh, clock)) as host:
        return host.run(fill_names(config.undo if undo else config.run, names), timeout_s=config.timeout_s)


def failure_text(what: str, ended: CommandResult) -> str | None:
    """Why a command failed, in a sentence with the last line it printed; None where it did not."""
    if ended.code == 0:
        return None
    outcome = "did not end in time" if ended.code is None else f"failed with exit code {ended.code}"
    return clean(f"{what} {outcome}: {last_line(ended)}")


def fill_names(argv: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The arguments with the names in braces replaced, each once; other braces stay.

    >>> fill_names(["move-ip", "--to={to}", '{"from": "{from}"}'], {"to": "db2", "from": "{to}"})
    ['move-ip', '--to=db2', '{"from": "{to}"}']
    """
    pattern = re.compile("|".join(rf"\{{{re.escape(name)}\}}" for name in names))
    return [pattern.sub(lambda match: names[match[0][1:-1]], argument) for argument in argv]
