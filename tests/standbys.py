"""A standby made from files alone: not every installation of the tests has pg_basebackup."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.cluster import Cluster
from tests.background import wait_until


@contextmanager
def copied_standby(primary: Cluster) -> Iterator[Cluster]:
    """A streaming standby, made by copying a stopped primary: no client programs needed."""
    standby = Cluster(primary.binaries, durable=False)
    try:
        primary.stop()
        shutil.copytree(primary.data_directory, standby.data_directory)
        primary.start()
        (standby.data_directory / "standby.signal").touch()
        hand_over(standby)
        standby.start({"primary_conninfo": primary.dsn()})
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where state = 'streaming'"))
        yield standby
    finally:
        standby.close()


SYNCS = 18
"""A version whose standbys keep copies of logical slots (17 and later)."""


def synchronized(primary: Cluster, standby: Cluster, slot: str) -> None:
    """Make a logical slot on the primary of which the standby keeps a copy, in step with it once."""
    primary.psql("select pg_create_physical_replication_slot('of_standby', true)")
    for name, value in (
        ("wal_level", "logical"),
        ("primary_slot_name", "of_standby"),
        ("hot_standby_feedback", "on"),
        ("primary_conninfo", primary.dsn()),
    ):
        standby.psql(f"alter system set {name} = '{value.replace(chr(39), chr(39) * 2)}'")
    standby.stop()
    standby.start()
    wait_until(lambda: primary.psql("select 1 from pg_replication_slots where slot_name = 'of_standby' and active"))
    primary.psql(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput', false, false, true)")

    def copied() -> str:
        primary.psql("select pg_log_standby_snapshot()")
        primary.psql(f"select pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
        standby.psql("select pg_sync_replication_slots()")
        return standby.psql("select 1 from pg_replication_slots where synced and not temporary")

    wait_until(copied, what="the copy of the slot")


def hand_over(cluster: Cluster) -> None:
    """Give the copied files to the server's user."""
    if not cluster.account.switched:
        return
    for directory, _, files in os.walk(cluster.data_directory):
        for path in (Path(directory), *(Path(directory) / name for name in files)):
            cluster.account.chown(path)
