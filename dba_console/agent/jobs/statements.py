"""What object of an archive a session works on, told from its statement as pg_dump and pg_restore write it. Pure.

Names come back as the table of contents has them: unquoted, a constraint or trigger as `TABLE NAME`. A statement cut
short (track_activity_query_size) names nothing that was cut; what is not understood is None and never guessed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 2000
"""Characters of a statement that are read; names stand at its beginning."""

_NAME = r'(?:"(?:[^"]|"")+"|[^\s".,;()]+)'
_QUALIFIED = rf"(?P<first>{_NAME})(?:\.(?P<second>{_NAME}))?"
_START = r"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*"
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(_START + pattern, re.I | re.S))
    for kind, pattern in (
        ("copy", rf"copy\s+{_QUALIFIED}\s*(?:\(|to\b|from\b)"),
        ("select", rf"copy\s*\(\s*select\b.*?\sfrom\s+(?:only\s+)?{_QUALIFIED}"),
        (
            "index",
            rf"create\s+(?:unique\s+)?index\s+(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?(?P<name>{_NAME})\s+on\s+"
            rf"(?:only\s+)?{_QUALIFIED}[\s(]",
        ),
        (
            "key",
            rf"alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?{_QUALIFIED}\s+add\s+constraint\s+(?P<name>{_NAME})\s+"
            r"(?P<what>primary|unique|exclude|foreign|check|not)\b",
        ),
        ("view", rf"refresh\s+materialized\s+view\s+(?:concurrently\s+)?{_QUALIFIED}"),
        ("trigger", rf"create\s+(?:constraint\s+)?trigger\s+(?P<name>{_NAME})\s.*?\son\s+{_QUALIFIED}"),
        ("analyze", rf"analyze\s+(?:\([^)]*\)\s*|verbose\s+)?(?:only\s+)?{_QUALIFIED}"),
        ("vacuum", rf"vacuum\s+(?:\([^)]*\)\s*|(?:(?:full|freeze|verbose|analyze)\s+)*)(?:only\s+)?{_QUALIFIED}"),
        ("blob", r"select\s+(?:pg_catalog\.)?(?:lo_|loread|lowrite)"),
    )
)
_KEYS = {
    "primary": "CONSTRAINT", "unique": "CONSTRAINT", "exclude": "CONSTRAINT", "foreign": "FK CONSTRAINT",
    "check": "CHECK CONSTRAINT", "not": "CONSTRAINT",
}  # fmt: skip


class Named(NamedTuple):
    """An object as the table of contents words it."""

    desc: str
    schema: str | None
    tag: str
    table: str | None = None
    """The table it belongs to, where the tag is not that."""


def statement_object(query: str) -> Named | None:
    """What the statement works on, None where it does not tell.

    >>> statement_object('COPY public."Order ""items" (id, note) TO stdout;')
    Named(desc='TABLE DATA', schema='public', tag='Order "items', table=None)
    >>> statement_object("CREATE UNIQUE INDEX orders_i ON sales.orders USING btree (id);")
    Named(desc='INDEX', schema='sales', tag='orders_i', table='orders')
    >>> statement_object("ALTER TABLE ONLY public.t ADD CONSTRAINT t_o FOREIGN KEY (o) REFERENCES public.o(id);")
    Named(desc='FK CONSTRAINT', schema='public', tag='t t_o', table='t')
    """
    text = query[:LONGEST]
    for kind, rule in _RULES:
        if (found := rule.match(text)) is not None:
            return _named(kind, found)
    return None


def _named(kind: str, found: re.Match[str]) -> Named | None:
    parts = found.groupdict()
    if kind == "blob":
        return Named("BLOBS", None, "BLOBS")
    first, second = _bare(parts["first"] or ""), parts.get("second")
    schema, name = (None, first) if second is None else (first, _bare(second))
    if kind in ("copy", "select"):
        return Named("TABLE DATA", schema, name)
    if kind == "index":
        return Named("INDEX", schema, _bare(parts["name"]), name)
    if kind == "key":
        return Named(_KEYS[parts["what"].lower()], schema, f"{name} {_bare(parts['name'])}", name)
    if kind == "trigger":
        return Named("TRIGGER", schema, f"{name} {_bare(parts['name'])}", name)
    if kind == "view":
        return Named("MATERIALIZED VIEW DATA", schema, name)
    return Named(kind.upper(), schema, name)


def _bare(name: str) -> str:
    """The name without the quotes it needs in a statement; unquoted ones are folded as the server does.

    >>> _bare('"a""b"'), _bare("Orders")
    ('a"b', 'orders')
    """
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
