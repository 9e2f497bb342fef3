"""Parse the command-line arguments of pg_dump, pg_restore, psql and similar programs, and mask secrets. Pure functions.

Defaults from the environment of the process (PGDATABASE, PGHOST) are private and not read: a value that is not in the
arguments is None.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from getopt import GetoptError, getopt
from urllib.parse import unquote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from dba_console.core.redact import MASK, is_secret_name, redact
from dba_console.core.sanitize import clean

# Options of PostgreSQL's programs, versions 13 to 18: which take a value, and which letter each long name has.
#
# From the getopt_long call of each program. Letters as in getopt, a colon after one that takes a value. Long names:
# `name=X` has the letter X, `name:` takes a value and has no letter, `name` has neither.

_CONNECTION = "host=h port=p username=U no-password=w password=W"

SHORT_OPTIONS = {
    "pg_dump": "abBcCd:e:E:f:F:h:j:n:N:oOp:RsS:t:T:U:vwWxXZ:",
    "pg_dumpall": "acd:E:f:F:gh:l:oOp:rsS:tU:vwWx",
    "pg_restore": "acCd:ef:F:h:I:j:lL:n:N:Op:P:RsS:t:T:U:vwWxX:1",
    "psql": "aAbc:d:eEf:F:h:HlL:no:p:P:qR:sStT:U:v:VwWxXz01",
    "pg_basebackup": "c:Cd:D:F:h:i:l:nNp:PRr:s:S:t:T:U:vwWX:zZ:",
    "vacuumdb": "ad:efFh:j:n:N:p:P:qt:U:vwWzZ",
    "reindexdb": "ad:eh:i:j:p:qsS:t:U:vwW",
    "clusterdb": "ad:eh:p:qt:U:vwW",
    "pgcopydb": "",
}

_DUMP = (
    f"{_CONNECTION} data-only=a schema-only=s superuser=S no-owner=O no-privileges=x no-acl=x verbose=v file=f"
    " format=F jobs=j binary-upgrade disable-dollar-quoting disable-triggers enable-row-security if-exists"
    " no-tablespaces no-table-access-method no-comments no-publications no-security-labels no-subscriptions no-sync"
    " role: section: strict-names use-set-session-authorization filter: no-data no-schema no-statistics no-policies"
    " statistics statistics-only restrict-key: quote-all-identifiers lock-wait-timeout: attribute-inserts"
    " column-inserts inserts rows-per-insert: on-conflict-do-nothing extra-float-digits: load-via-partition-root"
    " no-toast-compression no-unlogged-table-data sequence-data exclude-database:"
)

LONG_OPTIONS = {
    "pg_dump": f"{_DUMP} blobs=b large-objects=b no-blobs=B no-large-objects=B clean=c create=C dbname=d extension=e"
    " schema=n exclude-schema=N no-reconnect=R table=t exclude-table=T compress=Z encoding=E exclude-table-data:"
    " exclude-extension: table-and-children: exclude-table-and-children: exclude-table-data-and-children:"
    " include-foreign-data: serializable-deferrable snapshot: no-synchronized-snapshots sync-method:",
    "pg_dumpall": f"{_DUMP} encoding=E clean=c dbname=d globals-only=g database=l roles-only=r tablespaces-only=t"
    " no-role-passwords",
    "pg_restore": f"{_DUMP} clean=c create=C dbname=d exit-on-error=e index=I list=l use-list=L schema=n"
    " exclude-schema=N function=P no-reconnect=R table=t trigger=T single-transaction=1 transaction-size:"
    " no-data-for-failed-tables",
    "psql": f"{_CONNECTION} echo-all=a no-align=A command=c dbname=d echo-queries=e echo-errors=b echo-hidden=E file=f"
    " field-separator=F field-separator-zero=z html=H list=l log-file=L no-readline=n single-transaction=1 output=o"
    " pset=P quiet=q record-separator=R record-separator-zero=0 single-step=s single-line=S tuples-only=t table-attr=T"
    " set=v variable=v version=V expanded=x no-psqlrc=X csv",
    "pg_basebackup": f"{_CONNECTION} checkpoint=c create-slot=C dbname=d pgdata=D format=F incremental=i label=l"
    " no-clean=n no-sync=N progress=P write-recovery-conf=R max-rate=r status-interval=s slot=S target=t"
    " tablespace-mapping=T verbose=v wal-method=X gzip=z compress=Z waldir: no-slot no-verify-checksums"
    " no-estimate-size no-manifest manifest-force-encode manifest-checksums: sync-method:",
    "vacuumdb": f"{_CONNECTION} all=a dbname=d echo=e full=f freeze=F jobs=j schema=n exclude-schema=N parallel=P"
    " quiet=q table=t verbose=v analyze=z analyze-only=Z analyze-in-stages disable-page-skipping skip-locked"
    " min-xid-age: min-mxid-age: no-index-cleanup force-index-cleanup no-truncate no-process-main no-process-toast"
    " buffer-usage-limit: missing-stats-only maintenance-db:",
    "reindexdb": f"{_CONNECTION} all=a dbname=d echo=e index=i jobs=j quiet=q system=s schema=S table=t verbose=v"
    " concurrently maintenance-db: tablespace:",
    "clusterdb": f"{_CONNECTION} all=a dbname=d echo=e quiet=q table=t verbose=v maintenance-db:",
    "pgcopydb": "source: target: dir: snapshot: jobs: table-jobs: index-jobs: restore-jobs: large-objects-jobs:"
    " split-tables-larger-than: split-max-parts: filters: filter: requirements: plugin: slot-name: origin: endpos:"
    " drop-if-exists roles no-owner no-acl no-comments no-tablespaces skip-large-objects skip-extensions skip-vacuum"
    " skip-analyze skip-collations skip-db-properties skip-split-by-ctid estimate-table-sizes restart resume"
    " not-consistent follow verbose debug trace quiet json",
}


# Connection strings in arguments, without passwords.
#
# libpq parses them. Masking does not depend on that: if a password may be malformed, more text is masked than libpq
# would parse as the password, because no part of one may be stored.

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEMES = ("postgresql://", "postgres://")
_KEY = re.compile(r"(?<![^\s=])([^\s=]+)\s*=\s*", re.ASCII)
_VALUE = re.compile(
    r"""(?: '(?:[^'\\]|\\.)*' | (?!')(?:[^\s\\]|\\.)* )  # quoted or not
        (?= \s*\Z | \s+[^\s=]+\s*= )                     # then nothing, or the next keyword""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
"""A well-formed value."""

MAX_LENGTH = 8192
"""Maximum characters of an argument that is searched for secrets."""


def connection_database(text: str) -> str | None:
    """Return the database of a connection string, None if it names none; else the text, which is a database name.

    Secrets are masked first: libpq may parse a part of a malformed password as another value.

    >>> connection_database("postgresql://app:s3cret@db1:5433/a%20b"), connection_database("shop")
    ('a b', 'shop')
    >>> connection_database("host=db1 password='it s'"), connection_database("dbname=shop keyword=x")
    (None, None)
    """
    if "=" not in text and not text.startswith(_SCHEMES):
        return text
    try:
        found = conninfo_to_dict(without_secrets(text)).get("dbname")
    except (ProgrammingError, ValueError):  # the program cannot connect with it either
        return None
    return None if found is None else str(found)


def without_secrets(word: str) -> str:
    """Mask every password in a connection string, and every other known form of a password.

    >>> without_secrets("host=db password='a b' user=u"), without_secrets("--dbname=postgres://u:p/w@d@h/x")
    ('host=db password=******** user=u', '--dbname=postgres://u:********@h/x')

    An argument longer than MAX_LENGTH is masked completely.
    """
    if len(word) > MAX_LENGTH:
        return MASK
    if "=" not in word and "://" not in word:
        return redact(word)
    if (scheme := _URI.search(word)) is not None:
        return redact(_masked_uri(word, scheme.end()))
    return redact(_masked_pairs(word))


def _masked_uri(word: str, begin: int) -> str:
    """Mask a URI; userinfo extends to the last `@`, even if libpq would end it earlier."""
    user, at, place = word[begin:].rpartition("@")
    if at:
        name, colon, secret = user.partition(":")
        user = f"{name}:{MASK}" if colon and secret else name + colon
    head, question, query = place.partition("?")
    pairs = [_masked_pair(pair) for pair in query.split("&")] if question else []
    return word[:begin] + user + at + head + question + "&".join(pairs)


def _masked_pair(pair: str) -> str:
    key, equals, _ = pair.partition("=")
    return f"{key}={MASK}" if equals and is_secret_name(unquote(key)) else pair


def _masked_pairs(word: str) -> str:
    """Mask the value of every secret keyword; everything after the keyword if its value is malformed."""
    shown, at = "", 0
    while (key := _KEY.search(word, at)) is not None:
        shown, at = shown + word[at : key.end()], key.end()
        if is_secret_name(key[1]):
            value = _VALUE.match(word, at)
            shown, at = shown + MASK, len(word) if value is None else value.end()
    return shown + word[at:]


# Parse arguments as getopt_long does, and mask every secret for display.

MAX_VALUES = 1000
"""Maximum values stored per option: a generated command line may name more tables."""
_OPEN_SETTINGS = frozenset(
    ("ON_ERROR_STOP", "ON_ERROR_ROLLBACK", "VERBOSITY", "SHOW_CONTEXT", "AUTOCOMMIT", "FETCH_COUNT", "ECHO", "QUIET")
)
"""psql's own variables; any other variable may contain a password."""


@dataclass(slots=True)
class ParsedWords:
    """Options in order as letters or long names, operands, and the masked words."""

    options: list[tuple[str, str]] = field(default_factory=list)
    operands: list[tuple[str, int]] = field(default_factory=list)
    """With their positions in `masked`."""
    masked: list[str] = field(default_factory=list)
    """The words for display."""

    def value(self, *names: str) -> str | None:
        """Return the last value of an option, which is the effective one."""
        return next((value for name, value in reversed(self.options) if name in names), None)

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options[: 4 * MAX_VALUES] if key == name)[:MAX_VALUES]

    def given(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


@cache
def _long_options(kind: str) -> tuple[list[str], dict[str, str]]:
    """Return the long names for getopt, `=` after one that takes a value, and the letters they stand for."""
    names, letters = [], {}
    for word in LONG_OPTIONS[kind].split():
        name, _, letter = word.partition("=")
        takes_value = f"{letter}:" in SHORT_OPTIONS[kind] if letter else name.endswith(":")
        names.append(name.rstrip(":") + "=" * takes_value)
        if letter:
            letters[name] = letter
    return names, letters


def parse_words(kind: str, words: Sequence[str]) -> ParsedWords:
    """Parse words as getopt_long does: options and operands in any order, up to `--`."""
    parsed = ParsedWords(masked=[posixpath.basename(word) for word in words[:1]])
    left = list(words[:0:-1])
    maybe_secret = False
    while left:
        word = left.pop()
        if word == "--":
            parsed.masked.append(word)
            for operand in reversed(left):
                _add_operand(parsed, operand, maybe_secret=False)
            break
        if word.startswith("-") and word != "-":
            maybe_secret = _parse_option(kind, parsed, word, left)
        else:
            _add_operand(parsed, word, maybe_secret=maybe_secret)
            maybe_secret = False
    _mask_surplus(kind, parsed)
    return parsed


def _parse_option(kind: str, parsed: ParsedWords, word: str, left: list[str]) -> bool:
    """Parse one word of options and the value it may take from the next word. Return True if the next word may be a
    secret, or the value of an unknown option.

    getopt parses one word at a time, because it accepts no unknown options and does not return positions.
    """
    names, letters = _long_options(kind)
    maybe_secret, shown = False, word
    try:
        options, unread = getopt([word, ""], SHORT_OPTIONS[kind], names)
    except GetoptError as error:
        before = "-" if word.startswith("--") else word[: word.index(error.opt, 1)]
        options, unread = getopt([before, ""], SHORT_OPTIONS[kind])
        maybe_secret, shown = word.endswith(error.opt), without_secrets(word)
    if ("-W", "") in options:
        # Users mistakenly write their password after it, where getopt parses letters.
        options, unread = options[: options.index(("-W", "")) + 1], [""]
        shown = word if word.endswith("W") else word.partition("W")[0] + "W" + MASK
    for name, value in options:
        key = letters.get(name.lstrip("-"), name.lstrip("-"))
        maybe_secret = maybe_secret or key == "W"
        if value:
            shown = word.removesuffix(value) + _masked_value(kind, key, value)
        parsed.options.append((key, value))
    parsed.masked.append(shown)
    if not unread:
        _take_value(parsed, kind, left)
    return maybe_secret


def _take_value(parsed: ParsedWords, kind: str, left: list[str]) -> None:
    """Take the next word as the value of the last option."""
    key, value = parsed.options.pop()[0], left.pop() if left else ""
    parsed.options.append((key, value))
    parsed.masked.append(_masked_value(kind, key, value))


def _add_operand(parsed: ParsedWords, word: str, *, maybe_secret: bool) -> None:
    """Add an operand. `maybe_secret`: it follows -W or an unknown option, and may be a secret or an option value."""
    if maybe_secret:
        parsed.masked.append(MASK)
        return
    parsed.operands.append((word, len(parsed.masked)))
    parsed.masked.append(without_secrets(word))


def _mask_surplus(kind: str, parsed: ParsedWords) -> None:
    """Mask surplus operands: psql ignores them, so a password there may stay visible for hours."""
    most = {"psql": 2, "pgcopydb": 2, "pg_dumpall": 0, "pg_basebackup": 0}.get(kind, 1)
    if kind not in ("pg_restore", "pgcopydb"):
        most -= parsed.given("d")
    if kind == "psql":
        most -= parsed.given("U")
    for _, position in parsed.operands[max(0, most) :]:
        parsed.masked[position] = MASK
    del parsed.operands[max(0, most) :]


def _masked_value(kind: str, key: str, value: str) -> str:
    if kind == "psql" and key == "v":
        name, equals, _ = value.partition("=")
        return value if name in _OPEN_SETTINGS or not equals else f"{name}={MASK}"
    return without_secrets(value)


COMMAND_LIMIT = 1000
"""Maximum characters shown of a command line."""
_WORD_LIMIT = 300
_FORMATS = {"c": "custom", "d": "directory", "t": "tar", "p": "plain", "a": "plain"}
"""By the first letter; `a` is used by pg_dumpall for its pg_dump processes, which append to one script."""
_METHODS = ("gzip", "lz4", "zstd", "none")


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """The options of the program. None: not given."""

    format: str | None = None
    """directory, custom, tar, plain; for pg_restore only if given."""
    jobs: int | None = None
    compression: str | None = None
    """gzip, lz4, zstd, none: with level or detail after a colon, if given."""
    database: str | None = None
    output: str | None = None
    """-f of a dump, -D of pg_basebackup, --dir of pgcopydb: as given, relative to the program's directory."""
    input: str | None = None
    """The archive of pg_restore, or -f of psql; None: standard input."""
    to_database: bool = False
    """pg_restore -d: without it pg_restore writes a script."""
    lists: bool = False
    """pg_restore -l: list only."""
    use_list: str | None = None
    """pg_restore -L: restore only the entries in this file."""
    verbose: int = 0
    tables: tuple[str, ...] = ()
    """-t, as given: patterns for pg_dump, names for pg_restore."""
    schemas: tuple[str, ...] = ()
    selected: bool = False
    """Only a part of the database or archive (-t, -n, -T, -N, --section, --filter, -L, ...)."""
    schema_only: bool = False
    data_only: bool = False
    clean: bool = False


def parse_arguments(kind: str, words: Sequence[str]) -> ProgramArguments:
    """Parse the arguments of a program (`words` starts with its name); an unknown program gives no values.

    >>> got = parse_arguments("pg_dump", ["pg_dump", "-Fd", "-vj4", "--comp=zstd:3", "-f", "out", "shop"])
    >>> got.format, got.jobs, got.compression, got.output, got.database, got.verbose
    ('directory', 4, 'zstd:3', 'out', 'shop', 1)
    """
    if kind not in SHORT_OPTIONS:
        return ProgramArguments()
    parsed = parse_words(kind, words)
    return ProgramArguments(
        format=_format(kind, parsed),
        jobs=_number(parsed.value("j", "jobs", "table-jobs")),
        compression=_compression(kind, parsed),
        database=_database(kind, parsed),
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
    )


def _quote(word: str) -> str:
    """Quote a word for the shell, readably.

    >>> print(_quote("-Fd"), _quote("dbname='shop'"), _quote("a b"))
    -Fd "dbname='shop'" 'a b'
    """
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def command_text(kind: str, words: Sequence[str]) -> str:
    """Return the command for display: quoted for a shell, secrets masked, sanitized, at most COMMAND_LIMIT long.

    >>> command_text("psql", ["psql", "-v", "pw=s3cret", "-d", "host=h password=x", "-W", "oops"])
    "psql -v 'pw=********' -d 'host=h password=********' -W '********'"
    """
    if kind in SHORT_OPTIONS:
        shown = parse_words(kind, words).masked
    else:
        shown = [without_secrets(word) for word in words]
    cut = [word if len(word) <= _WORD_LIMIT else word[: _WORD_LIMIT - 1] + "…" for word in shown]
    text = clean(redact(" ".join(map(_quote, cut))))
    return text if len(text) <= COMMAND_LIMIT else text[: COMMAND_LIMIT - 1] + "…"


def _database(kind: str, parsed: ParsedWords) -> str | None:
    """Return the database it connects to. A base backup contains all of them."""
    name = parsed.value("maintenance-db") if parsed.given("a") and kind.endswith("db") else None
    name = name or parsed.value("target", "source") if kind == "pgcopydb" else name or parsed.value("d")
    if name is None and kind in ("pg_dump", "psql", "vacuumdb", "reindexdb", "clusterdb") and parsed.operands:
        name = parsed.operands[0][0]
    if not name or kind == "pg_basebackup":
        return None
    return clean(connection_database(name) or "") or None


def _format(kind: str, parsed: ParsedWords) -> str | None:
    if kind not in ("pg_dump", "pg_restore", "pg_basebackup", "pg_dumpall"):
        return None
    value = (parsed.value("F") or "").lower()[:1]
    if kind == "pg_basebackup":
        return "tar" if value == "t" else "plain"
    return _FORMATS.get(value) if value or kind == "pg_restore" else "plain"


def _compression(kind: str, parsed: ParsedWords) -> str | None:
    """Return the compression: `-Z 5` is gzip:5, `-Z 0` none, `-Z zstd:3` as given; default: pg_dump.c, main."""
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
