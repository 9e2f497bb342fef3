"""pg.xids and pg.horizon: how far wraparound is, and what keeps the horizon back."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row, wall_us
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.probes.postgres.readings.activity import text
from dba_console.redact import redact
from dba_console.samples.postgres import DatabaseXid, Horizon, HorizonHolder, TableXid, Xids


def xids_of(databases: Sequence[Row], tables: Sequence[Row], names: OidNames) -> Xids:
    """Ages of every database and of the oldest tables of the connected one."""
    now, next_xid, next_mxid = databases[0][:3] if databases else (None, None, None)
    return Xids(
        now_us=wall_us(now) or 0,
        next_xid=next_xid,
        next_mxid=next_mxid,
        databases=[DatabaseXid(decode_name(name, names.codec), age, mxid_age) for *_, name, age, mxid_age in databases],
        tables=[_table(row, names.codec) for row in tables],
    )


def _table(row: Row, codec: str) -> TableXid:
    schema, name, xid_age, mxid_age, pages, vacuumed, autovacuumed = row
    label = f"{decode(schema, codec)}.{decode(name, codec)}"
    return TableXid(label, xid_age, mxid_age, pages, wall_us(vacuumed), wall_us(autovacuumed))


def horizon_of(rows: Sequence[Row], names: OidNames) -> Horizon:
    """What holds it, oldest first."""
    return Horizon([_holder(row, names.codec) for row in rows])


def _holder(row: Row, codec: str) -> HorizonHolder:
    kind, who, pid, age, since, database, state = row
    label = redact(text(who, codec) or "")
    return HorizonHolder(kind.decode(), label, pid, age, wall_us(since), text(database, codec), text(state, codec))
