"""Parse the messages of pg_dump, pg_restore, psql and similar programs: which object starts, ends, fails.

The programs write no timestamps or line numbers, and with -j several processes write to one stderr, so two messages may
share a line. English only (`LC_ALL=C`): a line in another language, or of a later version, is `other`. Knows the
messages of versions 13 to 18.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dba_console.jobs.archives.toc import DumpEntry

Kind = Literal["start", "done", "launch", "skip", "error", "errors_ignored", "phase", "other"]


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """One message. Its names are server text: clean() before they are shown."""

    kind: Kind
    """start: an object is started; launch: a worker or the leader is assigned to it; done: it, or psql's statement, is
    finished; skip: it is left out; phase: a new phase of the program; other: everything else, also the line that names
    the object of the next error (then `dump_id` is set)."""
    program: str | None = None
    dump_id: int | None = None
    desc: str | None = None
    """As in pg_restore -l."""
    schema: str | None = None
    """Up to the first dot; a name that itself contains dots is resolved with `name` and a plan."""
    tag: str = ""
    name: str = ""
    """As in the message: `schema.tag`, unquoted, its first line."""
    count: int | None = None
    """Rows of psql's COPY; number of ignored errors."""
    text: str = ""
    """The message without program and level."""


PROGRAMS = ("pg_dumpall", "pg_dump", "pg_restore", "psql", "vacuumdb", "reindexdb", "pg_basebackup")
_PREFIX = re.compile(rf"({'|'.join(PROGRAMS)}): ")
_LEVEL = re.compile(r"(error|fatal|warning|detail|hint): ")
_ITEM = re.compile(
    r"(launching|finished|processing missed|processing|skipping) item (\d+) ([A-Z][A-Z ]*[A-Z])(?: (.*))?$"
)
_CREATING = re.compile(r'(creating|dropping) ([A-Z][A-Z ]*[A-Z]) "?(.*?)"?$')
_DATA = re.compile(r'(?:processing data for|dumping contents of) table "(.*?)"?$')
_BLOBS = re.compile(r'(?:saving large objects|processing BLOBS)(?: "(.*?)"?)?$')
_EXECUTING = re.compile(r"executing (SEQUENCE SET|BLOB METADATA|BLOB|[A-Z]+ DATA) (.*)$")
_CONTEXT = re.compile(r"from TOC entry (\d+); \d+ \d+ ([A-Z][A-Z ]*[A-Z]) (.*)$")
_IGNORED = re.compile(r"errors ignored on restore: (\d+)$")
_VACUUMING = re.compile(r'(?:vacuuming|reindexing) (?:table|index) "(.*?)"?$')
_PHASE = re.compile(
    r"(?:entering|finished) main parallel loop$|connecting to (?:new )?database|last built-in OID|(?:reading|finding|"
    r"identifying|flagging|saving|allocating|implied data-only|initiating base backup|checkpoint completed|"
    r"write-ahead log (?:start|end) point|starting background|waiting for background|syncing data|renaming|"
    r"base backup completed|creating (?:missing )?(?:directory|temporary))\b"
)
_TORN_ERROR = re.compile(r"(?:error: )?(?=could not execute query: |COPY failed for table )")
_ANALYZING = re.compile(r'INFO:  analyzing "(.*?)"')
_PSQL_ERROR = re.compile(
    r"(?:psql:.*?:\d+: error: |(?:^|psql:.*?:\d+: )"
    r"(?:ERROR|FATAL|PANIC|FEHLER|PANIK|ERREUR|ERRORE|ERRO|FEL|HATA|BŁĄD|CHYBA|ОШИБКА|ПОМИЛКА|エラー|오류|"
    r"错误|錯誤):  )(.*)$"
)
"""psql's own error about a command in a script, or the server's. The severity is in the language of the server's
lc_messages, independent of psql's; only a superuser can change it. These are the words of PostgreSQL's translations."""
_TAG = re.compile(r"(COPY) (\d+)$|(CREATE (?:UNIQUE )?INDEX|ALTER TABLE|ANALYZE|REFRESH MATERIALIZED VIEW)$|"
                  r"((?:INSERT|UPDATE|DELETE|SELECT)(?: \d+){1,2}|SET|BEGIN|COMMIT|DO|COMMENT|GRANT|REVOKE|"
                  r"(?:CREATE|ALTER|DROP)(?: [A-Z]+){1,4})$")  # fmt: skip
_OF_TAG = {"COPY": "TABLE DATA", "CREATE INDEX": "INDEX", "REFRESH MATERIALIZED VIEW": "MATERIALIZED VIEW DATA"}
_NO_SCHEMA = frozenset({
    "SCHEMA", "EXTENSION", "DATABASE", "DATABASE PROPERTIES", "EVENT TRIGGER", "PROCEDURAL LANGUAGE", "CAST",
    "FOREIGN DATA WRAPPER", "SERVER", "USER MAPPING", "PUBLICATION", "SUBSCRIPTION", "ACCESS METHOD", "TRANSFORM",
    "BLOBS", "BLOB", "BLOB METADATA", "ENCODING", "STDSTRINGS", "SEARCHPATH", "DEFAULT ACL", "TABLESPACE",
})  # fmt: skip
MAX_LINE = 4000
"""Characters parsed per line: a name has 63 bytes, the statement of an error may have megabytes."""


def read_lines(text: str) -> tuple[Message, ...]:
    """Return all messages of a line: more than one if several processes wrote at the same time."""
    line = text.rstrip("\r\n")[:MAX_LINE]
    if not line.strip():
        return ()
    begins = list(_PREFIX.finditer(line))
    if not begins:
        return (_parse_torn(line) or _parse_psql(line),)
    if begins[0][1] == "psql" and begins[0].start() == 0:
        return (_parse_message("psql", line[begins[0].end() :]),)
    if len(begins) > 1 and _is_quoted_to_end(line[begins[0].end() :]):
        begins = begins[:1]  # the second program name is part of an object name
    ends = [*(one.start() for one in begins[1:]), len(line)]
    parts = [(one[1], line[one.end() : end]) for one, end in zip(begins, ends, strict=True)]
    before = line[: begins[0].start()]
    first = [one for one in (_parse_psql(before),) if one.kind != "other"]
    return (*first, *(_parse_message(program, part) for program, part in parts if part.strip()))


def is_english(text: str) -> bool | None:
    """Check whether a line is a known English message; None if it is not from one of these programs.

    >>> is_english("pg_restore: finished item 3 INDEX i"), is_english("pg_restore: beendet Element 3 INDEX i")
    (True, False)
    """
    line = text[:MAX_LINE]
    begins = list(_PREFIX.finditer(line))
    if not begins:
        return None
    known = any(_LEVEL.match(line, one.end()) for one in begins)
    return known or any(message.kind != "other" or message.dump_id is not None for message in read_lines(line))


def _parse_torn(line: str) -> Message | None:
    """Parse the end of a message whose program name is on the previous line: another process wrote in between."""
    text = line.removeprefix(" ")
    error = _TORN_ERROR.match(text)
    if error is not None:
        return Message(kind="error", text=text[error.end() :])
    for pattern, made in _WITHOUT_PROGRAM:
        found = pattern.match(text)
        if found is not None:
            return made(None, text, found)
    return None


def _is_quoted_to_end(text: str) -> bool:
    """Check whether a quoted name extends to the end of the line."""
    found = _CREATING.fullmatch(text) or _DATA.fullmatch(text)
    return found is not None and text.endswith('"') and text.count('"') % 2 == 0


def _parse_message(program: str, text: str) -> Message:
    level = _LEVEL.match(text)
    if level is not None:
        text = text[level.end() :]
        if level[1] in ("error", "fatal"):
            return Message(kind="error", program=program, text=text)
        ignored = _IGNORED.search(text)
        if ignored is not None:
            return Message(kind="errors_ignored", program=program, count=int(ignored[1]), text=text)
        return Message(kind="other", program=program, text=text)
    for pattern, made in _PATTERNS:
        found = pattern.match(text)
        if found is not None:
            return made(program, text, found)
    return Message(kind="other", program=program, text=text)


def _item_message(program: str | None, text: str, found: re.Match[str]) -> Message:
    kind: Kind = "launch"
    if found[1] == "finished":
        kind = "done"
    elif found[1] == "skipping":
        kind = "skip"
    tag = found[4] or ""
    return Message(kind=kind, program=program, dump_id=int(found[2]), desc=found[3], tag=tag, name=tag, text=text)


def _creating_message(program: str | None, text: str, found: re.Match[str]) -> Message:
    if found[1] == "dropping":
        return Message(kind="phase", program=program, desc=found[2], name=found[3], text=text)
    return _start_message(program, text, found[2], found[3])


def _executing_message(program: str | None, text: str, found: re.Match[str]) -> Message:
    return Message(kind="start", program=program, desc=found[1], tag=found[2], name=found[2], text=text)


def _vacuuming_message(program: str | None, text: str, found: re.Match[str]) -> Message:
    return _start_message(program, text, "ANALYZE" if program == "vacuumdb" else "INDEX", found[1])


def _context_message(program: str | None, text: str, found: re.Match[str]) -> Message:
    return Message(kind="other", program=program, dump_id=int(found[1]), desc=found[2], name=found[3], text=text)


def _start_message(program: str | None, text: str, desc: str, name: str) -> Message:
    schema, dot, tag = name.partition(".")
    if not dot or desc in _NO_SCHEMA:
        schema, tag = "", name
    return Message(kind="start", program=program, desc=desc, schema=schema or None, tag=tag, name=name, text=text)


_MessageBuilder = Callable[[str | None, str, "re.Match[str]"], Message]
_PATTERNS: tuple[tuple[re.Pattern[str], _MessageBuilder], ...] = (
    (_ITEM, _item_message),
    (_CREATING, _creating_message),
    (_DATA, lambda program, text, found: _start_message(program, text, "TABLE DATA", found[1])),
    (_BLOBS, lambda program, text, found: _start_message(program, text, "BLOBS", found[1] or "")),
    (_EXECUTING, _executing_message),
    (_CONTEXT, _context_message),
    (_VACUUMING, _vacuuming_message),
    (_PHASE, lambda program, text, _: Message(kind="phase", program=program, text=text)),
)
"""Tried in this order, on the text after the program's name."""
_WITHOUT_PROGRAM = tuple(one for one in _PATTERNS if one[0] in (_ITEM, _DATA, _CONTEXT))
"""Messages recognized without the program's name: their beginnings are unambiguous."""


def _parse_psql(line: str) -> Message:
    """Parse a line of psql: errors with file and line, and command tags of ended statements, without a program name."""
    error = _PSQL_ERROR.search(line)
    if error is not None:
        return Message(kind="error", program="psql", text=error[1])
    analyzing = _ANALYZING.search(line)
    if analyzing is not None:
        return _start_message("psql", line, "ANALYZE", analyzing[1])
    found = _TAG.match(line)
    if found is None:
        return Message(kind="other", text=line)
    tag = found[1] or found[3] or found[4]
    count = int(found[2]) if found[2] else None
    return Message(kind="done", program="psql", desc=_OF_TAG.get(tag), count=count, name=tag, text=line)


# Errors reported by a program: counted, the first ones stored with their objects.

MAX_TEXT = 500
"""Characters stored per error."""
_MAX_KEPT = 1000
WORKER_DIED = "a worker process died unexpectedly"
"""Last message of a leader process whose worker was killed or failed (parallel.c)."""


class ReportedError(Struct, frozen=True, kw_only=True, gc=False):
    """An error reported by a program, with its object if known. Names and texts are server text."""

    at_us: int
    text: str
    dump_id: int | None = None
    desc: str | None = None
    schema: str | None = None
    tag: str = ""


def final_error(errors: Sequence[ReportedError]) -> ReportedError | None:
    """Return the error that best explains the end: a worker's last error, not the message that it died."""
    candidates = (one for one in reversed(errors) if not one.text.startswith(WORKER_DIED))
    return next(candidates, errors[-1] if errors else None)


class ReportedErrors:
    """Stores the first thousand errors and counts all."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[ReportedError] = []

    def add(self, at_us: int, text: str, entry: DumpEntry | None) -> None:
        """Add an error, with its object if known."""
        self.count += 1
        if len(self.kept) >= _MAX_KEPT:
            return
        reported = ReportedError(at_us=at_us, text=text[:MAX_TEXT])
        if entry is not None:
            reported = replace(reported, dump_id=entry.dump_id, desc=entry.desc, schema=entry.schema, tag=entry.tag)
        self.kept.append(reported)

    def add_line(self, text: str) -> None:
        """Append a line to the last error: its detail or statement."""
        if self.kept and self.count == len(self.kept):
            last = self.kept[-1]
            self.kept[-1] = replace(last, text=f"{last.text} {text.strip()}"[:MAX_TEXT])
