"""The statements by which the acting connection finds out where it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dba_console.actions.identity import PRIMARY, STANDBY, ServerIdentity

IDENTITY = b"""
SELECT pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.pg_postmaster_start_time() AS server_start,
       pg_catalog.current_setting('port')::int4 AS port,
       (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name = 'data_directory') AS data_directory,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS address,
       pg_catalog.current_database()::text AS database,
       current_user::text AS "user",
       pg_catalog.pg_backend_pid() AS pid
"""
CONTROL_DATA = b"""
SELECT s.system_identifier,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN coalesce((SELECT r.received_tli FROM pg_catalog.pg_stat_wal_receiver r), c.timeline_id)
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END AS timeline
  FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c
"""
"""As the watching connection asks it: pg_control lags behind a promotion until the next checkpoint."""
MAY_READ_CONTROL = b"""
SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
   AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE') AS may
"""
BACKEND_START = b"""
SELECT a.backend_start, a.application_name
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a
"""
XID = b"SELECT pg_catalog.pg_current_xact_id_if_assigned()::text AS xid"
SET_TIMEOUTS = b"""
SELECT pg_catalog.set_config('statement_timeout', %(statement)s, %(local)s),
       pg_catalog.set_config('lock_timeout', %(lock)s, %(local)s),
       pg_catalog.set_config('idle_in_transaction_session_timeout', %(idle)s, %(local)s)
"""


def make_identity(row: Mapping[str, Any], control: Mapping[str, Any] | None) -> ServerIdentity:
    """The identity that WHO and CONTROL describe."""
    return ServerIdentity(
        # A signed 64-bit number in the view, unsigned in pg_controldata.
        system_identifier=None if control is None else str(control["system_identifier"] & 0xFFFF_FFFF_FFFF_FFFF),
        role=STANDBY if row["in_recovery"] else PRIMARY,
        timeline=None if control is None else control["timeline"],
        server_start_us=to_wall_us(row["server_start"]),
        version_num=row["version_num"],
        data_directory=row["data_directory"],
        port=row["port"],
        address=row["address"],
        database=row["database"],
        user=row["user"],
    )


def to_wall_us(when: datetime) -> int:
    """Microseconds since 1970, without the rounding of a float."""
    since = when - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
