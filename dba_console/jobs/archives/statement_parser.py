"""Find the object that a statement of a dump creates, from psql -e output or pg_stat_activity.

A statement may be truncated; anything that is not clearly a statement of a dump gives None.
"""

from __future__ import annotations

import re

from msgspec import Struct

from dba_console.jobs.archives.toc import Phase, phase_of

_NAME = r'(?:"(?:[^"]|"")*"|[^\s".(),;]+)'
_QUALIFIED = rf"(?:({_NAME})\.)?({_NAME})"
_FLAGS = re.IGNORECASE | re.DOTALL
_COMMENTS = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)+", _FLAGS)
_COPY = re.compile(rf"\s*COPY\s+{_QUALIFIED}\s*(?:\(|(?:FROM|TO)\s+STD(?:IN|OUT))", _FLAGS)
_BLOBS = re.compile(r"\s*SELECT\s+pg_catalog\.lo(?:write|_write|_open|_close|_from_bytea|_put)?\b", _FLAGS)
_LARGE_OBJECTS_READ = re.compile(
    r"\s*(?:DECLARE\s+bloboid\b|FETCH\s+\d+\s+IN\s+bloboid\b|select proname, oid from pg_catalog\.pg_proc\s+"
    r"where proname in \(\s*'lo_open')",
    _FLAGS,
)
"""What libpq and pg_dump up to 16 execute for large objects. The calls in between change neither the statement shown
nor always the state of the session."""
_INDEX = re.compile(
    rf"\s*CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?:CONCURRENTLY\s+)?(?:IF NOT EXISTS\s+)?({_NAME})"
    rf"\s+ON\s+(?:ONLY\s+)?{_QUALIFIED}",
    _FLAGS,
)
_CONSTRAINT = re.compile(
    rf"\s*ALTER\s+TABLE\s+(?:IF EXISTS\s+)?(?:ONLY\s+)?{_QUALIFIED}\s+ADD\s+CONSTRAINT\s+({_NAME})"
    r"\s+(PRIMARY|UNIQUE|EXCLUDE|FOREIGN|CHECK)",
    _FLAGS,
)
_REFRESH = re.compile(rf"\s*REFRESH\s+MATERIALIZED\s+VIEW\s+{_QUALIFIED}", _FLAGS)
_ANALYZE = re.compile(rf"\s*ANALYZE\s*(?:\([^)]*\))?\s*(?:VERBOSE\s+)?{_QUALIFIED}", _FLAGS)
_DESC_OF = {"FOREIGN": "FK CONSTRAINT", "CHECK": "CHECK CONSTRAINT"}
_AFTER_DATA = 4


class DumpStatement(Struct, frozen=True, kw_only=True, gc=False):
    """The object a statement creates, in an archive's terms; names unquoted, as in the catalog."""

    desc: str
    phase: Phase
    schema: str | None
    tag: str
    """Of a constraint `TABLE NAME`."""
    table: str | None = None
    """The table it belongs to."""


def read_statement(text: str) -> DumpStatement | None:
    """Return the object of a statement; None if it creates nothing that takes time."""
    comments = _COMMENTS.match(text)
    if comments is not None:
        text = text[comments.end() :]
    copy = _COPY.match(text)
    if copy is not None:
        return _statement("TABLE DATA", copy[1], _unquote(copy[2]), _unquote(copy[2]))
    index = _INDEX.match(text)
    if index is not None:
        return _statement("INDEX", index[2], _unquote(index[1]), _unquote(index[3]))
    constraint = _CONSTRAINT.match(text)
    if constraint is not None:
        desc = _DESC_OF.get(constraint[4].upper(), "CONSTRAINT")
        table = _unquote(constraint[2])
        return _statement(desc, constraint[1], f"{table} {_unquote(constraint[3])}", table)
    refresh = _REFRESH.match(text)
    if refresh is not None:
        return _statement("MATERIALIZED VIEW DATA", refresh[1], _unquote(refresh[2]), _unquote(refresh[2]))
    analyze = _ANALYZE.match(text)
    if analyze is not None:
        return _statement("ANALYZE", analyze[1], _unquote(analyze[2]), _unquote(analyze[2]))
    if _BLOBS.match(text) is not None or reads_large_objects(text):
        return DumpStatement(desc="BLOBS", phase="data", schema=None, tag="")
    return None


def reads_large_objects(text: str) -> bool:
    """Return whether a session with this statement reads or writes large objects, even if it seems idle."""
    return _LARGE_OBJECTS_READ.match(text) is not None


def _statement(desc: str, schema: str | None, tag: str, table: str) -> DumpStatement:
    return DumpStatement(
        desc=desc, phase=phase_of(desc, _AFTER_DATA), schema=_unquote(schema) if schema else None, tag=tag, table=table
    )


def _unquote(name: str) -> str:
    """Return a name without quotes.

    >>> _unquote('"Two ""w"')
    'Two "w'
    """
    if name.startswith('"') and name.endswith('"') and len(name) > 1:
        return name[1:-1].replace('""', '"')
    return name.lower()


# The statement that psql -e prints before it runs, line by line, until its command tag.

_MAX_CHARACTERS = 2000
"""Characters stored: the object is named at the beginning of a statement."""
_ROWS = re.compile(r"\(\d+ rows?\)$")


class PsqlEcho:
    """Collects the text echoed since the last command tag."""

    def __init__(self) -> None:
        self.since_us: int | None = None
        self._text = ""

    def add(self, wall_us: int, text: str) -> None:
        """Add a line; a row count ends the output of the previous statement, then the next one starts."""
        if _ROWS.match(text):
            self._text = ""
            return
        if not self._text:
            self.since_us = wall_us
        if len(self._text) < _MAX_CHARACTERS:
            self._text = f"{self._text}\n{text}"

    def take_statement(self) -> DumpStatement | None:
        """Return the statement's object, if known, and start a new statement."""
        text, self._text = self._text.strip(), ""
        return read_statement(text) if text else None
