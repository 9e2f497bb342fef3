"""pg.activity: every backend, as pg_stat_activity shows it.

Most sessions do not change from one second to the next. A row that is the same as before is the same record as before,
so that only what moved is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row, client, wall_us
from dba_console.probes.postgres.encodings import decode, decode_beginning
from dba_console.probes.postgres.oid_names import OidNames
from dba_console.redact import normalise, redact
from dba_console.samples.postgres import WITHHELD, Activity, Sessions

HIDDEN = b"<insufficient privilege>"
"""What pg_stat_get_activity() gives as the query of a session one may not see (pgstatfuncs.c)."""


class ActivityDecoder:
    """Makes records of rows, remembering those of the reading before."""

    def __init__(self, names: OidNames, query_texts: str = "full") -> None:
        self._names, self._query_texts = names, query_texts
        self._before: dict[int, tuple[Row, Activity]] = {}
        self._version = -1

    def decode(self, rows: Sequence[Row], now: int) -> Sessions:
        """The sessions in `rows`, read at `now` by the server's clock (microseconds since 2000)."""
        before = self._before if self._version == self._names.version else {}
        current: dict[int, tuple[Row, Activity]] = {}
        for row in rows:
            known = before.get(row[0])
            # Compared, not hashed: most rows are equal, and comparing is several times cheaper.
            same = known is not None and known[0] == row
            current[row[0]] = known if known is not None and same else (row, self._record(row))
        self._before, self._version = current, self._names.version
        hidden = sum(row[18] == HIDDEN for row in rows)
        return Sessions(wall_us(now) or 0, [record for _, record in current.values()], hidden)

    def _record(self, row: Row) -> Activity:
        return activity_of(row, self._names, self._query_texts)


def activity_of(row: Row, names: OidNames, query_texts: str) -> Activity:
    """One row; the query's text is in the encoding of the database it runs in."""
    (pid, started, kind, database, user, application, address, port, state, xact, query_start, changed,
     wait_type, wait, xid, xmin, leader, query_id, query, query_bytes) = row  # fmt: skip
    cut = query is not None and query_bytes > len(query)
    return Activity(
        pid=pid,
        backend_start=wall_us(started),
        backend_type=text(kind),
        database=names.database(database),
        user=names.role(user),
        application=redact(decode(application or b"", names.codec_of_database(database))),
        client=client(address, port),
        state=text(state),
        xact_start=wall_us(xact),
        query_start=wall_us(query_start),
        state_change=wall_us(changed),
        wait_event_type=text(wait_type),
        wait_event=text(wait),
        backend_xid=xid,
        backend_xmin=xmin,
        leader_pid=leader,
        query_id=query_id,
        query=_query_text(query or b"", cut, names.codec_of_database(database), query_texts, kind),
        query_bytes=query_bytes if cut else None,
    )


def _query_text(raw: bytes, cut: bool, codec: str, query_texts: str, kind: bytes | None) -> str:
    """What `agent.query_texts` leaves of a query. An autovacuum worker's is PostgreSQL's own, and rules go by it."""
    if query_texts == "none" and raw and raw != HIDDEN and kind != b"autovacuum worker":
        return WITHHELD
    query = decode_beginning(raw, codec) if cut else decode(raw, codec)
    if query_texts == "normalised" and raw != HIDDEN:
        return redact(normalise(query))
    return redact(query, cut=cut)


def text(raw: bytes | None, codec: str = "utf-8") -> str | None:
    """Text that may be NULL."""
    return None if raw is None else decode(raw, codec)
