"""Change the servers of databases in pgbouncer.ini, and check before that this is possible."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dba_console.clusters.node_host import Host, last_line
from dba_console.core.clock import Clock
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConsoleError, PermissionDenied
from dba_console.core.sanitize import clean

# Edit of pgbouncer.ini: changes host and port of databases, and keeps every other byte.
#
# Parses the file as PgBouncer does: libusual's cfparser.c for sections, comments, includes and keys, its own
# src/loader.c for the key=value pairs of a database, whose values may be in single quotes, with quotes inside doubled.

DEFAULT_PORT = "5432"
FALLBACK = "*"
"""The entry for every database without its own entry."""

_SPACE = " \t\n\v\f\r"
_TOKEN = re.compile(
    r"(?P<space>[ \t\n\v\f\r]+)"
    r"|%include[ \t]+(?P<include>[^\n]*)"
    r"|(?P<comment>[#;][^\n]*)"
    r"|\[(?P<section>[^]\n]*)\]"
    r"""|(?P<key>"(?:[^"\n]|"")+"|'[^'\n]+'|[A-Za-z0-9_.*-]*)[ \t]*=[ \t]*(?P<value>[^\n]*)"""
)
_PAIR = re.compile(r" *(?P<key>[^= ]+) *= *(?P<value>'(?:[^']|'')+'(?= |$)|[^' ][^ ]*) *")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the section [databases]: its name, and the position of its connection string in the text."""

    name: str
    line: int
    start: int
    text: str


def change_host(
    text: str, databases: Sequence[str], host: str, port: str, *, old: tuple[str, str] | None = None
) -> str:
    """Return pgbouncer.ini with `databases` set to `host` (or a socket directory) and `port`; an empty list means those
    with host and port `old`. A database without an entry is covered by "*". Raises ConsoleError."""
    if not host or "," in host or not port.isdigit() or not (host + port).isprintable():
        raise ConsoleError(f'not one host and port for pgbouncer.ini: "{clean(host)}", "{clean(port)}"')
    entries = list(_entries(text))
    changed = {
        entry.start: _with_address(entry, host, port)
        for entry in _entries_to_change(entries, databases, old, (host, port))
    }
    pieces, at = [], 0
    for entry in entries:
        pieces += [text[at : entry.start], changed.get(entry.start, entry.text)]
        at = entry.start + len(entry.text)
    return "".join([*pieces, text[at:]])


def _entries(text: str) -> Iterator[_Entry]:
    section, position = "", 0
    text = text.partition("\0")[0]
    while position < len(text):
        match = _TOKEN.match(text, position)
        line = text.count("\n", 0, position) + 1
        if match is None:
            raise ConsoleError(f"line {line}: PgBouncer cannot read this line")
        if match["include"] is not None:
            raise ConsoleError(
                f'line {line} includes "{clean(match["include"].strip())}", which may also contain databases: '
                "change it manually",
                hint="or set `config` of the pooler to a file without %include",
            )
        if match["section"] is not None:
            section = match["section"]
        elif match["key"] is not None and section == "databases":
            yield _Entry(_name(match["key"]), line, match.start("value"), match["value"].rstrip(_SPACE))
        position = match.end()


def _name(key: str) -> str:
    return key[1:-1].replace('""', '"') if key[:1] == '"' else key.strip("'")


def _entries_to_change(
    entries: Sequence[_Entry], databases: Sequence[str], old: tuple[str, str] | None, new: tuple[str, str]
) -> list[_Entry]:
    """Return the entries to change, also if they were changed before."""
    if databases:
        named = {entry.name for entry in entries}
        missing = [name for name in databases if name not in named]
        if missing and FALLBACK not in named:
            names = ", ".join(f'"{clean(name)}"' for name in missing)
            raise ConsoleError(f'no entry for {names} in [databases], and no entry "*"')
        names_to_change = {*databases, FALLBACK} if missing else {*databases}
        return [entry for entry in entries if entry.name in names_to_change]
    if old is None:
        raise ConsoleError(
            "the databases of the pooler are not configured", hint="set `databases` of the pooler in the configuration"
        )
    found = [entry for entry in entries if _entry_address(entry) in (old, new)]
    if not found:
        raise ConsoleError(f"no database connects to {clean(':'.join(old))}")
    return found


def _entry_address(entry: _Entry) -> tuple[str, str]:
    values = {pair["key"]: _unquoted(pair["value"]) for pair in _pairs(entry)}
    return values.get("host", ""), values.get("port", DEFAULT_PORT)


def _with_address(entry: _Entry, host: str, port: str) -> str:
    """Return the connection string with host and port replaced, or added at its end."""
    new_values = {"host": host, "port": port}
    pieces, at = [], 0
    for pair in _pairs(entry):
        value = new_values.get(pair["key"])
        if value is None:
            continue
        if pair["key"] == "host" and "," in pair["value"]:
            raise ConsoleError(
                f'line {entry.line}: "{clean(entry.name)}" has several hosts, '
                f"{clean(_unquoted(pair['value']))}: change it manually"
            )
        pieces += [entry.text[at : pair.start("value")], _quoted(value)]
        at = pair.end("value")
    text = "".join([*pieces, entry.text[at:]])
    present = {pair["key"] for pair in _pairs(entry)}
    added = [f"{key}={_quoted(value)}" for key, value in new_values.items() if key not in present]
    return " ".join([*([text] if text else []), *added])


def _pairs(entry: _Entry) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(entry.text):
        match = _PAIR.match(entry.text, position)
        # Other white space does not end a value: a tab after a host would be part of it.
        if match is None or re.search(r"[\t\v\f\r]", match["value"]):
            raise ConsoleError(
                f'line {entry.line}: the connection string of "{clean(entry.name)}" cannot be read from '
                f"character {position + 1} on"
            )
        yield match
        position = match.end()


def _unquoted(value: str) -> str:
    return value[1:-1].replace("''", "'") if value[:1] == "'" else value


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'" if " " in value or "'" in value else value


Address = tuple[str, str]
"""Host, or socket directory, and port."""
_PARENT_DIRECTORIES = """file=$1; shift
for path in "$file" "$(readlink -f "$file")" "$(readlink -f "${file%/*}/.")/"; do
    while path=${path%/*}; do set -- "$@" "${path:-/}"; [ -n "$path" ] || break; done
done
exec stat -L -c '%u %g %a %U' "$@"
"""
"""User, group, mode and user name of every directory above a file and above its link target. Argument: path."""
_WRITABLE = 'path=$(readlink -f "$1"); [ -w "$path" ] && [ -w "$(dirname "$path")" ]'


def check_file(
    name: str, config: PoolerConfig, databases: Sequence[str], old: Address, to: Address, clock: Clock
) -> None:
    """Raise ConsoleError if `change_file` would fail, as far as that can be checked before."""
    host = Host(config.ssh, clock)
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
    """Set the server of `databases` to `to` in the pooler's file; an empty list means those of `old`. Safe to repeat.

    Raises ConsoleError; the file is then complete, old or new."""
    host = Host(config.ssh, clock)
    user = _account(host, name, config)
    before, after = _old_and_new_content(host, name, config, databases, old, to, user)
    if after != before:
        host.write(config.config or "", after, user=user)


def _account(host: Host, name: str, config: PoolerConfig) -> str | None:
    """Return the account to change the file as, if we are root: the owner of a directory above it, who could place a
    link there to any other file. None: our own account. Raises PermissionDenied if several accounts could."""
    if host.account() != "root":
        return None
    path = f"/{(config.config or '').lstrip('/')}"
    ended = host.run(["sh", "-c", _PARENT_DIRECTORIES, "sh", path], repeatable=True)
    above = [words for line in ended.output.splitlines() if len(words := line.split()) == 4 and words[0].isdigit()]
    if ended.code != 0 or not above:
        raise ConsoleError(
            f'pooler "{name}": {path} does not exist on {host.name}: {last_line(ended)}',
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
            f'pooler "{name}": other users may replace {path} on {host.name}, and root would follow their link',
            hint="the directories above it must have one owner, and must not be group-writable",
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
    """Return the current and the new content of the file."""
    path = config.config or ""
    content = host.read(path, user=user)
    if content is None:
        message = f'pooler "{name}": {path} does not exist on {host.name}'
        raise ConsoleError(message, hint="check `config` of the pooler")
    text = content.decode("utf-8", "surrogateescape")
    try:
        after = change_host(text, databases, *to, old=old)
    except ConsoleError as error:
        raise ConsoleError(f'pooler "{name}": {path}: {error.message}', hint=error.hint) from None
    return content, after.encode("utf-8", "surrogateescape")
