"""A disk that really stops under a server that writes; and one busy with what nobody of the server waits for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from dba_console.demo.binaries import find_binaries
from dba_console.demo.cluster import Cluster
from dba_console.demo.incidents.loop_disk import LoopDisk, loop_disk
from tests.background import Session, session
from tests.findings.watching import now_us, seconds_since, watching
from tests.requirements import require_tool

SIZE = 512 << 20
WRITERS = 4


@contextmanager
def frozen(disk: LoopDisk, *, below: bool = False) -> Iterator[int]:
    """Nothing is written there until the block ends; gives the moment it began by the host's clock."""
    place = disk.below if below else disk.path
    assert place is not None
    freeze = require_tool("fsfreeze")
    began_us = now_us()
    subprocess.run([freeze, "-f", str(place)], check=True)
    try:
        yield began_us
    finally:
        subprocess.run([freeze, "-u", str(place)], check=True)


@contextmanager
def writers(cluster: Cluster) -> Iterator[list[Session]]:
    """Sessions that have a table to write to and do nothing yet."""
    cluster.psql("create table written as select 1 as a")
    with ExitStack() as stack:
        yield [stack.enter_context(closing(session(cluster, name=f"shop-{n}"))) for n in range(WRITERS)]


@pytest.mark.root
@pytest.mark.parametrize("below", [False, True], ids=["its own file system frozen", "the disk below gives no answer"])
def test_a_server_whose_disk_stops_is_told_within_five_seconds(tmp_path: Path, below: bool) -> None:
    with loop_disk(SIZE, stacked=below) as disk:
        cluster = Cluster(find_binaries(), data_directory=disk.data_directory)
        with cluster, writers(cluster) as sessions, watching(cluster.dsn(), tmp_path) as seen:
            with frozen(disk, below=below) as began_us:
                for each in sessions:
                    each.pgconn.send_query(b"insert into written select generate_series(1, 200000)")
                event = seen.raised("io-stalled", 10)
                found = seen.open("io-stalled", severity="critical")
            assert seconds_since(began_us, event) <= 5
            assert found.text.startswith("I/O is stalled: ")
            assert "(data, WAL, temp)" in found.text, found.text
            assert seen.critical() == {"io-stalled"}
            seen.watch.until(lambda frame: all(row.rule != "io-stalled" for row in frame.findings), 40, what="its end")


def test_a_disk_that_is_busy_with_something_else_is_no_stall(cluster: Cluster, tmp_path: Path) -> None:
    """Synchronous writes of 8 kB without a pause: all there is to do waits for the disk, and no session does."""
    command = [
        require_tool("dd"),
        "if=/dev/zero",
        f"of={tmp_path / 'written'}",
        "bs=8k",
        "count=1000000",
        "oflag=dsync",
    ]
    with watching(cluster.dsn(), tmp_path) as seen, subprocess.Popen(command, stderr=subprocess.DEVNULL) as writer:
        try:
            seen.calm(12)
            assert writer.poll() is None, "it was busy all the time"
        finally:
            writer.kill()
        assert seen.news("io-stalled") == []
