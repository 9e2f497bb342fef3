"""The file in which a PgBouncer reads where its databases lead: whether a cutover can change it, and the change."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import closing

from dba_console.clock import Clock
from dba_console.clusters.node_host import Host, last_line
from dba_console.clusters.pgbouncer_ini import change_host
from dba_console.config import PoolerConfig
from dba_console.errors import ConsoleError, PermissionDenied

Address = tuple[str, str]
"""Host, or socket directory, and port."""
_PARENT_DIRECTORIES = """file=$1; shift
for path in "$file" "$(readlink -f "$file")" "$(readlink -f "${file%/*}/.")/"; do
    while path=${path%/*}; do set -- "$@" "${path:-/}"; [ -n "$path" ] || break; done
done
exec stat -L -c '%u %g %a %U' "$@"
"""
"""User, group, mode and name of the user for every directory above a file, also where a link leads. Argument: path."""
_WRITABLE = 'path=$(readlink -f "$1"); [ -w "$path" ] && [ -w "$(dirname "$path")" ]'


def check_file(
    name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address, clock: Clock
) -> None:
    """Raise ConsoleError where `change_file` would fail, as far as that can be known before."""
    with closing(Host(config.ssh, clock)) as host:
        user = _account(host, name, config)
        _old_and_new_content(host, name, config, databases, old, to, user)
        if host.run(["sh", "-c", _WRITABLE, "sh", config.config or ""], user=user).code != 0:
            raise PermissionDenied(
                f'pooler "{name}": {user or host.account()} may not replace {config.config} on {host.name}',
                hint="the file and its directory must be writable for that account",
            )


def change_file(
    name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address, clock: Clock
) -> None:
    """Have `databases` lead to `to` in the pooler's file; none named: those that lead to `old`. Safe to repeat.

    Raises ConsoleError; the file is then the old or the new one."""
    with closing(Host(config.ssh, clock)) as host:
        user = _account(host, name, config)
        before, after = _old_and_new_content(host, name, config, databases, old, to, user)
        if after != before:
            host.write(config.config or "", after, user=user)


def _account(host: Host, name: str, config: PoolerConfig) -> str | None:
    """As whom the file is changed where we are root: as the account that owns a directory above it, which could put a
    link to any other file there. None: as we are. Raises PermissionDenied where several accounts could."""
    if host.account() != "root":
        return None
    path = f"/{(config.config or '').lstrip('/')}"
    ended = host.run(["sh", "-c", _PARENT_DIRECTORIES, "sh", path], repeatable=True)
    above = [words for line in ended.output.splitlines() if len(words := line.split()) == 4 and words[0].isdigit()]
    if ended.code != 0 or not above:
        raise ConsoleError(
            f'pooler "{name}": {path} is not there on {host.name}: {last_line(ended)}',
            hint="check `config` of the pooler",
        )
    owners = {owner for uid, _, _, owner in above if uid != "0"}
    shared = any(
        not mode & stat.S_ISVTX and (mode & stat.S_IWOTH or (mode & stat.S_IWGRP and gid != "0"))
        for uid, gid, mode in ((uid, gid, int(text, 8)) for uid, gid, text, _ in above)
        if uid == "0"
    )
    if shared or len(owners) > 1:
        raise PermissionDenied(
            f'pooler "{name}": others may replace {path} on {host.name}, and root would follow a link of theirs',
            hint="let one account own the directories above it, and no group write there",
        )
    return next(iter(owners), None)


def _old_and_new_content(
    host: Host,
    name: str,
    config: PoolerConfig,
    databases: Sequence[str],
    old: Address,
    to: Address,
    user: str | None,
) -> tuple[bytes, bytes]:
    """The file as it is and as it has to be."""
    path = config.config or ""
    content = host.read(path, user=user)
    if content is None:
        raise ConsoleError(f'pooler "{name}": {path} is not there on {host.name}', hint="check `config` of the pooler")
    text = content.decode("utf-8", "surrogateescape")
    try:
        after = change_host(text, databases, *to, old=old)
    except ConsoleError as error:
        raise ConsoleError(f'pooler "{name}": {path}: {error.message}', hint=error.hint) from None
    return content, after.encode("utf-8", "surrogateescape")
