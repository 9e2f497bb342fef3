"""Incidents of db2, the target of the cutover: it lags, is paused, has lower settings, lost its slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.incident import wait_for
from dba_console.demo.practice_cluster import DATABASE

if TYPE_CHECKING:
    from dba_console.demo.practice_cluster import Node, PracticeCluster

REPORT = "quarterly-report"
TABLE = "quarterly_figures"
BEHIND_MIB = 48
"""WAL that is not replayed: three times what `cluster check` accepts."""
MORE_CONNECTIONS = 200


class StandbyLags(ClusterIncident):
    """A report on db2 reads a table that is truncated on db1: replay waits for the report, without a limit."""

    name: ClassVar[str] = "standby-lags"
    title: ClassVar[str] = f"replay on db2 waits for {REPORT}, and falls behind"
    check: ClassVar[str] = "lag"

    def cause(self, ground: PracticeCluster) -> None:
        db1, db2 = _pair(ground)
        db1.psql(f"create table if not exists {TABLE} as select 1 as figure", dbname=DATABASE)
        db2.reload({"max_standby_streaming_delay": -1})
        wait_for(db2, "current_setting('max_standby_streaming_delay') = '-1'")
        wait_for(db2, f"pg_last_wal_replay_lsn() >= '{db1.psql('select pg_current_wal_lsn()')}'")
        ground.standby_clients.psql(
            "begin isolation level repeatable read;", f"select figure from {TABLE};",
            application=REPORT, dbname=DATABASE,
        )  # fmt: skip
        wait_for(db2, f"exists (select from pg_stat_activity where application_name = '{REPORT}' and {_IDLE})")
        db1.psql(f"truncate {TABLE}", dbname=DATABASE)
        db1.psql(
            f"select pg_logical_emit_message(false, 'bulk', repeat('x', 1 << 20)) from generate_series(1, {BEHIND_MIB})"
        )
        written = db1.psql("select pg_current_wal_lsn()")
        wait_for(db2, f"pg_last_wal_receive_lsn() >= '{written}'")

    def end(self, ground: PracticeCluster) -> None:
        ground.standby_clients.stop()
        db1, db2 = _pair(ground)
        db2.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{REPORT}'")
        del db2.settings["max_standby_streaming_delay"]
        db2.reload()
        wait_for(db2, f"pg_last_wal_replay_lsn() >= '{db1.psql('select pg_current_wal_lsn()')}'")


class ReplayPaused(ClusterIncident):
    name: ClassVar[str] = "replay-paused"
    title: ClassVar[str] = "replay on db2 was paused for a backup, and not resumed"
    check: ClassVar[str] = "replay"

    def cause(self, ground: PracticeCluster) -> None:
        _, db2 = _pair(ground)
        db2.psql("select pg_wal_replay_pause()")
        wait_for(db2, "pg_get_wal_replay_pause_state() = 'paused'" if db2.major >= 14 else "pg_is_wal_replay_paused()")

    def end(self, ground: PracticeCluster) -> None:
        _, db2 = _pair(ground)
        db2.psql("select pg_wal_replay_resume()")


class WeakerStandby(ClusterIncident):
    """max_connections was raised on db1 and db3, not on db2: its replay pauses (14 and later) or it ends (before)."""

    name: ClassVar[str] = "weaker-standby"
    title: ClassVar[str] = f"db1 and db3 have max_connections = {MORE_CONNECTIONS}, db2 does not"
    check: ClassVar[str] = "settings"

    def cause(self, ground: PracticeCluster) -> None:
        db1, db2 = _pair(ground)
        ground.nodes["db3"].restart({"max_connections": MORE_CONNECTIONS})
        db1.restart({"max_connections": MORE_CONNECTIONS})
        if db2.major >= 14:
            wait_for(db2, "pg_is_wal_replay_paused()")

    def end(self, ground: PracticeCluster) -> None:
        """As the check advises, raise db2's value too. Lowering db1's would leave the others with higher ones."""
        _, db2 = _pair(ground)
        db2.restart({"max_connections": MORE_CONNECTIONS})


class MissingSlot(ClusterIncident):
    name: ClassVar[str] = "missing-slot"
    title: ClassVar[str] = "the slot of db2 on db1 was dropped"
    check: ClassVar[str] = "streaming"

    def cause(self, ground: PracticeCluster) -> None:
        db1, db2 = _pair(ground)
        # Its standby reconnects at once: the slot is dropped in the moment it is inactive.
        db1.psql(_DROP)
        wait_for(db2, "not exists (select from pg_stat_wal_receiver where status = 'streaming')")

    def end(self, ground: PracticeCluster) -> None:
        db1, db2 = _pair(ground)
        db1.psql("select pg_create_physical_replication_slot('db2', true)")
        wait_for(db2, "exists (select from pg_stat_wal_receiver where status = 'streaming')")


def _pair(ground: PracticeCluster) -> tuple[Node, Node]:
    return ground.nodes["db1"], ground.nodes["db2"]


_IDLE = "state = 'idle in transaction'"
_DROP = """
do $$
begin
  for attempt in 1 .. 1000 loop
    begin
      perform pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'db2' and active;
      perform pg_drop_replication_slot('db2');
      return;
    exception when object_in_use then perform pg_sleep(0.01);
    end;
  end loop;
  raise 'slot db2 is in use all the time';
end $$
"""
