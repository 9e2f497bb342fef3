"""What the arguments of a dump, a restore or the like say, understood as its program understands them. Pure.

Defaults come from the environment of the process (PGDATABASE, PGHOST), which is nobody's business: what is not given
among the arguments is None.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.harmless import clean
from dba_console.probes.jobs.argv import Read, read_words
from dba_console.probes.jobs.connstring import parse_connection, without_secrets
from dba_console.probes.jobs.optstrings import SHORT

COMMAND_LIMIT = 1000
"""Characters of a command line that are told."""
_WORD_LIMIT = 300
_FORMATS = {"c": "custom", "d": "directory", "t": "tar", "p": "plain", "a": "plain"}
"""By the first letter; `a` is what pg_dumpall gives its pg_dumps, which append to one script."""
_METHODS = ("gzip", "lz4", "zstd", "none")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked of the program. None: not given."""

    format: str | None = None
    """directory, custom, tar, plain; of pg_restore only where it was told."""
    jobs: int | None = None
    compression: str | None = None
    """gzip, lz4, zstd, none: with the level or detail behind a colon where one was given."""
    database: str | None = None
    host: str | None = None
    port: str | None = None
    user: str | None = None
    service: str | None = None
    output: str | None = None
    """-f of a dump, -D of pg_basebackup, --dir of pgcopydb: as written, relative to the program's directory."""
    input: str | None = None
    """What pg_restore reads, or -f of psql; None: its standard input."""
    to_database: bool = False
    """pg_restore -d: without it a script is written."""
    lists: bool = False
    """pg_restore -l: nothing is restored."""
    use_list: str | None = None
    """pg_restore -L: only what this file lists."""
    verbose: int = 0
    tables: tuple[str, ...] = ()
    """-t, as written: patterns for pg_dump, names for pg_restore."""
    schemas: tuple[str, ...] = ()
    selected: bool = False
    """A part of the database or of the archive only (-t, -n, -T, -N, --section, --filter, -L, ...)."""
    schema_only: bool = False
    data_only: bool = False
    clean: bool = False
    create: bool = False
    exit_on_error: bool = False
    single_transaction: bool = False
    transaction_size: int | None = None
    commands: int = 0
    """psql -c."""
    snapshot: bool = False
    disable_triggers: bool = False
    unknown: tuple[str, ...] = ()
    """Options nobody here knows, of another version: what stands behind them may be misunderstood."""


def parse_arguments(kind: str, words: Sequence[str]) -> Arguments:
    """The arguments of a program (`words` begins with its own name); of a program not known here nothing is told.

    >>> got = parse_arguments("pg_dump", ["pg_dump", "-Fd", "-vj4", "--comp=zstd:3", "-f", "out", "shop"])
    >>> got.format, got.jobs, got.compression, got.output, got.database, got.verbose
    ('directory', 4, 'zstd:3', 'out', 'shop', 1)
    """
    if kind not in SHORT:
        return Arguments()
    read = read_words(kind, words)
    place = _place(kind, read)
    return Arguments(
        format=_format(kind, read),
        jobs=_number(read.value("j", "jobs", "table-jobs")),
        compression=_compression(kind, read),
        database=place.get("dbname") or None,
        host=place.get("host") or None,
        port=place.get("port") or None,
        user=place.get("user") or None,
        service=place.get("service") or None,
        output=_output(kind, read),
        input=_input(kind, read),
        to_database=kind == "pg_restore" and read.given("d"),
        lists=read.given("l") and kind in ("pg_restore", "psql"),
        use_list=read.value("L") if kind == "pg_restore" else None,
        verbose=len(read.values("v")) if kind != "psql" else 0,
        tables=read.values("t") + read.values("table-and-children") if kind not in ("psql", "pg_dumpall") else (),
        schemas=read.values("S" if kind == "reindexdb" else "n") if kind not in ("psql", "pg_basebackup") else (),
        selected=_selected(kind, read),
        schema_only=read.given("s", "no-data") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        data_only=read.given("a", "no-schema") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        clean=read.given("c") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        create=read.given("C") and kind in ("pg_dump", "pg_restore"),
        exit_on_error=kind == "pg_restore" and read.given("e", "1", "transaction-size"),
        single_transaction=read.given("1"),
        transaction_size=_number(read.value("transaction-size")),
        commands=len(read.values("c")) if kind == "psql" else 0,
        snapshot=read.given("snapshot"),
        disable_triggers=read.given("disable-triggers"),
        unknown=tuple(read.unknown),
    )


def _quoted(word: str) -> str:
    """As a shell reads it back, and as a person would write it.

    >>> print(_quoted("-Fd"), _quoted("dbname='shop'"), _quoted("a b"))
    -Fd "dbname='shop'" 'a b'
    """
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def command_text(kind: str, words: Sequence[str]) -> str:
    """The command as it may be shown: quoted for a shell, secrets masked, harmless, at most COMMAND_LIMIT long.

    >>> command_text("psql", ["psql", "-v", "pw=s3cret", "-d", "host=h password=x", "-W", "oops"])
    "psql -v 'pw=********' -d 'host=h password=********' -W '********'"
    """
    if kind in SHORT:
        shown = read_words(kind, words).shown
    else:
        shown = [without_secrets(word) for word in words]
    cut = [word if len(word) <= _WORD_LIMIT else word[: _WORD_LIMIT - 1] + "…" for word in shown]
    text = clean(" ".join(map(_quoted, cut)))
    return text if len(text) <= COMMAND_LIMIT else text[: COMMAND_LIMIT - 1] + "…"


def _place(kind: str, read: Read) -> dict[str, str]:
    """Where it connects to: options of their own win over what stands in a connection string, as in the programs."""
    name = read.value("maintenance-db") if read.given("a") and kind.endswith("db") else None
    name = name or read.value("target", "source") if kind == "pgcopydb" else name or read.value("d")
    if name is None and kind in ("pg_dump", "psql", "vacuumdb", "reindexdb", "clusterdb") and read.operands:
        name = read.operands[0][0]
    place: dict[str, str] = {}
    if name:
        parsed = parse_connection(name)
        place = {"dbname": name} if parsed is None else parsed
    given = {"host": read.value("h"), "port": read.value("p"), "user": read.value("U")}
    if kind == "psql" and len(read.operands) > (0 if read.given("d") else 1):
        given["user"] = given["user"] or read.operands[-1][0]
    place |= {key: value for key, value in given.items() if value}
    if kind == "pg_basebackup":
        place.pop("dbname", None)
    return {key: clean(value) for key, value in place.items()}


def _format(kind: str, read: Read) -> str | None:
    if kind not in ("pg_dump", "pg_restore", "pg_basebackup", "pg_dumpall"):
        return None
    told = (read.value("F") or "").lower()[:1]
    if kind == "pg_basebackup":
        return "tar" if told == "t" else "plain"
    return _FORMATS.get(told) if told or kind == "pg_restore" else "plain"


def _compression(kind: str, read: Read) -> str | None:
    """`-Z 5` is gzip:5, `-Z 0` none, `-Z zstd:3` as told; else what a dump does untold (pg_dump.c, main)."""
    if kind not in ("pg_dump", "pg_basebackup"):
        return None
    told = read.value("Z")
    if told is None:
        if kind == "pg_basebackup":
            return "gzip" if read.given("z") else "none"
        return "gzip" if _format(kind, read) in ("custom", "directory") else "none"
    told = told.removeprefix("client-").removeprefix("server-").lower()
    if (level := _number(told)) is not None:
        return "none" if level == 0 else f"gzip:{level}"
    method, _, detail = told.partition(":")
    if method not in _METHODS:
        return None
    return f"{method}:{clean(detail)[:40]}" if detail else method


def _output(kind: str, read: Read) -> str | None:
    if kind == "pg_basebackup":
        return read.value("D")
    if kind == "pgcopydb":
        return read.value("dir")
    if kind in ("pg_dump", "pg_dumpall", "pg_restore"):
        told = read.value("f")
        return None if told == "-" else told
    return None


def _input(kind: str, read: Read) -> str | None:
    told = None
    if kind == "pg_restore" and read.operands:
        told = read.operands[0][0]
    elif kind == "psql":
        told = read.value("f")
    return None if told == "-" else told


_SELECTING = {
    "pg_dump": ("t", "T", "n", "N", "e", "section", "filter", "exclude-table-data", "table-and-children",
                "exclude-table-and-children", "exclude-table-data-and-children", "exclude-extension", "a", "s",
                "no-data", "no-schema", "statistics-only"),
    "pg_restore": ("t", "T", "n", "N", "I", "P", "L", "section", "filter", "a", "s", "no-data", "no-schema",
                   "statistics-only"),
    "vacuumdb": ("t", "n", "N"),
    "reindexdb": ("t", "S", "i", "s"),
    "clusterdb": ("t",),
}  # fmt: skip


def _selected(kind: str, read: Read) -> bool:
    return read.given(*_SELECTING.get(kind, ()))


def _number(text: str | None) -> int | None:
    """
    >>> _number("8"), _number("²"), _number("9" * 5000), _number("-1")
    (8, None, None, None)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 7 else None
