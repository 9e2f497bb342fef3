"""What the arguments of a dump, a restore or the like say, understood as its program understands them. Pure.

Defaults come from the environment of the process (PGDATABASE, PGHOST), which is nobody's business: what is not given
among the arguments is None.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from dba_console.harmless import clean
from dba_console.probes.jobs.connstring import parse_connection, without_secrets
from dba_console.probes.jobs.optstrings import LONG, SHORT
from dba_console.redact import MASK

COMMAND_LIMIT = 1000
"""Characters of a command line that are told."""
_WORD_LIMIT = 300
_TABLES = 1000
"""Names of tables that are kept; a generated command line may list more."""
_FORMATS = {"c": "custom", "d": "directory", "t": "tar", "p": "plain", "a": "plain"}
"""By the first letter; `a` is what pg_dumpall gives its pg_dumps, which append to one script."""
_METHODS = ("gzip", "lz4", "zstd", "none")
_OPEN_SETTINGS = frozenset(
    ("ON_ERROR_STOP", "ON_ERROR_ROLLBACK", "VERBOSITY", "SHOW_CONTEXT", "AUTOCOMMIT", "FETCH_COUNT", "ECHO", "QUIET")
)
"""Variables of psql's own; any other may be a script's password."""


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


@dataclass(slots=True)
class _Read:
    """Options in their order as letters or long names, operands, and which word holds what."""

    options: list[tuple[str, str]] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The words as they may be shown."""

    def value(self, *names: str) -> str | None:
        """The last value given, as getopt loops leave it."""
        return next((value for name, value in reversed(self.options) if name in names), None)

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options[: 4 * _TABLES] if key == name)[:_TABLES]

    def given(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


def parse_arguments(kind: str, words: Sequence[str]) -> Arguments:
    """The arguments of a program (`words` begins with its own name); of a program not known here nothing is told.

    >>> got = parse_arguments("pg_dump", ["pg_dump", "-Fd", "-vj4", "--comp=zstd:3", "-f", "out", "shop"])
    >>> got.format, got.jobs, got.compression, got.output, got.database, got.verbose
    ('directory', 4, 'zstd:3', 'out', 'shop', 1)
    """
    if kind not in SHORT:
        return Arguments()
    read = _read(kind, words)
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


def command_text(kind: str, words: Sequence[str]) -> str:
    """The command as it may be shown: quoted for a shell, secrets masked, harmless, at most COMMAND_LIMIT long.

    >>> command_text("psql", ["psql", "-v", "pw=s3cret", "-d", "host=h password=x", "-W", "oops"])
    "psql -v 'pw=********' -d 'host=h password=********' -W '********'"
    """
    if kind in SHORT:
        shown = _read(kind, words).shown
    else:
        shown = [without_secrets(word) for word in words]
    cut = [word if len(word) <= _WORD_LIMIT else word[: _WORD_LIMIT - 1] + "…" for word in shown]
    text = clean(" ".join(shlex.quote(word) for word in cut))
    return text if len(text) <= COMMAND_LIMIT else text[: COMMAND_LIMIT - 1] + "…"


@cache
def _letters(kind: str) -> dict[str, bool]:
    """Letter -> whether it takes a value."""
    text = SHORT[kind]
    return {sign: text[at + 1 : at + 2] == ":" for at, sign in enumerate(text) if sign != ":"}


@cache
def _longs(kind: str) -> dict[str, tuple[str, bool]]:
    """Long name -> the letter or name it is read as, and whether it takes a value."""
    found, letters = {}, _letters(kind)
    for word in LONG[kind].split():
        name, _, letter = word.partition("=")
        if letter:
            found[name] = letter, letters.get(letter, False)
        else:
            found[name.rstrip(":")] = name.rstrip(":"), name.endswith(":")
    return found


def _read(kind: str, words: Sequence[str]) -> _Read:
    """As getopt_long reads it: options and operands in any order, up to `--`."""
    read = _Read(shown=[posixpath.basename(word) for word in words[:1]])
    left = list(words[:0:-1])
    doubtful = False
    while left:
        word = left.pop()
        if word == "--":
            read.shown.append(word)
            for operand in reversed(left):
                _operand(kind, read, operand, doubtful=False)
            break
        if word.startswith("--"):
            doubtful = _long(kind, read, word, left)
        elif word.startswith("-") and word != "-":
            doubtful = _cluster(kind, read, word, left)
        else:
            _operand(kind, read, word, doubtful=doubtful)
            doubtful = False
    return read


def _long(kind: str, read: _Read, word: str, left: list[str]) -> bool:
    """One long option, perhaps abbreviated. True: an operand that follows may be no operand."""
    name, equals, value = word[2:].partition("=")
    known = _longs(kind)
    fitting = [name] if name in known else [one for one in known if one.startswith(name)]
    meanings = {known[one] for one in fitting}
    if len(meanings) != 1:
        read.unknown.append(without_secrets(f"--{name}"))
        read.shown.append(without_secrets(word))
        return not equals
    [(key, takes)] = meanings
    if takes and not equals:
        read.shown.append(f"--{name}")
        _taken(read, kind, key, left)
        return False
    read.options.append((key, value))
    if equals:
        read.shown.append(f"--{name}={_shown_value(kind, key, value)}" if takes else f"--{name}={MASK}")
    else:
        read.shown.append(word)
    return key == "W"


def _cluster(kind: str, read: _Read, word: str, left: list[str]) -> bool:
    """Letters behind one dash: the first that takes a value takes the rest of the word, or the next one."""
    letters = _letters(kind)
    for at, letter in enumerate(word[1:], 1):
        rest = word[at + 1 :]
        if letter not in letters:
            read.unknown.append(f"-{letter}")
        elif letters[letter]:
            if rest:
                read.options.append((letter, rest))
                read.shown.append(word[: at + 1] + _shown_value(kind, letter, rest))
            else:
                read.shown.append(word)
                _taken(read, kind, letter, left)
            return False
        else:
            read.options.append((letter, ""))
            if letter == "W" and rest:
                # People write their password there; getopt reads it as letters.
                read.shown.append(word[: at + 1] + MASK)
                return True
    read.shown.append(word)
    return word.endswith("W") or word[-1] not in letters


def _taken(read: _Read, kind: str, key: str, left: list[str]) -> None:
    value = left.pop() if left else ""
    read.options.append((key, value))
    read.shown.append(_shown_value(kind, key, value))


def _operand(kind: str, read: _Read, word: str, *, doubtful: bool) -> None:
    """`doubtful`: it stands behind -W, or behind an option nobody knows, and may be a secret or that option's value."""
    if doubtful or len(read.operands) >= (2 if kind == "psql" else 1):
        read.shown.append(MASK)
        return
    read.operands.append(word)
    read.shown.append(without_secrets(word))


def _shown_value(kind: str, key: str, value: str) -> str:
    if kind == "psql" and key == "v":
        name, equals, _ = value.partition("=")
        return value if name in _OPEN_SETTINGS or not equals else f"{name}={MASK}"
    return without_secrets(value)


def _place(kind: str, read: _Read) -> dict[str, str]:
    """Where it connects to: options of their own win over what stands in a connection string, as in the programs."""
    name = read.value("maintenance-db") if read.given("a") and kind.endswith("db") else None
    name = name or read.value("target", "source") if kind == "pgcopydb" else name or read.value("d")
    if name is None and kind in ("pg_dump", "psql", "vacuumdb", "reindexdb", "clusterdb") and read.operands:
        name = read.operands[0]
    place: dict[str, str] = {}
    if name:
        parsed = parse_connection(name)
        place = {"dbname": name} if parsed is None else parsed
    given = {"host": read.value("h"), "port": read.value("p"), "user": read.value("U")}
    if kind == "psql" and len(read.operands) > (0 if read.given("d") else 1):
        given["user"] = given["user"] or read.operands[-1]
    place |= {key: value for key, value in given.items() if value}
    if kind == "pg_basebackup":
        place.pop("dbname", None)
    return {key: clean(value) for key, value in place.items()}


def _format(kind: str, read: _Read) -> str | None:
    if kind not in ("pg_dump", "pg_restore", "pg_basebackup", "pg_dumpall"):
        return None
    told = (read.value("F") or "").lower()[:1]
    if kind == "pg_basebackup":
        return "tar" if told == "t" else "plain"
    return _FORMATS.get(told) if told or kind == "pg_restore" else "plain"


def _compression(kind: str, read: _Read) -> str | None:
    """`-Z 5` is gzip:5, `-Z 0` none, `-Z zstd:3` as told; else what a dump does untold (pg_dump.c, main)."""
    if kind not in ("pg_dump", "pg_basebackup"):
        return None
    told = read.value("Z")
    if told is None:
        if kind == "pg_basebackup":
            return "gzip" if read.given("z") else "none"
        return "gzip" if _format(kind, read) in ("custom", "directory") else "none"
    told = told.removeprefix("client-").removeprefix("server-").lower()
    if told.isdigit():
        return "none" if int(told) == 0 else f"gzip:{int(told)}"
    method, _, detail = told.partition(":")
    if method not in _METHODS:
        return None
    return f"{method}:{clean(detail)[:40]}" if detail else method


def _output(kind: str, read: _Read) -> str | None:
    if kind == "pg_basebackup":
        return read.value("D")
    if kind == "pgcopydb":
        return read.value("dir")
    if kind in ("pg_dump", "pg_dumpall", "pg_restore"):
        told = read.value("f")
        return None if told == "-" else told
    return None


def _input(kind: str, read: _Read) -> str | None:
    told = None
    if kind == "pg_restore" and read.operands:
        told = read.operands[0]
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


def _selected(kind: str, read: _Read) -> bool:
    return read.given(*_SELECTING.get(kind, ()))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 8 else None
