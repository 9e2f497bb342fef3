"""The statement psql -e writes before it runs it, line by line, until its command tag comes."""

from __future__ import annotations

import re

from dba_console.archives.statement_parser import DumpStatement, read_statement

_MAX_CHARACTERS = 2000
"""Characters kept: what a statement makes stands at its beginning."""
_ROWS = re.compile(r"\(\d+ rows?\)$")


class PsqlEcho:
    """What was echoed since the last command tag."""

    def __init__(self) -> None:
        self.since_us: int | None = None
        self._text = ""

    def add(self, wall_us: int, text: str) -> None:
        """A line; the rows of the statement before end with a count, and what comes then is the next one."""
        if _ROWS.match(text):
            self._text = ""
            return
        if not self._text:
            self.since_us = wall_us
        if len(self._text) < _MAX_CHARACTERS:
            self._text = f"{self._text}\n{text}"

    def take_statement(self) -> DumpStatement | None:
        """What the statement makes, where that is known; the next line begins another."""
        text, self._text = self._text.strip(), ""
        return read_statement(text) if text else None
