"""For shared copies: SQL without data. Literals become `$n`, comments are dropped, identifiers are replaced."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from dba_console.core.redact import statement_tokens
from dba_console.reports.share_names import Kind, NameMap
from dba_console.reports.share_words import BUILT_IN, KEYWORDS
from dba_console.watch.findings.phrases import query_text
from dba_console.watch.job_sessions import command, command_object
from dba_console.watch.samples.postgres import WITHHELD

REMOVED = "<removed>"
"""Replaces a text that the level leaves out."""
_NO_QUERIES = frozenset(
    (WITHHELD, "<insufficient privilege>", "<command string not enabled>", "<backend information not available>")
)
"""What stands in place of a query (pgstatfuncs.c)."""
_QUERIES = 50_000
_QUERY_KEY = 24
_STATEMENT_MARK = re.compile(
    r"(?i)\b(?:statement|query|command|parse \S{1,64}|bind \S{1,64}|execute [^:]{1,64}|(LINE \d{1,6}))\s?[:=]\s+"
)
"""As the server's log and psql write it; a LINE is any part of a statement."""
_STATEMENT = re.compile(
    r"(?is)(?:\s|--[^\n]*\n|/\*.*?\*/|\()*+(?:select|insert|update|delete|merge|with|values|alter|create|drop|set|call|do|"
    r"copy|prepare|execute|explain|vacuum|analyze|truncate|grant|revoke|begin|declare|fetch|refresh|reindex|cluster|"
    r"comment|lock|import|security)\b"
)
_WHOLE_STATEMENT = re.compile(
    r"(?is)\s*(?:select\b[^.]{0,2000}?\bfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|"
    r"merge\s+into\s|with\s+\w+\s+as\s*\(|alter\s+(?:table|system|database|role|user|index)\s|copy\s+\S+\s+(?:from|to)\s|"
    r"create\s+(?:unique\s+)?(?:index|table|role|user|database|view)\s|values\s*\()"
)
_SQL_OPTION = re.compile(r"((?<!\S)(?:-\w*c\s*|--command(?:=|\s+)))(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'\"'\"'|'\\'')*')")
"""A statement among the arguments of psql."""
_QUOTED = re.compile(r"(?<!\\)\"((?:[^\"\\]|\\.|\"\"){12,})\"", re.S)
"""As in CONTEXT, and in logs in JSON and CSV. An escaped sign begins none: that would take quadratic time."""
_LITERALS_AFTER = re.compile(
    r"(?is)\b(?:select\b[^.]{0,2000}?\bfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|merge\s+into\s|"
    r"values\s*\(|call\s+[\w.]+\(|(?:filter|cond): )"
)
"""A statement within a sentence, a condition in a plan: the end is not known, so only literals are replaced."""
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_TABLES = """
    from join into update table only index view sequence truncate vacuum analyze analyse reindex cluster copy on
    inherits references verbose exists concurrently
"""
_TABLE_BEFORE = frozenset(_TABLES.split())
_NAMED_BEFORE: dict[str, Kind] = {
    "database": "database", "role": "user", "user": "user", "schema": "schema", "tablespace": "tablespace",
    "subscription": "subscription", "publication": "subscription", "owner": "user", "authorization": "user",
    "slot": "slot",
}  # fmt: skip


class StatementRewriter:
    """Rewrites statements, and finds them in other text."""

    def __init__(self, names: NameMap, *, leave_out: bool) -> None:
        """`leave_out`: nothing of a statement stays but what the panels of long work need."""
        self._names = names
        self._leave_out = leave_out
        self.count = 0
        """Statements rewritten."""
        self._queries: OrderedDict[str, dict[str, str]] = OrderedDict()
        """Queries as sentences quote them, by their first characters."""

    def query(self, text: str) -> str:
        """Return the query of a session."""
        if text in _NO_QUERIES or not text.strip():
            return text
        self.count += 1
        made = self._normalised(text)
        if self._leave_out and not self._names.learning:
            made = _only_command(made)
        if not self._names.learning:
            self._remember_query(query_text(text), query_text(made))
        return made

    def in_text(self, text: str, plain: Callable[[str], str]) -> str | None:
        """Return a text that is a statement, or ends with one; None for another text. `plain` rewrites the rest."""
        if _WHOLE_STATEMENT.match(text):
            return self._statement(text)
        for mark in _STATEMENT_MARK.finditer(text):
            if mark[1] or _STATEMENT.match(text, mark.end()):
                return plain(text[: mark.end()]) + self._statement(text[mark.end() :])
        return None

    def parts_of_text(self, text: str) -> str:
        """Return a text with the statements rewritten that are arguments of psql, or quoted, as by a finding."""
        if "psql" in text:
            text = _SQL_OPTION.sub(lambda match: match[1] + self._argument(match[2]), text)
        text = self._with_quoted_queries(text)
        if '"' in text and len(text) > 14:
            text = _QUOTED.sub(self._quoted, text)
        if "'" in text and (found := _LITERALS_AFTER.search(text)) is not None:
            text = text[: found.end()] + _LITERAL.sub("$1", text[found.end() :])
        return text

    def _quoted(self, match: re.Match[str]) -> str:
        """Return a quoted text, rewritten if it is a statement."""
        inner, sign = match[1], '""' if '""' in match[1] else '\\"'
        plain = inner.replace(sign, '"')
        if not _WHOLE_STATEMENT.match(plain) and not ("'" in plain and _STATEMENT.match(plain)):
            return match[0]
        made = self._statement(plain).replace('"', sign)
        return f'"{made}"'

    def _statement(self, text: str) -> str:
        return REMOVED if self._leave_out and not self._names.learning else self._normalised(text)

    def _argument(self, quoted: str) -> str:
        sign, inner = quoted[0], quoted[1:-1]
        return sign + self._statement(inner.replace("'\"'\"'", "'") if sign == "'" else inner) + sign

    def _normalised(self, text: str) -> str:
        parts: list[str] = []
        number = max((int(one) for one in re.findall(r"\$(\d{1,5})\b", text)), default=0)
        tokens = list(statement_tokens(text))
        before = ""
        for at, (kind, body) in enumerate(tokens):
            if kind in ("literal", "dollar", "number", "cut"):
                number += 1
                parts.append(f"${number}" + (" …" if kind == "cut" else ""))
            elif kind == "comment":
                parts.append(" ")
            elif kind == "name":
                after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
                made, kind_of = self._identifier(body, before, after.lstrip()[:1])
                parts.append(made)
                before = "from" if kind_of == "schema" else body.lower()
            else:
                parts.append(body)
                if "," not in body and body.strip() not in ("", ".", "("):
                    before = ""
        return "".join(parts)

    def _identifier(self, body: str, before: str, after: str) -> tuple[str, str]:
        """Return what replaces a name of a statement, and its kind. `before`: the word before it; `after`: the sign."""
        quoted = body[0] == '"'
        name = body[1:].removesuffix('"').replace('""', '"') if quoted else body
        if not quoted and (name.lower() in KEYWORDS or name.lower() in BUILT_IN):
            return body, ""
        kind: Kind = _NAMED_BEFORE.get(before, "relation" if before in _TABLE_BEFORE else "column")
        if after == "." and kind == "relation":
            kind = "schema"
        found = self._names.known(name)
        return (found if found is not None else self._names.name(kind, name if quoted else name.lower())), kind

    def _remember_query(self, shown: str, made: str) -> None:
        if len(shown) < 4:
            return
        self._queries.setdefault(shown[:_QUERY_KEY], {})[shown] = made
        self._queries.move_to_end(shown[:_QUERY_KEY])
        while len(self._queries) > _QUERIES:
            self._queries.popitem(last=False)

    def _with_quoted_queries(self, text: str) -> str:
        """Replace the queries that a finding quotes: `app (pid 8: update …)`."""
        at = 0
        while (at := text.find(": ", at)) >= 0:
            at += 2
            found = self._queries.get(text[at : at + _QUERY_KEY])
            if found is None and len(text) - at <= _QUERY_KEY + 4:
                found = self._queries.get(text[at:].rstrip(")."))
            if found is None:
                continue
            shown = max((one for one in found if text.startswith(one, at)), key=len, default=None)
            if shown is not None:
                text = text[:at] + found[shown] + text[at + len(shown) :]
                at += len(found[shown])
        return text


def _only_command(statement: str) -> str:
    """Return what the panels of long work need of a normalised statement: the command and its object.

    >>> _only_command("alter table relation_1 add column column_2 text"), _only_command("select 1")
    ('alter table relation_1 …', '<removed>')
    """
    if statement.startswith("autovacuum: "):
        return statement
    if command(statement) is None:
        return REMOVED
    named = command_object(statement)
    end = 40 if named is None else statement.find(named) + len(named)
    return statement if end >= len(statement) else f"{statement[:end]} …"
