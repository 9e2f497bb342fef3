"""The file in which a PgBouncer reads where its databases lead: whether a cutover can change it, and the change."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from dba_console.clock import Clock
from dba_console.clusters.host import Host
from dba_console.clusters.pgbouncer_ini import repointed
from dba_console.config import PoolerConfig
from dba_console.errors import ConsoleError, PermissionDenied

Address = tuple[str, str]
"""Host, or socket directory, and port."""
_WRITABLE = 'path=$(readlink -f "$1"); [ -w "$path" ] && [ -w "$(dirname "$path")" ]'


def check_file(
    name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address, clock: Clock
) -> None:
    """Raise ConsoleError where `change_file` would fail, as far as that can be known before."""
    with closing(Host(config.ssh, clock)) as host:
        _contents(host, name, config, databases, old, to)
        if host.run(["sh", "-c", _WRITABLE, "sh", config.config or ""]).code != 0:
            raise PermissionDenied(
                f'pooler "{name}": {host.account()} may not replace {config.config} on {host.name}',
                hint="the file and its directory must be writable for that account",
            )


def change_file(
    name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address, clock: Clock
) -> None:
    """Have `databases` lead to `to` in the pooler's file; none named: those that lead to `old`. Safe to repeat.

    Raises ConsoleError; the file is then the old or the new one."""
    with closing(Host(config.ssh, clock)) as host:
        before, after = _contents(host, name, config, databases, old, to)
        if after != before:
            host.write(config.config or "", after)


def _contents(
    host: Host, name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address
) -> tuple[bytes, bytes]:
    """The file as it is and as it has to be."""
    path = config.config or ""
    content = host.read(path)
    if content is None:
        raise ConsoleError(f'pooler "{name}": {path} is not there on {host.name}', hint="check `config` of the pooler")
    text = content.decode("utf-8", "surrogateescape")
    try:
        after = repointed(text, databases, *to, old=old)
    except ConsoleError as error:
        raise ConsoleError(f'pooler "{name}": {path}: {error.message}', hint=error.hint) from None
    return content, after.encode("utf-8", "surrogateescape")
