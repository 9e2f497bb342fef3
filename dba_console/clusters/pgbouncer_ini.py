"""pgbouncer.ini with other hosts: changes where databases lead, and leaves every other byte as it is.

Reads the file as PgBouncer does: libusual's cfparser.c for sections, comments, includes and keys, its own src/loader.c
for the key=value pairs of a database, whose values may stand in single quotes, each quote within doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dba_console.errors import ConsoleError
from dba_console.sanitize import clean

DEFAULT_PORT = "5432"
FALLBACK = "*"
"""The entry that covers every database without one of its own."""

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
    """A line of the section [databases]: its name, and where its connection string stands in the text."""

    name: str
    line: int
    start: int
    text: str


def change_host(
    text: str, databases: Sequence[str], host: str, port: str, *, old: tuple[str, str] | None = None
) -> str:
    """pgbouncer.ini with `databases` leading to `host` (a socket directory too) and `port`; none named: those that lead
    to `old`, a host and port. A database without an entry is covered by "*". Raises ConsoleError where it cannot."""
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
                f'line {line}, includes "{clean(match["include"].strip())}", which may hold databases '
                "too: change it by hand",
                hint="or let `config` of the pooler name a file without %include",
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
    """The entries to change, also where they were changed before."""
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
            "the databases of the pooler are not named", hint="set `databases` of the pooler in the configuration"
        )
    found = [entry for entry in entries if _entry_address(entry) in (old, new)]
    if not found:
        raise ConsoleError(f"no database leads to {clean(':'.join(old))}")
    return found


def _entry_address(entry: _Entry) -> tuple[str, str]:
    values = {pair["key"]: _unquoted(pair["value"]) for pair in _pairs(entry)}
    return values.get("host", ""), values.get("port", DEFAULT_PORT)


def _with_address(entry: _Entry, host: str, port: str) -> str:
    """The connection string with host and port replaced where they stand, else added at its end."""
    new_values = {"host": host, "port": port}
    pieces, at = [], 0
    for pair in _pairs(entry):
        value = new_values.get(pair["key"])
        if value is None:
            continue
        if pair["key"] == "host" and "," in pair["value"]:
            raise ConsoleError(
                f'line {entry.line}: "{clean(entry.name)}" leads to several hosts, '
                f"{clean(_unquoted(pair['value']))}: change it by hand"
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
        # Other white space does not end a value: a tab behind a host would be a part of it.
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
