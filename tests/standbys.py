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


def hand_over(cluster: Cluster) -> None:
    """Give the copied files to the server's user."""
    if not cluster.account.switched:
        return
    for directory, _, files in os.walk(cluster.data_directory):
        for path in (Path(directory), *(Path(directory) / name for name in files)):
            cluster.account.own(path)
