"""Rules about disks, on real file systems on loop devices with a real server's data on them. Mostly root only."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.disks.file_system_rules import DiskLimits
from dba_console.watch.findings.thresholds import Limits
from tests.background import session
from tests.clusters import binaries_of
from tests.findings.collector import local_agent
from tests.findings.test_wal import TMPFS
from tests.sql import query, wait_for

DISKS = ("disk-filling", "inodes-filling", "temp-spill", "discard-mount", "slot-retention", TMPFS)
EVERY_S = 5
"""The cadence of pg.temp and host.mounts."""


@pytest.fixture(scope="module")
def shared_loop_disk() -> Iterator[LoopDisk]:
    with loop_disk(512 * MIB) as disk:
        yield disk


@pytest.fixture(scope="module")
def server_on_disk(shared_loop_disk: LoopDisk) -> Iterator[Cluster]:
    """A server whose data directory is on its own disk, with a tenth of it used."""
    settings = {"max_wal_size": "64MB", "min_wal_size": "32MB", "work_mem": "64kB", "autovacuum": "off"}
    with Cluster(
        binaries_of(None), data_directory=shared_loop_disk.data_directory, settings=settings, durable=False
    ) as cluster:
        yield cluster


@pytest.fixture
def disk(shared_loop_disk: LoopDisk) -> Iterator[LoopDisk]:
    """The disk without what the tests before have put there."""
    yield shared_loop_disk
    for path in shared_loop_disk.path.iterdir():
        if path.is_dir() and path.name not in (shared_loop_disk.data_directory.name, "lost+found"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


@pytest.fixture
def on_disk(disk: LoopDisk, server_on_disk: Cluster) -> Cluster:
    """The server on that disk."""
    return server_on_disk


def write(disk: LoopDisk, mib: int, name: str = "copy") -> None:
    """So much more in a file beside the data."""
    with (disk.path / name).open("ab") as file:
        file.write(bytes(mib * MIB))
        file.flush()


def fill_until_left(disk: LoopDisk, share: float) -> None:
    """Fill the disk until only `share` of it is free."""
    found = os.statvfs(disk.path)
    more = found.f_bavail - int(found.f_blocks * share)
    with (disk.path / "ballast").open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), more * found.f_frsize)


@pytest.mark.root
def test_a_disk_that_fills_up_fast_is_named_with_its_fill_time_within_ten_seconds(
    disk: LoopDisk, on_disk: Cluster
) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        for _ in range(10):
            write(disk, 12)
            agent.tick()
            if agent.open("disk-filling"):
                break
        (reported,) = agent.open("disk-filling")
    assert reported.severity == "warning", "ten seconds are too few for more"
    assert reported.id == f"disk-filling:{disk.path}"
    assert reported.evidence["holds"] == ["data", "log", "temp", "wal"]
    assert 8 * MIB < reported.evidence["growth_bytes_per_s"] < 16 * MIB
    assert 20 < reported.evidence["full_in_s"] < 90
    assert " will be full in " in reported.text


@pytest.mark.root
def test_a_disk_that_fills_steadily_becomes_critical_and_clears_when_the_file_is_gone(
    disk: LoopDisk, on_disk: Cluster
) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        reported = None
        for _ in range(100):
            write(disk, 4)
            agent.tick()
            reported = next((row for row in agent.open("disk-filling") if row.severity == "critical"), None)
            if reported is not None:
                break
        assert reported is not None
        assert reported.evidence["used_pct"] < 80, "by its date, not by what is used"
        (disk.path / "copy").unlink()
        agent.until_gone("disk-filling", within_s=80)
    assert reported.runbook == "disk-filling"
    assert reported.evidence["watched_s"] >= 29


@pytest.mark.root
def test_one_burst_that_leaves_space_is_not_reported(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        write(disk, 60)
        agent.tick(EVERY_S * 2)
        query(on_disk, "create table t as select g from generate_series(1, 300000) g")
        query(on_disk, "checkpoint")
        query(on_disk, "drop table t")
        agent.tick(EVERY_S * 4)
        assert agent.changes == []


@pytest.mark.root
def test_a_data_disk_is_reported_as_full_at_eighty_and_ninety_percent(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        fill_until_left(disk, 0.18)
        assert agent.until("disk-filling", within_s=6).severity == "warning"
        agent.tick(2 * EVERY_S)
        fill_until_left(disk, 0.18 - 0.10)
        reported = agent.until("disk-filling", severity="critical", within_s=6)
        (disk.path / "ballast").unlink()
        agent.until_gone("disk-filling", within_s=70)
    assert reported.evidence["used_pct"] >= 90
    assert reported.text.startswith(f"{disk.path} (data, log, WAL) is 9") and " left" in reported.text


@pytest.mark.root
def test_a_full_disk_with_much_free_space_is_less_severe(disk: LoopDisk, on_disk: Cluster) -> None:
    roomy = Limits(DiskLimits(roomy_bytes=1024.0))
    with local_agent(on_disk.dsn(), *DISKS, limits=roomy, calm_s=7) as agent:
        fill_until_left(disk, 0.18)
        assert agent.until("disk-filling", within_s=6).severity == "info"


@pytest.mark.root
def test_a_disk_with_only_recordings_is_never_critical(disk: LoopDisk, cluster: Cluster) -> None:
    sessions = disk.path / "sessions"
    sessions.mkdir()
    with local_agent(cluster.dsn(), "disk-filling", calm_s=7, session=sessions) as agent:
        fill_until_left(disk, 0.02)
        reported = agent.until("disk-filling", within_s=6)
        assert (reported.severity, reported.evidence["holds"]) == ("warning", ["session"])


@pytest.mark.root
def test_a_disk_without_inodes_is_reported_although_there_is_space(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        many = disk.path / "many"
        many.mkdir()
        found = os.statvfs(disk.path)
        first = many / "first"
        first.touch()
        assert agent.open("inodes-filling") == []
        for number in range(int(found.f_files * 0.83) - (found.f_files - found.f_ffree)):
            (many / str(number)).touch()
        reported = agent.until("inodes-filling", within_s=6)
    assert reported.severity == "warning"
    assert reported.evidence["inodes_pct"] >= 80
    assert "even with free space" in reported.text


ROWS = "select repeat(md5(g::text), 30) k from generate_series(1, {}) g"


@contextmanager
def sorting_session(cluster: Cluster, rows: int) -> Iterator[int]:
    """A session that sorts on disk; gives its process id. Cancelled at the end."""
    connection = psycopg.connect(cluster.dsn(application_name="yearly-report"), autocommit=True)

    def run() -> None:
        try:
            connection.execute(f"select max(k) from ({ROWS.format(rows)} order by 1 offset 0) sorted".encode())
        except psycopg.Error:
            pass  # cancelled at the end

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield connection.info.backend_pid
    finally:
        connection.cancel_safe()
        thread.join(60)
        connection.close()


@contextmanager
def session_with_sorted_cursor(cluster: Cluster, rows: int) -> Iterator[None]:
    """A session with a cursor whose rows lie sorted on disk, a kilobyte each."""
    with session(cluster, name="yearly-report") as connection:
        connection.execute("set work_mem = '1MB'")
        connection.execute(f"begin; declare sorted cursor for {ROWS.format(rows)} order by 1".encode())
        connection.execute("fetch 1 from sorted")
        yield
        connection.execute("rollback")


def wait_for_temporary_files(cluster: Cluster, mib: int) -> None:
    """Wait until temporary files take `mib` megabytes."""
    wait_for(cluster, f"select sum(size) > {mib * MIB} from pg_ls_tmpdir()", what=f"{mib} MB of temporary files")


@pytest.mark.root
def test_a_runaway_sort_is_named_with_its_session_and_the_free_space(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent, sorting_session(on_disk, 250_000) as pid:
        wait_for_temporary_files(on_disk, 110)
        reported = agent.until("temp-spill", within_s=EVERY_S + 1)
        query(on_disk, f"select pg_cancel_backend({pid})")
        wait_for(on_disk, "select count(*) = 0 from pg_ls_tmpdir()", what="them gone")
        agent.until_gone("temp-spill", within_s=45)
    evidence = reported.evidence
    assert evidence["mount"] == str(disk.path)
    assert (evidence["pid"], evidence["application"]) == (pid, "yearly-report")
    assert evidence["temp_bytes"] >= 110 * MIB
    assert reported.text.startswith(f"yearly-report (postgres, pid {pid}) sorts on disk: ")
    assert str(disk.path) in reported.text and " left" in reported.text


@pytest.mark.root
def test_a_sort_that_is_small_compared_with_its_disk_is_not_reported(on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), "temp-spill", calm_s=7) as agent, session_with_sorted_cursor(on_disk, 72_000):
        wait_for_temporary_files(on_disk, 64)
        agent.tick(EVERY_S + 1)
        assert agent.changes == []


@pytest.mark.root
def test_a_filling_disk_is_reported_with_its_cause(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent, ExitStack() as stack:
        fill_until_left(disk, 0.38)
        stack.enter_context(session_with_sorted_cursor(on_disk, 150_000))
        assert share_left(disk.path) < 0.15
        agent.until("disk-filling", within_s=EVERY_S + 1)
        joined = agent.until("temp-spill", within_s=EVERY_S + 1)
    assert joined.id == "temp-spill"
    assert joined.chain == [f"disk-filling:{disk.path}", "temp-spill"]
    assert " because yearly-report (postgres, pid " in joined.text


def share_left(path: Path) -> float:
    found = os.statvfs(path)
    return found.f_bavail / found.f_blocks


@pytest.mark.root
def test_a_disk_mounted_with_discard_is_info(disk: LoopDisk, on_disk: Cluster) -> None:
    with local_agent(on_disk.dsn(), *DISKS, calm_s=7) as agent:
        assert agent.open("discard-mount") == []
        os.system(f"mount -o remount,discard {disk.path}")
        reported = agent.until("discard-mount", within_s=6)
        os.system(f"mount -o remount,nodiscard {disk.path}")
        agent.until_gone("discard-mount", within_s=70)
    assert reported.severity == "info"
    assert reported.runbook == "remove-backup"
