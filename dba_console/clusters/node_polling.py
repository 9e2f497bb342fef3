"""Poll a node or pooler every two seconds with one short query, over a persistent connection.

`survey` reads everything once and loads the driver; an agent that watches a cluster for weeks uses these polls. Each
poll is used by the thread of one lane. Errors are raised and close the connection; the caller decides when to retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from dba_console.clusters.cluster_check import lsn_text
from dba_console.clusters.cutover_mark import MARK, parse_mark
from dba_console.clusters.last_primary import LastPrimary, save_last_primary
from dba_console.clusters.pooler_state import ANSWER_S as CONNECT_S
from dba_console.clusters.pooler_state import PooledDatabase, open_admin, read_pools
from dba_console.clusters.subject.readings import (
    STANDBY_MINIMUM_SETTINGS,
    NodeDetails,
    NodeNow,
    NodeSlotNow,
    PoolerDatabase,
    PoolerNow,
    Sender,
)
from dba_console.core.clock import Clock
from dba_console.core.config import NodeConfig, PoolerConfig
from dba_console.core.decoding import json_decoder
from dba_console.core.errors import ConsoleError, UsageError
from dba_console.core.target import address_of, parse_conninfo
from dba_console.watch.probes.postgres.connect import (
    open_connection,
    refuse_host_override,
)
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.simple_query import last_value

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

T = TypeVar("T")

SILENCE_S = 30.0
"""A connection without an answer for this time is closed. Long, because each new connection to a hung server takes one
more slot."""
SPARE_SLOTS = 3
"""Connection slots for ordinary users that must stay free; with fewer the connection is closed at once."""

# Until search_path is set, that of the database's owner decides which functions and operators are used: use none here.
# Set for this transaction only, so that it works behind a transaction pooler too.
_SESSION_SETTINGS = """
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', '2000', true), pg_catalog.set_config('lock_timeout', '100', true);
"""
_RIGHTS_QUERY = """
SELECT row_to_json(x)::text FROM (
  SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
         has_function_privilege('pg_control_system()', 'EXECUTE')
           AND has_function_privilege('pg_control_checkpoint()', 'EXECUTE')
           AND has_function_privilege('pg_control_recovery()', 'EXECUTE') AS control,
         has_function_privilege('pg_ls_archive_statusdir()', 'EXECUTE') AS archive,
         has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE') AS files,
         current_setting('max_connections')::int4 - current_setting('superuser_reserved_connections')::int4
           - coalesce(current_setting('reserved_connections', true), '0')::int4
           - (SELECT sum(numbackends)::int4 FROM pg_stat_database) AS free) x
"""
_IDENTITY = "SELECT system_identifier::text FROM pg_control_system()"
_CONTROL = """(SELECT greatest(k.timeline_id, m.min_recovery_end_timeline)
                 FROM pg_control_checkpoint() k, pg_control_recovery() m)"""
_NODE = r"""
SELECT row_to_json(x)::text FROM (
  SELECT CASE WHEN r.standby THEN 'standby' ELSE 'primary' END AS role,
         (date_part('epoch', pg_postmaster_start_time()) * 1e6)::int8 AS started_us,
         CASE WHEN r.standby THEN greatest(w.received_tli, {control})
              ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int4 END AS timeline,
         (CASE WHEN r.standby THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
               ELSE pg_current_wal_lsn() END - '0/0')::int8 AS lsn,
         (CASE WHEN r.standby THEN pg_last_wal_replay_lsn() END - '0/0')::int8 AS replayed_lsn,
         CASE WHEN r.standby THEN pg_is_wal_replay_paused() END AS replay_paused,
         CASE WHEN r.standby
              THEN date_part('epoch', clock_timestamp() - pg_last_xact_replay_timestamp()) END AS replayed_ago_s,
         w.status AS receiver, w.slot_name::text AS receiver_slot,
         CASE WHEN w.pid IS NOT NULL THEN coalesce((regexp_match(w.conninfo, '(?:^| )application_name=(\S+)'))[1],
              nullif(current_setting('cluster_name'), ''), 'walreceiver') END AS receiver_application,
         (SELECT coalesce(json_agg(json_build_array(s.pid, s.application_name, host(s.client_addr), s.state,
                   s.sync_state, date_part('epoch', s.replay_lag), l.slot_name)
                   ORDER BY s.application_name, s.pid), '[]')
            FROM pg_stat_replication s LEFT JOIN pg_replication_slots l ON l.active_pid = s.pid
           WHERE s.state IS DISTINCT FROM 'backup') AS senders,
         (SELECT coalesce(json_agg(json_build_array(l.slot_name, l.slot_type, l.active, l.wal_status,
                   greatest(0, (CASE WHEN r.standby THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
                                - l.restart_lsn)::int8)) ORDER BY l.slot_name), '[]')
            FROM pg_replication_slots l) AS slots,
         (SELECT min(m.mark) FROM ({mark}) m) AS mark
    FROM (SELECT pg_is_in_recovery() AS standby) r LEFT JOIN pg_stat_wal_receiver w ON true) x
"""
_DETAILS = """
SELECT row_to_json(x)::text FROM (
  SELECT (SELECT json_object_agg(name, setting) FROM pg_settings
           WHERE name = ANY (ARRAY['max_connections', 'max_prepared_transactions', 'max_locks_per_transaction',
             'max_wal_senders', 'max_worker_processes', 'recovery_min_apply_delay', 'shared_preload_libraries']))
           AS settings,
         {archive} AS archive_ready,
         (SELECT coalesce(last_failed_time > last_archived_time, last_failed_time IS NOT NULL) FROM pg_stat_archiver
           WHERE current_setting('archive_mode') <> 'off') AS archive_failing,
         (SELECT last_archived_wal FROM pg_stat_archiver) AS last_archived,
         (SELECT setting FROM pg_settings WHERE name = 'data_directory') AS data_directory,
         {history} AS history) x
"""
_ARCHIVE = """CASE WHEN current_setting('archive_mode') = 'always'
                     OR (current_setting('archive_mode') = 'on' AND NOT pg_is_in_recovery())
                   THEN (SELECT count(*) FROM pg_ls_archive_statusdir() WHERE right(name, 6) = '.ready') END"""
_HISTORY = """CASE WHEN NOT pg_is_in_recovery()
                   THEN pg_read_file('pg_wal/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || '.history',
                                     0, 65536, true) END"""


class _Rights(Struct):
    """Privileges of the role when the connection was opened."""

    version: str
    control: bool
    archive: bool
    files: bool
    free: int


class _Answer(Struct):
    """The columns of the query: fields of NodeNow."""

    role: str
    started_us: int
    timeline: int | None
    lsn: int | None
    replayed_lsn: int | None
    replay_paused: bool | None
    replayed_ago_s: float | None
    receiver: str | None
    receiver_slot: str | None
    receiver_application: str | None
    senders: tuple[Sender, ...]
    slots: tuple[NodeSlotNow, ...]
    mark: str | None


class _SlowAnswer(Struct):
    settings: dict[str, str] | None
    archive_ready: int | None
    archive_failing: bool | None
    last_archived: str | None
    data_directory: str | None
    history: str | None


_RIGHTS, _ANSWER, _SLOW = json_decoder(_Rights), json_decoder(_Answer), json_decoder(_SlowAnswer)


class _Poll:
    """One persistent connection."""

    _connection: PGconn | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.finish()
            self._connection = None


class NodePoll(_Poll):
    """Polls one node."""

    def __init__(self, name: str, config: NodeConfig, clock: Clock, cluster: str = "") -> None:
        """With `cluster`, the position of its primary is saved for a failover whenever the details are read."""
        self.name, self._config, self._clock, self._cluster = name, config, clock, cluster
        self._identity: str | None = None
        self._role, self._role_from_us = ("", 0), 0
        """Role and server start: behind a pooler or a virtual address the server may change."""

    def state(self) -> NodeNow:
        """Return the state before the first answer."""
        return NodeNow(self.name, known_addresses(self._config.dsn))

    def ask(self, details: bool) -> tuple[NodeNow, NodeDetails | None]:
        """Read the current state; with `details` also slowly changing values. Raises ConsoleError."""
        try:
            if self._connection is None:
                self._connection = self._open()
            return self._ask(self._connection, details)
        except BaseException:
            self.close()
            raise

    def _open(self) -> PGconn:
        refuse_host_override(self.name, self._config.dsn)
        options = parse_conninfo(self._config.dsn)
        connection = open_connection(options, CONNECT_S, self._clock, client_encoding="UTF8")
        try:
            self._rights = rights = self._value(connection, _RIGHTS_QUERY, _RIGHTS)
            if rights.free < SPARE_SLOTS:
                raise ConnectFailed("no_slots", f"only {max(0, rights.free)} connections are free there: not connected")
            raw = last_value(connection, _query(_IDENTITY), SILENCE_S, self._clock) if rights.control else None
        except BaseException:
            connection.finish()
            raise
        # Signed 64-bit in the view, unsigned in pg_controldata.
        self._identity = None if raw is None else str(int(raw) & 0xFFFF_FFFF_FFFF_FFFF)
        self._addresses = known_addresses(self._config.dsn, connection)
        self._role = ("", 0)
        return connection

    def _ask(self, connection: PGconn, details: bool) -> tuple[NodeNow, NodeDetails | None]:
        control = _CONTROL if self._rights.control else "NULL"
        asked_us = self._clock.mono_us()
        answer = self._value(connection, _NODE.format(control=control, mark=MARK), _ANSWER)
        at_us = self._clock.mono_us()
        if (answer.role, answer.started_us) != self._role:
            # Details depend on the role, such as the history of a new timeline: read them too.
            self._role, self._role_from_us, details = (answer.role, answer.started_us), at_us, True
        values = msgspec.structs.asdict(answer)
        mark = parse_mark(values.pop("mark"))
        now = NodeNow(
            self.name,
            self._addresses,
            asked_us=asked_us,
            at_us=at_us,
            role_from_us=self._role_from_us,
            system_identifier=self._identity,
            version=self._rights.version,
            cutover=mark,
            **values,
        )
        if not details:
            return now, None
        slow = self._slow_answer(connection)
        if self._cluster:
            self._save_primary_position(now, slow)
        return now, NodeDetails(
            self.name, self._clock.mono_us(), slow.settings or {}, slow.archive_ready, slow.archive_failing,
            slow.history,
        )  # fmt: skip

    def _save_primary_position(self, now: NodeNow, slow: _SlowAnswer) -> None:
        """Save the primary's position: a failover compares its target with it."""
        if now.role != "primary" or now.lsn is None:
            return
        try:
            save_last_primary(
                LastPrimary(
                    cluster=self._cluster, node=self.name, at_us=self._clock.wall_us(), lsn=lsn_text(now.lsn),
                    timeline=now.timeline, system_identifier=now.system_identifier,
                    data_directory=slow.data_directory, last_archived=slow.last_archived,
                    settings={name: value for name, value in (slow.settings or {}).items()
                              if name in STANDBY_MINIMUM_SETTINGS},
                )
            )  # fmt: skip
        except (OSError, ConsoleError):
            pass  # a full disk or a foreign directory: a failover then reports the loss as unknown

    def _slow_answer(self, connection: PGconn) -> _SlowAnswer:
        text = _DETAILS.format(
            archive=_ARCHIVE if self._rights.archive else "NULL::int4",
            history=_HISTORY if self._rights.files else "NULL::text",
        )
        try:
            return self._value(connection, text, _SLOW)
        except ConnectionLost:
            raise
        except ConsoleError:  # too slow, or refused: the regular poll is more important
            return _SlowAnswer(None, None, None, None, None, None)

    def _value(self, connection: PGconn, sql: str, decoder: Decoder[T]) -> T:
        raw = last_value(connection, _query(sql), SILENCE_S, self._clock)
        try:
            return decoder.decode(raw.decode("utf-8", "replace"))
        except msgspec.MsgspecError as error:
            raise ConsoleError(f"its answer cannot be read: {error}") from None


class PoolerPoll(_Poll):
    """Polls one PgBouncer."""

    def __init__(self, name: str, config: PoolerConfig, clock: Clock) -> None:
        self.name, self._config, self._clock = name, config, clock
        self._paused: dict[str, int] = {}

    def state(self) -> PoolerNow:
        return PoolerNow(self.name)

    def ask(self, details: bool) -> tuple[PoolerNow, None]:
        """Read the current state. Raises ConsoleError."""
        try:
            if self._connection is None:
                self._connection = open_admin(self._config, self._clock)
            found = read_pools(self._connection, self.name, self._config, self._clock)
            if found.error:
                raise ConsoleError(found.error)
        except BaseException:
            self.close()
            raise
        self._paused = {one.name: self._paused.get(one.name, found.asked_us) for one in found.databases if one.paused}
        databases = tuple(self._pooled(one) for one in found.databases)
        return PoolerNow(self.name, at_us=self._clock.mono_us(), databases=databases, missing=found.missing), None

    def _pooled(self, one: PooledDatabase) -> PoolerDatabase:
        return PoolerDatabase(
            one.name, one.host, one.port, one.mode, one.paused, self._paused.get(one.name), one.clients_active,
            one.clients_waiting, one.servers_active + one.servers_idle, one.longest_wait_s,
        )  # fmt: skip


def known_addresses(dsn: str, connection: PGconn | None = None) -> tuple[str, ...]:
    """Return `host:port` of the configuration, and of the connection. Service files are not read here."""
    try:
        address = address_of(dsn)
    except UsageError:
        return ()  # reported when it is connected
    addresses = [f"{address.host}:{address.port}"] if address.host and address.port else []
    if connection is not None:
        port = connection.port.decode()
        addresses += [f"{host.decode()}:{port}" for host in (connection.host, connection.hostaddr) if host]
    return tuple(dict.fromkeys(addresses))


def _query(sql: str) -> bytes:
    return f"{_SESSION_SETTINGS}{sql}".encode()
