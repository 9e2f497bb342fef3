"""Texts of sessions' queries: bounded work per tick, cut statements, `agent.query_texts`."""

from __future__ import annotations

from dba_console.core.redact import may_hold_secret, normalise, redact_statement
from dba_console.watch.probes.postgres.binary_results import decode, decode_beginning
from dba_console.watch.samples.postgres import WITHHELD

HIDDEN = b"<insufficient privilege>"
"""What pg_stat_get_activity() returns as the query of a session that is not visible to the role (pgstatfuncs.c)."""
MASKED_BYTES = 64 * 1024
"""Bytes of statements that are masked per tick; the most expensive text takes 2.5 ms per kB."""
_CUT_CHARACTER = 4
"""The server stores track_activity_query_size - 1 bytes, and leaves out an incomplete character at the end."""


class QueryTexts:
    """Decodes and masks the queries of one connection's samples. Sessions run the same statements: a text of this tick
    or the last one is not masked twice."""

    def __init__(self, policy: str = "full") -> None:
        """`policy`: `agent.query_texts`."""
        self._policy = policy
        self._last: dict[tuple[bytes, bool, str], str] = {}
        self._known: dict[tuple[bytes, bool, str], str] = {}
        self._bytes_left = 0

    def begin_tick(self) -> None:
        """Allow MASKED_BYTES."""
        self._last, self._known = self._known, {}
        self._bytes_left = MASKED_BYTES

    def text(self, raw: bytes, *, cut: bool, codec: str, kind: bytes | None) -> str | None:
        """Return the text; None if this tick has no time left to mask it.

        `cut`: its end is missing. An autovacuum worker's text is PostgreSQL's own, and rules depend on it.
        """
        if not raw or raw == HIDDEN:
            return raw.decode()
        if self._policy == "none" and kind != b"autovacuum worker":
            return WITHHELD
        key = (raw, cut, codec)
        shown = self._known.get(key) or self._last.get(key)
        if shown is None:
            shown = self._masked(raw, decode_beginning(raw, codec) if cut else decode(raw, codec), cut=cut)
            if shown is None:
                return None
        self._known[key] = shown
        return shown

    def _masked(self, raw: bytes, query: str, *, cut: bool) -> str | None:
        if may_hold_secret(query):
            if self._bytes_left <= 0:
                return None
            self._bytes_left -= len(raw)
        return redact_statement(normalise(query)) if self._policy == "normalised" else redact_statement(query, cut=cut)


def is_cut(raw: bytes, full_bytes: int, query_size: int) -> bool:
    """Whether a statement is cut: by our query, or by the server, whose track_activity_query_size is `query_size`.

    >>> is_cut(b"select 1", 8, 1024), is_cut(b"x" * 1020, 1020, 1024), is_cut(b"x" * 4096, 9000, 16384)
    (False, True, True)
    """
    return full_bytes > len(raw) or full_bytes >= query_size - _CUT_CHARACTER


def unmasked(raw: bytes) -> str:
    """Return what is shown of a statement that is not masked yet."""
    return f"<not masked yet: a statement of {len(raw):,} bytes>"
