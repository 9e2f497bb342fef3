"""The operator's own commands of a cutover: what moves an address, what holds and releases a scheduler."""

from __future__ import annotations

from contextlib import closing

from dba_console.clock import Clock
from dba_console.clusters.host import Host
from dba_console.config import CommandConfig
from dba_console.short_command import Ended


def run_command(config: CommandConfig, *, cluster: str, from_: str, to: str, undo: bool, clock: Clock) -> Ended:
    """Run it, or what reverts it, on its host. Raises ConsoleError where the host cannot be reached."""
    names = {"{cluster}": cluster, "{from}": from_, "{to}": to}
    with closing(Host(config.ssh, clock)) as host:
        return host.run(filled(config.undo if undo else config.run, names), timeout_s=config.timeout_s)


def filled(argv: list[str], names: dict[str, str]) -> list[str]:
    """
    >>> filled(["move-ip", "--to={to}"], {"{to}": "db2"})
    ['move-ip', '--to=db2']
    """
    found = []
    for argument in argv:
        for name, value in names.items():
            argument = argument.replace(name, value)
        found.append(argument)
    return found
