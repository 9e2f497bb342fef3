"""What the arguments of a dump, a restore or the like say, understood as its program understands them. Pure.

Defaults come from the environment of the process (PGDATABASE, PGHOST), which is nobody's business: what is not given
among the arguments is None.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.probes.jobs.connection_strings import parse_connection, without_secrets
from dba_console.probes.jobs.getopt_parser import ParsedWords, parse_words
from dba_console.probes.jobs.option_tables import SHORT_OPTIONS
from dba_console.sanitize import clean

COMMAND_LIMIT = 1000
"""Characters of a command line that are told."""
_WORD_LIMIT = 300
_FORMATS = {"c": "custom", "d": "directory", "t": "tar", "p": "plain", "a": "plain"}
"""By the first letter; `a` is what pg_dumpall gives its pg_dumps, which append to one script."""
_METHODS = ("gzip", "lz4", "zstd", "none")


@dataclass(frozen=True, slots=True)
class ProgramArguments:
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


def parse_arguments(kind: str, words: Sequence[str]) -> ProgramArguments:
    """The arguments of a program (`words` begins with its own name); of a program not known here nothing is told.

    >>> got = parse_arguments("pg_dump", ["pg_dump", "-Fd", "-vj4", "--comp=zstd:3", "-f", "out", "shop"])
    >>> got.format, got.jobs, got.compression, got.output, got.database, got.verbose
    ('directory', 4, 'zstd:3', 'out', 'shop', 1)
    """
    if kind not in SHORT_OPTIONS:
        return ProgramArguments()
    parsed = parse_words(kind, words)
    place = _connection(kind, parsed)
    return ProgramArguments(
        format=_format(kind, parsed),
        jobs=_number(parsed.value("j", "jobs", "table-jobs")),
        compression=_compression(kind, parsed),
        database=place.get("dbname") or None,
        host=place.get("host") or None,
        port=place.get("port") or None,
        user=place.get("user") or None,
        service=place.get("service") or None,
        output=_output(kind, parsed),
        input=_input(kind, parsed),
        to_database=kind == "pg_restore" and parsed.given("d"),
        lists=parsed.given("l") and kind in ("pg_restore", "psql"),
        use_list=parsed.value("L") if kind == "pg_restore" else None,
        verbose=len(parsed.values("v")) if kind != "psql" else 0,
        tables=parsed.values("t") + parsed.values("table-and-children") if kind not in ("psql", "pg_dumpall") else (),
        schemas=parsed.values("S" if kind == "reindexdb" else "n") if kind not in ("psql", "pg_basebackup") else (),
        selected=_selected(kind, parsed),
        schema_only=parsed.given("s", "no-data") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        data_only=parsed.given("a", "no-schema") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        clean=parsed.given("c") and kind in ("pg_dump", "pg_restore", "pg_dumpall"),
        create=parsed.given("C") and kind in ("pg_dump", "pg_restore"),
        exit_on_error=kind == "pg_restore" and parsed.given("e", "1", "transaction-size"),
        single_transaction=parsed.given("1"),
        transaction_size=_number(parsed.value("transaction-size")),
        commands=len(parsed.values("c")) if kind == "psql" else 0,
        snapshot=parsed.given("snapshot"),
        disable_triggers=parsed.given("disable-triggers"),
        unknown=tuple(parsed.unknown),
    )


def _quote(word: str) -> str:
    """As a shell reads it back, and as a person would write it.

    >>> print(_quote("-Fd"), _quote("dbname='shop'"), _quote("a b"))
    -Fd "dbname='shop'" 'a b'
    """
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def command_text(kind: str, words: Sequence[str]) -> str:
    """The command as it may be shown: quoted for a shell, secrets masked, harmless, at most COMMAND_LIMIT long.

    >>> command_text("psql", ["psql", "-v", "pw=s3cret", "-d", "host=h password=x", "-W", "oops"])
    "psql -v 'pw=********' -d 'host=h password=********' -W '********'"
    """
    if kind in SHORT_OPTIONS:
        shown = parse_words(kind, words).masked
    else:
        shown = [without_secrets(word) for word in words]
    cut = [word if len(word) <= _WORD_LIMIT else word[: _WORD_LIMIT - 1] + "…" for word in shown]
    text = clean(" ".join(map(_quote, cut)))
    return text if len(text) <= COMMAND_LIMIT else text[: COMMAND_LIMIT - 1] + "…"


def _connection(kind: str, parsed: ParsedWords) -> dict[str, str]:
    """Where it connects to: options of their own win over what stands in a connection string, as in the programs."""
    name = parsed.value("maintenance-db") if parsed.given("a") and kind.endswith("db") else None
    name = name or parsed.value("target", "source") if kind == "pgcopydb" else name or parsed.value("d")
    if name is None and kind in ("pg_dump", "psql", "vacuumdb", "reindexdb", "clusterdb") and parsed.operands:
        name = parsed.operands[0][0]
    place: dict[str, str] = {}
    if name:
        keywords = parse_connection(name)
        place = {"dbname": name} if keywords is None else keywords
    given = {"host": parsed.value("h"), "port": parsed.value("p"), "user": parsed.value("U")}
    if kind == "psql" and len(parsed.operands) > (0 if parsed.given("d") else 1):
        given["user"] = given["user"] or parsed.operands[-1][0]
    place |= {key: value for key, value in given.items() if value}
    if kind == "pg_basebackup":
        place.pop("dbname", None)
    return {key: clean(value) for key, value in place.items()}


def _format(kind: str, parsed: ParsedWords) -> str | None:
    if kind not in ("pg_dump", "pg_restore", "pg_basebackup", "pg_dumpall"):
        return None
    value = (parsed.value("F") or "").lower()[:1]
    if kind == "pg_basebackup":
        return "tar" if value == "t" else "plain"
    return _FORMATS.get(value) if value or kind == "pg_restore" else "plain"


def _compression(kind: str, parsed: ParsedWords) -> str | None:
    """`-Z 5` is gzip:5, `-Z 0` none, `-Z zstd:3` as told; else what a dump does untold (pg_dump.c, main)."""
    if kind not in ("pg_dump", "pg_basebackup"):
        return None
    value = parsed.value("Z")
    if value is None:
        if kind == "pg_basebackup":
            return "gzip" if parsed.given("z") else "none"
        return "gzip" if _format(kind, parsed) in ("custom", "directory") else "none"
    value = value.removeprefix("client-").removeprefix("server-").lower()
    if (level := _number(value)) is not None:
        return "none" if level == 0 else f"gzip:{level}"
    method, _, detail = value.partition(":")
    if method not in _METHODS:
        return None
    return f"{method}:{clean(detail)[:40]}" if detail else method


def _output(kind: str, parsed: ParsedWords) -> str | None:
    if kind == "pg_basebackup":
        return parsed.value("D")
    if kind == "pgcopydb":
        return parsed.value("dir")
    if kind in ("pg_dump", "pg_dumpall", "pg_restore"):
        path = parsed.value("f")
        return None if path == "-" else path
    return None


def _input(kind: str, parsed: ParsedWords) -> str | None:
    path = None
    if kind == "pg_restore" and parsed.operands:
        path = parsed.operands[0][0]
    elif kind == "psql":
        path = parsed.value("f")
    return None if path == "-" else path


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


def _selected(kind: str, parsed: ParsedWords) -> bool:
    return parsed.given(*_SELECTING.get(kind, ()))


def _number(text: str | None) -> int | None:
    """
    >>> _number("8"), _number("²"), _number("9" * 5000), _number("-1")
    (8, None, None, None)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 7 else None
