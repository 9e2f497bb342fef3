"""pg.server: who the server is, how it is set, and what this connection is on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dba_console.probes.postgres.binary_results import Row, client_address, wall_us
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.redact import redact
from dba_console.samples.postgres import Database, Role, Server, Setting

SETTINGS = (
    "archive_command", "archive_library", "archive_mode", "archive_timeout", "autovacuum",
    "autovacuum_freeze_max_age", "autovacuum_max_workers", "autovacuum_multixact_freeze_max_age",
    "block_size", "checkpoint_timeout",
    "cluster_name", "config_file", "data_checksums", "data_directory", "hba_file", "hot_standby_feedback",
    "huge_page_size", "huge_pages", "huge_pages_status", "idle_in_transaction_session_timeout",
    "listen_addresses", "log_destination", "log_directory", "logging_collector", "max_connections",
    "max_prepared_transactions", "max_replication_slots", "max_slot_wal_keep_size", "max_wal_senders",
    "max_wal_size", "port", "recovery_min_apply_delay", "recovery_target", "recovery_target_lsn",
    "recovery_target_name", "recovery_target_time", "recovery_target_xid", "reserved_connections",
    "server_encoding", "shared_buffers",
    "superuser_reserved_connections", "synchronous_standby_names", "temp_tablespaces",
    "track_activity_query_size", "track_counts", "track_io_timing", "unix_socket_directories", "update_process_title",
    "vacuum_failsafe_age", "vacuum_multixact_failsafe_age", "wal_keep_size", "wal_level", "wal_segment_size",
)  # fmt: skip
"""Settings kept in the sample. primary_conninfo and restore_command are not among them: they may hold a password."""


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What is known of the connection itself since it was opened."""

    version_num: int
    user: str
    superuser: bool
    backend_pid: int
    seat: str
    through: str | None
    local: bool | None
    local_note: str | None


def settings_param() -> bytes:
    """The names of SETTINGS as an array literal."""
    return ("{" + ",".join(SETTINGS) + "}").encode()


def server_of(rows: Mapping[str, Sequence[Row]], own: ConnectionFacts, names: OidNames) -> Server:
    """`rows` by statement; only `server` must be there, the others may have been refused."""
    version, in_recovery, start, now, monitor, signal, reserved, address, port = rows["server"][0]
    identifier, timeline = rows["control"][0] if rows.get("control") else (None, None)
    settings = [_setting(row, names) for row in rows.get("settings", ())]
    return Server(
        version_num=own.version_num,
        version=version.decode().split()[0],
        # A signed 64-bit number in the view, unsigned in pg_controldata.
        system_identifier=None if identifier is None else str(identifier & 0xFFFF_FFFF_FFFF_FFFF),
        in_recovery=in_recovery,
        timeline=timeline,
        start_us=wall_us(start) or 0,
        now_us=wall_us(now) or 0,
        current_user=own.user,
        database=names.own_name,
        superuser=own.superuser,
        pg_monitor=monitor,
        signal_backend=signal,
        reserved_member=reserved,
        backend_pid=own.backend_pid,
        server_address=client_address(address),
        server_port=port,
        data_directory=next((setting.value for setting in settings if setting.name == "data_directory"), None),
        settings=settings,
        databases=[_database(row, names.codec) for row in rows.get("databases", ())],
        roles=[Role(decode_name(name, names.codec), *rest) for name, *rest in rows.get("roles", ())],
        tablespaces={
            decode_name(name, names.codec): decode(location) for name, location in rows.get("tablespaces", ())
        },
        extensions=[decode_name(name, names.codec) for (name,) in rows.get("extensions", ())],
        seat=own.seat,
        through=own.through,
        local=own.local,
        local_note=own.local_note,
    )


def _setting(row: Row, names: OidNames) -> Setting:
    name, value, unit, source = row
    shown = redact(decode(value or b"", names.codec))
    return Setting(name.decode(), shown, None if unit is None else unit.decode(), source.decode())


def _database(row: Row, codec: str) -> Database:
    oid, name, encoding, limit, allows, template, space = row
    tablespace = None if space is None else decode_name(space, codec)
    return Database(oid, decode_name(name, codec), encoding.decode(), limit, allows, template, tablespace)
