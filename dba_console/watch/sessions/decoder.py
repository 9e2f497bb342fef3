"""Decodes the rows of pg_stat_activity. Loaded by the probe only."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from dba_console.core.redact import redact
from dba_console.watch.probes.postgres.binary_results import ResultRows, Row, client, decode, wall_us
from dba_console.watch.probes.postgres.oid_names import OidNames
from dba_console.watch.probes.postgres.query_texts import HIDDEN, QueryTexts, is_cut, unmasked
from dba_console.watch.samples.postgres import Activity, Sessions

COLUMNS = (
    "pid", "backend_start", "backend_type", "datid", "usesysid", "application_name", "client_addr", "client_port",
    "state", "xact_start", "query_start", "state_change", "wait_event_type", "wait_event", "backend_xid",
    "backend_xmin", "leader_pid", "query_id", "query", "query_bytes",
)  # fmt: skip
"""The columns of the query. A thousand rows a second are compared as they are, so here they are known by position."""
_KIND, _DATABASE = COLUMNS.index("backend_type"), COLUMNS.index("datid")
_TIMES = slice(COLUMNS.index("xact_start"), COLUMNS.index("wait_event_type"))
"""Times that the next statement changes."""
_BEFORE_TIMES, _AFTER_TIMES = slice(_TIMES.start), slice(_TIMES.stop, None)
_WAIT_TYPE, _QUERY, _QUERY_BYTES = (COLUMNS.index(name) for name in ("wait_event_type", "query", "query_bytes"))


def may_anybody_wait(rows: Sequence[Row]) -> bool:
    """Return whether any session may wait for a lock; also True if the waits of other roles are hidden."""
    return b"Lock" in [row[_WAIT_TYPE] for row in rows] or HIDDEN in [row[_QUERY] for row in rows]


class ActivityDecoder:
    """Decodes pg.activity. Most sessions do not change from one second to the next: an unchanged row keeps its record,
    so that only changed rows are decoded."""

    def __init__(self, names: OidNames, query_texts: str = "full") -> None:
        self._names, self._texts = names, QueryTexts(query_texts)
        self._before: dict[int, tuple[Row, Activity]] = {}
        self._unmasked: set[int] = set()
        """Sessions whose query was not masked in the last tick: they are the first in the next."""
        self._version = -1

    def decode(self, rows: ResultRows, now: int, query_size: int) -> Sessions:
        """Return the sessions in `rows`, read at `now` by the server's clock (microseconds since 2000).

        `query_size`: the server's track_activity_query_size. Raises ValueError if the columns are not COLUMNS.
        """
        if tuple(name for name, _ in rows.columns) != COLUMNS:
            raise ValueError("other columns than expected")
        before = self._before if self._version == self._names.version else {}
        current: dict[int, tuple[Row, Activity]] = {}
        self._texts.begin_tick()
        late, self._unmasked = self._unmasked, set()
        for row in sorted(rows, key=lambda row: row[0] not in late) if late else rows:
            known = before.get(row[0])
            # Compared, not hashed: most rows are equal, and comparing is several times cheaper.
            if row[0] in late:
                known = None
            same = known is not None and known[0] == row
            current[row[0]] = known if known is not None and same else (row, self._record(row, known, query_size))
        self._before, self._version = current, self._names.version
        hidden = [row[_QUERY] for row in rows].count(HIDDEN)
        return Sessions(wall_us(now) or 0, [current[row[0]][1] for row in rows], hidden)

    def _record(self, row: Row, known: tuple[Row, Activity] | None, query_size: int) -> Activity:
        """Return the record of a row. If only its times differ, as after the same statement again, the rest is kept."""
        if (
            known is not None
            and known[0][_AFTER_TIMES] == row[_AFTER_TIMES]
            and known[0][_BEFORE_TIMES] == row[_BEFORE_TIMES]
        ):
            xact, query_start, changed = row[_TIMES]
            return structs.replace(
                known[1],
                xact_start=wall_us(xact),
                query_start=wall_us(query_start),
                state_change=wall_us(changed),
            )
        query = known[1].query if known is not None and _same_query(known[0], row) else self._query(row, query_size)
        return activity_of(row, self._names, query)

    def _query(self, row: Row, query_size: int) -> str:
        raw, codec = row[_QUERY] or b"", self._names.codec_of_database(row[_DATABASE])
        cut = row[_QUERY] is not None and is_cut(raw, row[_QUERY_BYTES], query_size)
        query = self._texts.text(raw, cut=cut, codec=codec, kind=row[_KIND])
        if query is None:
            self._unmasked.add(row[0])
        return unmasked(raw) if query is None else query


def _same_query(before: Row, row: Row) -> bool:
    """Whether both rows have the same query, of the same database and type of backend."""
    parts = (_QUERY, _QUERY_BYTES, _KIND, _DATABASE)
    return all(before[part] == row[part] for part in parts)


def activity_of(row: Row, names: OidNames, shown: str) -> Activity:
    """Decode one row; `shown`: the text of its query."""
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
        query=shown,
        query_bytes=query_bytes if cut else None,
    )


def text(raw: bytes | None, codec: str = "utf-8") -> str | None:
    """Decode text that may be NULL."""
    return None if raw is None else decode(raw, codec)
