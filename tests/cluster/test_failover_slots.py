"""Logical slots that an old primary had are replaced by those synced from the new one, from PostgreSQL 17 on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from dba_console.clusters.server_control import ServerControl
from dba_console.core.clock import SYSTEM
from dba_console.core.config import NodeConfig
from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cluster.step_runs import StepRuns
from tests.clusters import binaries_of
from tests.requirements import require_tool

SETTINGS = {
    "wal_level": "logical", "hot_standby_feedback": "on", "sync_replication_slots": "on", "wal_keep_size": "64MB",
    "wal_retrieve_retry_interval": "100ms",
}  # fmt: skip


def copy_as_standby(primary: Cluster, standby: Cluster, slot: str) -> None:
    """Copy the stopped primary, because these packages have no pg_basebackup."""
    shutil.copytree(primary.data_directory, standby.data_directory, symlinks=True)
    with (standby.data_directory / "postgresql.auto.conf").open("a") as file:
        source = primary.dsn(dbname="postgres").replace("'", "''")
        file.write(f"primary_conninfo = '{source}'\nprimary_slot_name = '{slot}'\n")
    (standby.data_directory / "standby.signal").touch()
    for path in [standby.data_directory, *standby.data_directory.rglob("*")]:
        primary.account.chown(path)


def advance_slot(primary: Cluster, over: threading.Event) -> None:
    """As a subscriber does: a slot that stands still is not synced to a standby that is further."""
    while not over.wait(0.2):
        primary.psql("select pg_log_standby_snapshot()")
        primary.psql("select pg_replication_slot_advance('sub1', pg_current_wal_lsn())")


@pytest.mark.parametrize("major", [17, 18])
def test_the_slots_of_the_old_primary_are_synced_from_the_new_one_when_it_returns(tmp_path: Path, major: int) -> None:
    require_tool("psql")
    binaries = binaries_of(major)
    with Cluster(binaries, settings=SETTINGS, durable=False) as old:
        new = Cluster(binaries, settings=SETTINGS)
        old.stop()
        copy_as_standby(old, new, "db2")
        old.start()
        old.psql("select pg_create_physical_replication_slot('db2', true)")
        old.psql("select pg_create_logical_replication_slot('sub1', 'pgoutput', false, false, true)")
        ready = "select count(*) from pg_replication_slots where synced and not temporary"
        with new:
            wait_until(lambda: new.psql(ready) == "1", what="the slot on the standby")
            old.stop()
            new.psql("select pg_promote()")
            new.psql("select pg_create_physical_replication_slot('db1', true)")
            steps = StepRuns(tmp_path, old, new, slots={"db1": "db1"})
            control = ServerControl(
                "db1", NodeConfig(dsn=old.dsn()), str(old.data_directory), str(binaries.directory), SYSTEM
            )
            over = threading.Event()
            subscriber = threading.Thread(target=advance_slot, args=(new, over))
            subscriber.start()
            try:
                done = steps.act("cutover-rejoin", timeout="60s")
                assert done.values == {"streams": True} and "; 1 logical slots are synced to it" in done.text, done
                assert old.psql(ready) == "1", "the next cutover would lose the subscriber"
            finally:
                over.set()
                subscriber.join()
                control.stop(30)
