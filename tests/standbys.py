"""A standby made from files alone: not every installation of the tests has pg_basebackup."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dba_console.clusters.wal_files import SEGMENT
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster, child_processes
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


def preallocate_wal(cluster: Cluster, count: int = 40) -> None:
    """Files for WAL to come that nothing was written into, as a checkpoint makes them: most of pg_wal, so that one of
    them probably comes first in the directory."""
    directory = cluster.data_directory / "pg_wal"
    newest = max(path.name for path in directory.glob("0" * 7 + "?" * 17))
    for number in range(int(newest[16:], 16) + 1, int(newest[16:], 16) + 1 + count):
        path = directory / f"{newest[:16]}{number:08X}"
        path.touch(mode=0o600)
        os.truncate(path, SEGMENT)
        cluster.account.chown(path)


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


@contextmanager
def held_in_recovery(primary: Cluster) -> Iterator[None]:
    """The primary is killed and started again, and replays WAL until the block ends."""
    primary.psql("create table recovered as select generate_series(1, 1500000) i")
    primary.kill()
    starting = threading.Thread(target=primary.start)
    starting.start()
    process = None
    try:
        process = wait_until(lambda: _recovering_process(primary), what="the recovery")
        os.kill(process, signal.SIGSTOP)
        yield
    finally:
        if process is not None:
            os.kill(process, signal.SIGCONT)
        starting.join()


def _recovering_process(cluster: Cluster) -> int | None:
    """The startup process, while it replays WAL."""
    with suppress(OSError, ConsoleError, AttributeError):
        for one in child_processes(cluster.pid or 0):
            if b"startup recovering" in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                return int(one.pid)
    return None


def hand_over(cluster: Cluster) -> None:
    """Give the copied files to the server's user."""
    if not cluster.account.switched:
        return
    for directory, _, files in os.walk(cluster.data_directory):
        for path in (Path(directory), *(Path(directory) / name for name in files)):
            cluster.account.chown(path)
