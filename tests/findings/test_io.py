"""A disk that stops under a writing server; and a busy disk that no session of the server waits for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from dba_console.demo.incidents.loop_disk import LoopDisk, loop_disk
from dba_console.demo.temporary_server import Cluster, Settings
from dba_console.watch.probes.host.kernel_files import read_stat
from tests.agent.agents import agent
from tests.background import Session, session, wait_until
from tests.clusters import binaries_of
from tests.disks import frozen
from tests.findings.collector import local_agent
from tests.requirements import require_tool
from tests.sql import LIMIT_S, query

SIZE = 256 << 20
WRITERS = 4
SESSIONS_WRITE_WAL: Settings = {"wal_writer_delay": "10s", "wal_writer_flush_after": "2GB"}
"""The WAL writer sleeps: it would hang in place of a session, and sessions wait for its lock and not for I/O."""


@contextmanager
def writers(cluster: Cluster) -> Iterator[list[Session]]:
    """Sessions that have two tables each to write to, one of them not in the WAL, and do nothing yet."""
    with ExitStack() as stack:
        for n in range(WRITERS):
            query(cluster, f"create table logged_{n} (a int)")
            query(cluster, f"create unlogged table unlogged_{n} (a int)")
        yield [stack.enter_context(closing(session(cluster, name=f"shop-{n}"))) for n in range(WRITERS)]


@contextmanager
def insert_until_hanging(sessions: list[Session], disk: LoopDisk, *, below: bool) -> Iterator[None]:
    """Each session writes until it hangs in the kernel, or one of them behind a disk that does not answer.

    Where they hang in the kernel they must not write WAL: one would hang there, and the others wait for its lock.
    """
    table = "logged" if below else "unlogged"
    for n, each in enumerate(sessions):
        each.pgconn.send_query(f"insert into {table}_{n} select generate_series(1, 100000)".encode())
    wait_until(lambda: hanging_sessions(sessions) >= (1 if below else 2), LIMIT_S, what="sessions that hang")
    wait_until(lambda: not below or in_flight(disk), LIMIT_S, what="a request in flight")
    yield


def written(sessions: list[Session]) -> None:
    """Wait until each has written."""
    for each in sessions:
        while (result := each.pgconn.get_result()) is not None:
            assert not result.error_message, result.error_message


def hanging_sessions(sessions: list[Session]) -> int:
    """How many of the sessions' processes wait in the kernel and cannot be interrupted."""
    stats = [read_stat("/proc", each.info.backend_pid) for each in sessions]
    return sum(stat is not None and stat.state == "D" for stat in stats)


def in_flight(disk: LoopDisk) -> bool:
    """Whether the disk has requests that were not answered."""
    device = disk.path.stat().st_dev
    reads, writes = Path(f"/sys/dev/block/{device >> 8}:{device & 255}/inflight").read_text().split()
    return int(reads) + int(writes) > 0


@pytest.mark.root
def test_a_server_whose_disk_stalls_is_reported_within_five_seconds_and_until_it_continues() -> None:
    """Its own file system frozen, where processes hang; then the disk below, which gives no answer."""
    with loop_disk(SIZE, stacked=True) as disk:
        assert disk.lower_path is not None
        cluster = Cluster(binaries_of(None), data_directory=disk.data_directory, settings=SESSIONS_WRITE_WAL)
        with cluster, writers(cluster) as sessions, local_agent(cluster.dsn(), "io-stalled") as agent:
            for below, place in ((False, disk.path), (True, disk.lower_path)):
                with frozen(place), insert_until_hanging(sessions, disk, below=below):
                    agent.tick()  # what a process does is read from the tick on that follows its first activity
                    found = agent.until("io-stalled", severity="critical", within_s=5)
                assert found.text.startswith("I/O is stalled: ")
                assert "(data, WAL, temp)" in found.text, found.text
                written(sessions)
                agent.until_gone("io-stalled", within_s=40)


def test_a_disk_busy_with_something_else_is_not_a_stall(disk_directory: Path, tmp_path: Path) -> None:
    """Synchronous writes of 8 kB without a pause: all there is to do waits for the disk, and no session does.

    For longer than a stall is measured over, by an agent: what a disk completes takes its time.
    """
    disk_directory.chmod(0o711)
    data, file = disk_directory / "data", disk_directory / "written"
    command = [require_tool("dd"), "if=/dev/zero", f"of={file}", "bs=8k", "count=1000000", "oflag=dsync"]
    configured = {"DBA_CONSOLE_AGENT_INTERVAL": "250ms", "DBA_CONSOLE_FINDINGS_IO_WINDOW_S": "3"}
    with (
        Cluster(binaries_of(None), data_directory=data, durable=False) as cluster,
        agent(cluster.dsn(), tmp_path, extra=configured) as running,
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as writer,
    ):
        watch = running.watch()
        try:
            for _ in range(16):
                watch.next_frame(LIMIT_S)
            assert writer.poll() is None, "it was busy all the time"
        finally:
            writer.kill()
    reported = [
        event.text for event in watch.events if event.kind.startswith("finding.") and "io-stalled" in str(event)
    ]
    assert reported == []
