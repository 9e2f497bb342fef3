"""A primary and its standby, each as a target."""

from __future__ import annotations

import pytest

from dba_console.demo.temporary_server import make_standby
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import query


@pytest.mark.parametrize("major", [None])
def test_each_side_of_a_replication_is_read(major: int | None, fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster({"wal_level": "replica"}, major=major)
    standby = make_standby(primary, slot="seat_1", settings={"hot_standby_feedback": "on"})
    try:
        standby.start()
        wait_until(lambda: query(primary, "select 1 from pg_stat_replication where state = 'streaming'"))
        with connected_probe(primary) as here, connected_probe(standby) as there:
            sent = read(here)
            received = read(there)
            query(primary, "create table t as select generate_series(1, 1000) n")
            caught_up = wait_until(lambda: _caught_up(here))
    finally:
        standby.close()
    good = {"ok"} | ({"unsupported"} if primary.major < 16 else set())
    assert {part.status for part in sent.values()} == good
    assert {part.status for part in received.values()} == good, [part.note for part in received.values()]
    at_primary, at_standby = sent["pg.replication"].decode(), received["pg.replication"].decode()
    assert (at_primary.in_recovery, at_standby.in_recovery) == (False, True)
    assert at_primary.timeline == at_standby.timeline == 1
    [row] = at_primary.standbys
    assert (row.state, row.sync_state, row.user, row.client) == ("streaming", "async", "postgres", "[local]")
    [slot] = at_primary.slots
    assert (slot.name, slot.kind, slot.wal_status) == ("seat_1", "physical", "reserved")
    assert slot.active_pid == row.pid
    assert at_standby.receiver_status == "streaming"
    assert at_standby.replay_paused is False
    assert at_standby.lsn is not None
    assert at_standby.receive_lsn is not None
    assert received["pg.server"].decode().in_recovery
    assert received["pg.server"].decode().system_identifier == sent["pg.server"].decode().system_identifier
    assert caught_up


def _caught_up(probe: object) -> bool:
    """The standby has replayed up to where the primary writes."""
    now = reading(probe, "pg.replication")  # type: ignore[arg-type]
    return any(row.replay_lsn == now.lsn for row in now.standbys)
