"""Outcomes of statements as parts of a sample: one table from a part's name to the function that reads its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dba_console.probes.postgres.binary_results import Row
from dba_console.probes.postgres.connection import MonitorConnection
from dba_console.probes.postgres.part_statements import EXTRA_LABELS, NEEDS_ALL_STATS, PART_STATEMENTS, grant_hint
from dba_console.probes.postgres.query_backoff import Refusal
from dba_console.probes.postgres.readings.activity import ActivityDecoder
from dba_console.probes.postgres.readings.catalog import catalog_of, subscriptions_of, unvacuumed_of
from dba_console.probes.postgres.readings.databases import database_stats_of
from dba_console.probes.postgres.readings.locks import locks_of
from dba_console.probes.postgres.readings.progress import operations_of
from dba_console.probes.postgres.readings.replication import UnreadSlots, replication_of
from dba_console.probes.postgres.readings.server import ConnectionFacts, server_of
from dba_console.probes.postgres.readings.temp import temp_of
from dba_console.probes.postgres.readings.wal import archiver_of, io_of, wal_of
from dba_console.probes.postgres.readings.xids import horizon_of, xids_of
from dba_console.probes.postgres.statement_runner import Outcome, StatementRows
from dba_console.samples.sample import Part, make_part

Rows = Mapping[str, list[Row]]


class PartBuilder:
    """Makes parts for one connection."""

    def __init__(self, connection: MonitorConnection, query_texts: str) -> None:
        self._connection = connection
        names = connection.names
        activity, unread = ActivityDecoder(names, query_texts), UnreadSlots()
        self._clock_rows: list[Row] = []
        self._read: dict[str, Callable[[Rows], Any]] = {
            "pg.activity": lambda rows: activity.decode(rows["activity"], self._clock_rows[0][0]),
            "pg.locks": lambda rows: locks_of(rows["locks"], names),
            "pg.progress": lambda rows: operations_of(rows["progress"], names),
            "pg.replication": lambda rows: replication_of(
                rows["positions"], rows.get("standbys", []), rows.get("slots", []), names, unread
            ),
            "pg.server": lambda rows: server_of(rows, self._connection_facts(), names),
            "pg.databases": lambda rows: database_stats_of(rows["database_stats"], names),
            "pg.archiver": lambda rows: archiver_of(rows["archiver"], rows.get("archive_ready", [])),
            "pg.wal": lambda rows: wal_of(rows.get("wal", []), rows["checkpoints"], rows.get("wal_files", [])),
            "pg.io": lambda rows: io_of(rows["io"]),
            "pg.horizon": lambda rows: horizon_of(rows["horizon"], names),
            "pg.xids": lambda rows: xids_of(rows["xids"], rows.get("xid_tables", []), names),
            "pg.temp": lambda rows: temp_of(rows["temp"], rows.get("temp_closed", []), names),
            "pg.catalog": lambda rows: catalog_of(
                rows["collations"], rows.get("invalid_indexes"), rows.get("sequences"), names
            ),
            "pg.subscriptions": lambda rows: subscriptions_of(rows["subscriptions"], names),
            "pg.dead_rows": lambda rows: unvacuumed_of(rows["dead_rows"], names),
        }

    def part(self, name: str, outcomes: Mapping[str, Outcome], now_us: int) -> Part:
        """The part, its reading or why there is none. Never raises: what cannot be read is its status."""
        plan = PART_STATEMENTS[name]
        main = outcomes[plan.main]
        if isinstance(main, Refusal):
            return make_part(name, None, at_us=now_us, status=main.status, note=main.note)
        rows, took_us, notes = {plan.main: main.rows[0]}, main.took_us, self._privilege_notes(name)
        if name == "pg.activity":
            self._clock_rows = main.rows[1]
        for extra in plan.extra:
            outcome = outcomes[extra]
            if isinstance(outcome, StatementRows):
                rows[extra] = outcome.rows[0]
                took_us += outcome.took_us
            else:
                notes.append(f"{EXTRA_LABELS[extra]} not known: {outcome.note}")
        try:
            reading = self._read[name](rows)
        except Exception as error:
            # A row that is not as this version was known to give it costs its part, never the tick.
            note = f"the server's answer could not be read ({type(error).__name__}); please report this version"
            return make_part(name, None, at_us=main.at_us, took_us=took_us, status="error", note=note)
        return make_part(name, reading, at_us=main.at_us, took_us=took_us, note="; ".join(notes) or None)

    def _privilege_notes(self, name: str) -> list[str]:
        hello = self._connection.hello
        if name in NEEDS_ALL_STATS and not hello.all_stats:
            return [f"other roles' sessions are hidden in part: {grant_hint(hello.user)}"]
        return []

    def _connection_facts(self) -> ConnectionFacts:
        hello, locality = self._connection.hello, self._connection.locality
        return ConnectionFacts(
            version_num=hello.version_num,
            user=hello.user,
            superuser=hello.superuser,
            backend_pid=hello.backend_pid,
            seat=hello.seat,
            through=self._connection.through,
            local=locality.local,
            local_note=locality.note,
        )
