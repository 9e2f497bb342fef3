"""The action vacuum: vacuum a table or a whole database, with progress; the operator can stop it at any time.

In a wraparound emergency plain VACUUM helps: FULL needs transaction ids itself, FREEZE does more than is needed
(PostgreSQL documentation, "Preventing Transaction ID Wraparound Failures"). So FULL is not offered, and FREEZE must be
requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct
from psycopg import sql

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import (
    StatementFailed,
    StatementLost,
    StatementStopped,
)
from dba_console.core.clock import Clock
from dba_console.core.declarations import Duration
from dba_console.core.errors import ConnectError
from dba_console.core.units import human_bytes, human_count, human_duration, parse_duration
from dba_console.watch.progress.decoder import measure

# The statements: what to vacuum, its progress, its result.

# No function that locks the table: the preview must not wait for a lock.
TABLE = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       CASE WHEN c.relkind <> 'p'
            THEN greatest(pg_catalog.age(c.relfrozenxid), pg_catalog.age(t.relfrozenxid)) END AS xid_age,
       CASE WHEN c.relkind <> 'p'
            THEN greatest(pg_catalog.mxid_age(c.relminmxid), pg_catalog.mxid_age(t.relminmxid)) END AS mxid_age,
       (c.relpages::int8 + coalesce(t.relpages, 0)) * pg_catalog.current_setting('block_size')::int8 AS bytes,
       s.n_dead_tup::int8 AS dead_rows, coalesce(s.vacuum_count, 0)::int8 AS vacuums,
       me.rolsuper OR pg_catalog.pg_has_role(c.relowner, 'USAGE') OR (d.datdba = me.oid AND NOT c.relisshared)
         OR EXISTS (SELECT FROM pg_catalog.pg_roles m
                     WHERE m.rolname = 'pg_maintain' AND pg_catalog.pg_has_role(m.oid, 'USAGE')) AS owned
  FROM pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
  JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
 WHERE c.oid = pg_catalog.to_regclass(%(table)s)
"""
MAINTAIN = "SELECT pg_catalog.has_table_privilege(%(oid)s::oid, 'MAINTAIN') AS may"
"""From 17 on."""
DATABASE = """
SELECT d.datname::text AS name, pg_catalog.age(d.datfrozenxid) AS xid_age,
       pg_catalog.mxid_age(d.datminmxid) AS mxid_age, d.datallowconn AS connects
  FROM pg_catalog.pg_database d WHERE d.datname = coalesce(%(database)s, pg_catalog.current_database())
"""
BYTES = "SELECT pg_catalog.pg_database_size(%(database)s::name) AS bytes"
"""Stats every file of the database: run only if the whole database is vacuumed."""
SERVER = """
SELECT pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us,
       me.rolsuper OR d.datdba = me.oid
         OR EXISTS (SELECT FROM pg_catalog.pg_roles m
                     WHERE m.rolname = 'pg_maintain' AND pg_catalog.pg_has_role(m.oid, 'USAGE')) AS whole
  FROM pg_catalog.pg_roles me, pg_catalog.pg_database d
 WHERE me.rolname = current_user AND d.datname = coalesce(%(database)s, pg_catalog.current_database())
"""
DONE_SINCE = """
SELECT pg_catalog.count(*) AS tables,
       pg_catalog.count(*) FILTER (
         WHERE s.last_vacuum >= timestamptz 'epoch' + %(since)s::int8 * interval '1 microsecond') AS vacuumed,
       pg_catalog.pg_postmaster_start_time()
         >= timestamptz 'epoch' + %(since)s::int8 * interval '1 microsecond' AS restarted
  FROM pg_catalog.pg_stat_all_tables s
  JOIN pg_catalog.pg_class c ON c.oid = s.relid
 WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND (%(oid)s::int8 IS NULL OR s.relid = %(oid)s::int8)
"""
"""Partitioned tables are left out: they have no vacuum statistics; their partitions are not queried here."""
UNDER_WAY = """
SELECT a.pid, a.query_start, a.wait_event_type, pg_catalog.pg_blocking_pids(a.pid) AS blockers, p.phase,
       pg_catalog.to_jsonb(p) AS progress,
       (SELECT c.relname::text FROM pg_catalog.pg_class c
         WHERE c.oid = p.relid AND p.datname = pg_catalog.current_database()) AS relation
  FROM pg_catalog.pg_stat_activity a
  LEFT JOIN pg_catalog.pg_stat_progress_vacuum p ON p.pid = a.pid
 WHERE a.pid = %(pid)s
"""
OWN_VACUUMS = """
SELECT a.pid FROM pg_catalog.pg_stat_activity a
 WHERE a.usename = current_user AND a.application_name LIKE 'dba-console:%%' AND a.state = 'active'
   AND a.query ILIKE 'vacuum%%' AND a.pid <> pg_catalog.pg_backend_pid()
   AND a.datname = coalesce(%(database)s, pg_catalog.current_database())
"""


def statement(options: Mapping[str, str | int | bool | None], table: tuple[str, str] | None) -> str:
    """Return VACUUM with the options that are not None.

    >>> statement({"FREEZE": True, "PARALLEL": 2, "TRUNCATE": None, "INDEX_CLEANUP": "off"}, ("public", "a b"))
    'VACUUM (FREEZE, PARALLEL 2, INDEX_CLEANUP off) "public"."a b"'
    """
    given = [f"{name}{_value(value)}" for name, value in options.items() if value is not None]
    parts = ["VACUUM", *([f"({', '.join(given)})"] if given else [])]
    return " ".join(parts) + ("" if table is None else " " + sql.Identifier(*table).as_string(None))


def _value(value: str | int | bool | None) -> str:
    """Return the option value; only words and numbers from this module."""
    if value is True:
        return ""
    return f" {'off' if value is False else value}"


def phase_text(row: Mapping[str, Any] | None) -> str:
    """Return what a running VACUUM does, in a few words."""
    if row is None:
        return "waiting for its backend"
    if row["wait_event_type"] == "Lock" and row["blockers"]:
        return f"waiting for a lock held by process {', '.join(str(pid) for pid in row['blockers'])}"
    where = f" of {row['relation']}" if row["relation"] else ""
    return f"{row['phase']}{where}" if row["phase"] else "between tables"


# Progress of a running VACUUM, read over another connection.

_INTERVAL_S = 1.0
_MIN_SHARE = 0.02
"""Below this share of a phase its end is not estimated."""


class VacuumWatcher:
    """Called while the statement runs; True stops it. A failed query loses only the progress."""

    def __init__(self, connection: QueryConnection, clock: Clock, control: Control, where: str = "") -> None:
        """Opens its own connection beside `connection`; `where` is the prefix of the texts. The caller closes it."""
        self._link, self._clock, self.control, self._prefix = connection.open_another(), clock, control, where
        self._next_us = 0
        self._phase: tuple[Any, Any] = (None, None)
        self._began_us = self._began_at = 0

    def __call__(self, pid: int) -> bool:
        if self.control.stop_requested():
            return True
        now_us = self._clock.mono_us()
        if now_us < self._next_us:
            return False
        self._next_us = now_us + int(_INTERVAL_S * 1e6)
        try:
            row = next(iter(self._link.rows(UNDER_WAY, {"pid": pid}, timeout_s=2.0)), None)
        except (StatementFailed, ConnectError) as error:
            self.control.report_progress(f"{self._prefix}vacuuming; progress unknown: {error.message}")
            return False
        done, total, unit = measure("vacuum", row["progress"]) if row and row["progress"] else (None, None, "")
        self.control.report_progress(
            self._prefix + phase_text(row) + self._remaining_text(row, done, total, now_us), done, total, unit
        )
        return False

    def close(self) -> None:
        self._link.close()

    def _remaining_text(self, row: Mapping[str, Any] | None, done: int | None, total: int | None, now_us: int) -> str:
        """Return the remaining time of the phase at its rate so far; later phases are unknown."""
        phase = (row and row["relation"], row and row["phase"])
        if phase != self._phase:
            self._phase, self._began_us, self._began_at = phase, now_us, done or 0
        if not total or done is None or done - self._began_at < _MIN_SHARE * total:
            return ""
        left_s = (now_us - self._began_us) / 1e6 * (total - done) / (done - self._began_at)
        return f", about {human_duration(left_s)} left of this phase (estimated)"


_KINDS = {"r", "m", "p", "t"}
"""Tables, materialized views, partitioned tables, TOAST tables."""
_MAX_LISTED = 3
"""Maximum number of tables or databases described one by one."""
_STATISTICS_CHECKS, _STATISTICS_POLL_S = 15, 0.2
"""Before 15 the server's statistics are up to half a second late."""


class VacuumTarget(Struct, frozen=True):
    """A row that names a database, or a table in it; other columns are ignored."""

    datname: str
    table: str | None = None
    index_cleanup: bool | None = None
    """For this one; None: as in the settings."""


class VacuumSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: str | None = None
    """Table as in SQL, with its schema; default: the whole database."""
    database: str | None = None
    """Database; default: the database of the run."""
    rows: list[VacuumTarget] = []
    """Instead: rows of a preview with `datname`, optionally `table`, and `index_cleanup` if it differs, as in
    `rows = "%(oldest)s"`. Processed in this order; dropped tables are skipped, and a failure does not stop the rest."""
    freeze: bool = False
    """Freeze all rows: more than a wraparound emergency needs."""
    analyze: bool = False
    """Also collect planner statistics. Not in a wraparound emergency: that needs a transaction id."""
    index_cleanup: bool | None = None
    """False skips the indexes, which is faster and leaves dead entries in them."""
    truncate: bool | None = None
    """False keeps the empty pages at the end of the table, and so avoids the exclusive lock to truncate them."""
    skip_locked: bool = False
    """Skip locked tables without a message."""
    parallel: int | None = None
    """Workers for the indexes of a table."""
    lock_timeout: Duration | None = None
    """How long to wait for the lock of a table; default: no limit, with the holder shown."""
    timeout: Duration | None = None
    """Time limit for each; tables vacuumed by then stay vacuumed."""

    @property
    def targets(self) -> list[tuple[str | None, str | None, bool | None]]:
        """Database (None: the run's own), table (None: the whole database) and index_cleanup, in order."""
        if not self.rows:
            return [(self.database, self.table, self.index_cleanup)]
        requested = {(row.datname, row.table): row.index_cleanup for row in self.rows}
        return [(*names, self.index_cleanup if own is None else own) for names, own in requested.items()]


class Vacuum(Action):
    name: ClassVar[str] = "vacuum"
    summary: ClassVar[str] = (
        "Vacuums a table or a database, showing phase, progress, and which process it waits for; after a stop, what "
        "was vacuumed stays vacuumed. If several are given and one fails, the others are still vacuumed. Never FULL. "
        "Nothing to undo."
    )
    Settings: ClassVar[type[Struct]] = VacuumSettings
    no_undo: ClassVar[str] = "nothing to undo"
    may_shrink: ClassVar[bool] = True
    """A table that was dropped meanwhile needs no vacuum."""

    def preview(self, settings: VacuumSettings, context: ActionContext) -> ActionPreview:
        if settings.rows and (settings.database or settings.table):
            message = "set either rows, or database and table"
            return ActionPreview(text=f"Nothing will be vacuumed: {message}.", exact="", refusal=message)
        connection, databases, previews, gone = (
            context.require_connection(),
            dict[str | None, _Database](),
            list[ActionPreview](),
            list[str](),
        )
        for name, table, index_cleanup in settings.targets:
            if name not in databases:
                databases[name] = _open_database(name, connection)
            preview = _preview_one(settings, databases[name], table, index_cleanup)
            if preview.refusal is not None:
                return preview
            if preview.done and settings.rows:
                gone.append(str(table))
            else:
                previews.append(preview)
        _close_connections(connection, [database.row["name"] for database in databases.values()])
        texts = [one.text for one in previews] if len(previews) <= _MAX_LISTED else [_many_text(previews)]
        texts += [f"No longer existing: {', '.join(gone[:5])}{' …' if gone[5:] else ''}."] if gone else []
        if not previews:
            return ActionPreview(text=" ".join(texts), exact="", done=True, count=0)
        return ActionPreview(
            text=" ".join(texts),
            exact=";\n".join(one.exact for one in previews),
            values={**_sum_figures([one.values for one in previews]), "looked_us": previews[0].values["looked_us"]},
            count=len(previews),
            rows=tuple(row for one in previews for row in one.rows),
        )

    def act(
        self, settings: VacuumSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection, done, failed, many = context.require_connection(), list[str](), list[str](), len(preview.rows)
        for number, key in enumerate(preview.rows):
            if number and control.stop_requested():
                return _result(
                    connection, preview, "stopped", _summary(done, failed, f"stopped after {number} of {many}")
                )
            database_connection = connection.for_database(key["database"])
            where = "" if many == 1 else f"{number + 1} of {many}, {_target_name(key)}: "
            try:
                state, text = _vacuum(
                    settings,
                    key,
                    database_connection,
                    VacuumWatcher(database_connection, context.clock, control, where),
                )
            except StatementLost as error:
                return ActionResult(
                    state="unknown", text=_summary(done, failed, f"{_target_name(key)}: {error.message}")
                )
            text_of_one = text if many == 1 else f"{_target_name(key)}: {text}"
            if state == "stopped":
                return _result(connection, preview, state, _summary(done, failed, text_of_one))
            (done if state == "ok" else failed).append(text_of_one)
            if number + 1 < many and preview.rows[number + 1]["database"] != key["database"]:
                _close_connections(connection, [key["database"]])
        return _result(connection, preview, "failed" if failed else "ok", _summary(done, failed))

    def settle(self, settings: VacuumSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection, undone, known = context.require_connection(), list[str](), True
        for key in preview.rows:
            database_connection = connection.for_database(key["database"])
            if rows := database_connection.rows(OWN_VACUUMS, {"database": key["database"]}):
                pids = ", ".join(str(row["pid"]) for row in rows)
                return ActionResult(
                    state="unknown", text=f"a VACUUM of this console is still running in process {pids}"
                )
            if key["oid"] is not None and _read_table(key["table"], database_connection) is None:
                continue
            [row] = database_connection.rows(DONE_SINCE, {"since": preview.values["looked_us"], "oid": key["oid"]})
            if row["vacuumed"] < row["tables"]:
                undone.append(f"{_target_name(key)}: {row['vacuumed']} of {row['tables']} tables")
            known = known and bool(row["tables"]) and not row["restarted"]
        if not known:
            text = "its backend has ended, and the server's statistics do not show how; vacuuming again is safe"
            return _result(connection, preview, "unknown", text)
        if undone:
            text = f"not everything was vacuumed ({'; '.join(undone[:3])}); vacuuming again is safe"
            return _result(connection, preview, "failed", text)
        return _result(connection, preview, "ok", "every table was vacuumed since")


class _Database(NamedTuple):
    """A database with its connection; `refusal` is why it cannot be read."""

    link: QueryConnection
    row: Mapping[str, Any]
    now: Mapping[str, Any]
    refusal: str | None = None


def _open_database(name: str | None, connection: QueryConnection) -> _Database:
    database = next(iter(connection.rows(DATABASE, {"database": name})), None)
    if database is None or not database["connects"]:
        message = f"database {name} {'does not exist' if database is None else 'allows no connections'}"
        return _Database(connection, {}, {}, message)
    database_connection = connection.for_database(database["name"])
    [now] = database_connection.rows(SERVER, {"database": database["name"]})
    return _Database(database_connection, database, now)


def _preview_one(
    settings: VacuumSettings, database: _Database, table_name: str | None, index_cleanup: bool | None
) -> ActionPreview:
    """Return the preview of one database or table; `done` if the table does not exist."""
    if database.refusal is not None:
        return ActionPreview(text=f"The {database.refusal}.", exact="", refusal=database.refusal)
    table = None if table_name is None else _read_table(table_name, database.link)
    if table_name is not None and table is None and settings.rows:
        return ActionPreview(text=f"Table {table_name} does not exist.", exact="", done=True)
    refusal = _refusal(table_name, database.now, table, database.link)
    if refusal is not None:
        return ActionPreview(text=f"Nothing will be vacuumed: {refusal}.", exact="", refusal=refusal)
    name = database.row["name"]
    shown = table or {**database.row, **database.link.rows(BYTES, {"database": name})[0]}
    key = {"database": name, "table": table_name, "oid": None if table is None else table["oid"]}
    return ActionPreview(
        text=_preview_text(table_name, name, shown),
        exact=f"{_statement(settings, table, index_cleanup)} in database {name}",
        values={**_figures(shown), "looked_us": database.now["now_us"]},
        rows=({**key, "index_cleanup": index_cleanup},),
    )


def _vacuum(
    settings: VacuumSettings, key: Mapping[str, Any], connection: ActingConnection, watch: VacuumWatcher
) -> tuple[str, str]:
    """Vacuum; return state and text. Raises StatementLost."""
    [now] = connection.rows(SERVER, {"database": key["database"]})
    table = None if key["oid"] is None else _read_table(key["table"], connection)
    if key["oid"] is not None and table is None:
        return "ok", "dropped meanwhile"
    if key["oid"] is not None and table is not None and table["oid"] != key["oid"]:
        return "failed", f"nothing was done: {key['table']} is no longer the table that was shown"
    with closing(watch):
        try:
            result = connection.execute_change(
                _statement(settings, table, key["index_cleanup"]),
                transaction=False,
                timeout_s=None if settings.timeout is None else parse_duration(settings.timeout),
                lock_timeout_s=0.0 if settings.lock_timeout is None else parse_duration(settings.lock_timeout),
                watch=watch,
            )
        except StatementStopped:
            return "stopped", "stopped; tables vacuumed by then stay vacuumed"
        except StatementFailed as error:
            return "failed", f"VACUUM failed: {error.message}"
    return _check_vacuumed(connection, key, now["now_us"], result.warnings, watch.control)


def _close_connections(connection: QueryConnection, databases: Iterable[str]) -> None:
    """Close the connections to other databases, to save connections on a server with many databases."""
    for name in dict.fromkeys(databases):
        if (database_connection := connection.for_database(name)) is not connection:
            database_connection.close()


def _read_table(name: str, connection: QueryConnection) -> dict[str, Any] | None:
    rows = connection.rows(TABLE, {"table": name})
    return rows[0] if rows else None


def _statement(settings: VacuumSettings, table: Mapping[str, Any] | None, index_cleanup: bool | None) -> str:
    options = {
        "FREEZE": settings.freeze or None,
        "ANALYZE": settings.analyze or None,
        "INDEX_CLEANUP": index_cleanup,
        "TRUNCATE": settings.truncate,
        "SKIP_LOCKED": settings.skip_locked or None,
        "PARALLEL": settings.parallel,
    }
    return statement(options, None if table is None else (table["schema"], table["name"]))


def _refusal(
    name: str | None, now: Mapping[str, Any], table: Mapping[str, Any] | None, connection: QueryConnection
) -> str | None:
    if now["in_recovery"]:
        return "this is a standby: VACUUM runs on its primary, and its effect is replicated"
    if name is None:
        return None if now["whole"] else "this role does not own the database, so most tables would be skipped"
    if table is None:
        return f"table {name} does not exist"
    if table["kind"] not in _KINDS:
        return f"{name} is not a table"
    maintains = now["version_num"] >= 170000 and connection.rows(MAINTAIN, {"oid": table["oid"]})[0]["may"]
    return None if table["owned"] or maintains else f"this role may not vacuum {name}: it is not its owner"


def _preview_text(name: str | None, database: str, shown: Mapping[str, Any]) -> str:
    what = f"table {name} in database {database}" if name else f"every table of database {database}"
    dead = shown.get("dead_rows")
    rows = "" if dead is None else f", about {human_count(dead)} dead rows"
    age = "" if shown["xid_age"] is None else f", XID age {human_count(shown['xid_age'])}"
    multi = shown.get("mxid_age") or 0
    ages = f"{age}, multixact age {human_count(multi)}" if multi > (shown["xid_age"] or 0) else age
    return f"Vacuum {what}: {human_bytes(shown['bytes'])}{rows}{ages}."


def _many_text(previews: Sequence[ActionPreview]) -> str:
    """Summarize many previews in one sentence."""
    figures, keys = _sum_figures([one.values for one in previews]), [preview.rows[0] for preview in previews]
    databases = list(dict.fromkeys(key["database"] for key in keys))
    where = ", ".join(databases[:5]) + (f" and {len(databases) - 5} more" if databases[5:] else "")
    what = f"{len(previews)} tables, one after the other, in" if keys[0]["table"] else "every table of"
    noun = "database" if len(databases) == 1 else "databases"
    size = "" if figures["bytes"] is None else f": {human_bytes(figures['bytes'])}"
    age = "" if figures["xid_age"] is None else f", maximum XID age {human_count(figures['xid_age'])}"
    return f"Vacuum {what} {noun} {where}{size}{age}. The first is {_target_name(keys[0])}."


def _summary(done: Sequence[str], failed: Sequence[str], last: str = "") -> str:
    """Summarize the results: failures first, each with its reason."""
    if len(done) + len(failed) + bool(last) <= 3:
        return "; ".join([*failed, *done, *([last] if last else [])])
    parts = [f"{len(failed)} failed: {'; '.join(failed[:5])}{' …' if failed[5:] else ''}"] if failed else []
    parts += [f"{len(done)} vacuumed"] if done else []
    return "; ".join([*parts, *([last] if last else [])])


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"xid_age": row["xid_age"], "bytes": row["bytes"], "dead_rows": row.get("dead_rows")}


def _sum_figures(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the maximum XID age, and the sums of bytes and dead rows."""

    def known(name: str) -> list[Any]:
        return [row[name] for row in figures if row.get(name) is not None]

    return {
        "xid_age": max(known("xid_age"), default=None),
        "bytes": sum(known("bytes")) if known("bytes") else None,
        "dead_rows": sum(known("dead_rows")) if known("dead_rows") else None,
    }


def _target_name(key: Mapping[str, Any]) -> str:
    return f"{key['table']} in {key['database']}" if key["table"] else str(key["database"])


def _result(connection: QueryConnection, preview: ActionPreview, state: str, text: str) -> ActionResult:
    """Return the result with the values of the preview measured again; without them if the server does not answer."""
    figures = []
    try:
        for key in preview.rows:
            table = (
                _read_table(key["table"], connection.for_database(key["database"])) if key["oid"] is not None else None
            )
            if table is not None:
                figures.append(_figures(table))
            elif key["oid"] is None:
                asked = {"database": key["database"]}
                figures.append(_figures({**connection.rows(DATABASE, asked)[0], **connection.rows(BYTES, asked)[0]}))
    except (StatementFailed, ConnectError):
        return ActionResult(state=state, text=text)
    finally:
        _close_connections(connection, [key["database"] for key in preview.rows])
    return ActionResult(state=state, text=text, values=_sum_figures(figures))


def _check_vacuumed(
    connection: QueryConnection, key: Mapping[str, Any], since_us: int, warnings: Sequence[str], control: Control
) -> tuple[str, str]:
    """Check the statistics: VACUUM also succeeds if it skipped a table, which it reports only as a warning."""
    for _ in range(_STATISTICS_CHECKS):
        [row] = connection.rows(DONE_SINCE, {"since": since_us, "oid": key["oid"]})
        if row["vacuumed"] == row["tables"] or control.wait(_STATISTICS_POLL_S):
            break
    beside = f": {'; '.join(warnings[:3])}" if warnings else ""
    if row["tables"] and not row["vacuumed"] and warnings:
        return "failed", f"{'every table' if key['oid'] is None else 'the table'} was skipped{beside}"
    if key["oid"] is None:
        return "ok", f"{row['vacuumed']} of {row['tables']} tables vacuumed{beside}"
    return "ok", f"vacuumed{beside}"
