"""Findings from real dumps of a real server, with limits in seconds instead of hours."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.samples.findings import FindingsNow
from tests.agent.agents import agent
from tests.agent.dumps import TABLE, create_table_to_dump, dump, observe_dump, write_config
from tests.background import waiting_for_lock
from tests.clusters import FreshCluster, binaries_of
from tests.disks import loop_mounted

LIMITS = """
[findings.jobs]
late_factor = 1.5
late_over_s = 1.0
missing_interval_s = 0.5
missing_run_s = 0.3
missing_longest_factor = 1.5
"""


@pytest.fixture(scope="module")
def dumpable_cluster(cluster: Cluster) -> Iterator[Cluster]:
    create_table_to_dump(cluster)
    yield cluster
    cluster.psql(f"drop table {TABLE}")


@pytest.fixture
def small_limits(tmp_path: Path) -> None:
    write_config(tmp_path, LIMITS)


def find_rule(frame: Frame, rule: str) -> list[Finding]:
    return [finding for finding in frame.findings if finding.rule == rule]


@pytest.mark.usefixtures("small_limits")
def test_a_late_dump_is_reported_with_its_waiting_sessions_and_cleared_when_it_ends(
    dumpable_cluster: Cluster, tmp_path: Path
) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        for _ in range(3):
            observe_dump(watch, dumpable_cluster)
        assert not any(event.kind == "finding.raised" and "late" in event.text for event in watch.events)
        with (
            dump(dumpable_cluster) as held,
            waiting_for_lock(dumpable_cluster, f"alter table {TABLE} add column note text"),
        ):
            frame = watch.until(
                lambda frame: [one for one in find_rule(frame, "dump-late") if one.evidence.get("blocks")],
                what="the dump called late, and who waits",
            )
            (late,) = find_rule(frame, "dump-late")
            held.finish()
        watch.until(lambda frame: not find_rule(frame, "dump-late"), what="the finding cleared")
    assert late.text.startswith("pg_dump of postgres is overdue by ") and "(3 runs)" in late.text
    assert late.text.endswith("; 1 session waits for it")
    assert late.evidence["elapsed_s"] > 1.5 and late.evidence["over_s"] >= 1.0
    dumpable_cluster.psql(f"alter table {TABLE} drop column if exists note")


@pytest.mark.usefixtures("small_limits")
def test_a_dump_that_no_longer_comes_is_missed_until_the_next_one_runs(
    dumpable_cluster: Cluster, tmp_path: Path
) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        for _ in range(4):
            observe_dump(watch, dumpable_cluster)
        frame = watch.until(lambda frame: find_rule(frame, "dump-missing"), what="the dump missed")
        (missing,) = find_rule(frame, "dump-missing")
        assert missing.evidence["last_ended_age_s"] >= 1.5 * missing.evidence["interval_s"]
        assert missing.text.startswith("No pg_dump of postgres has finished for ")
        with dump(dumpable_cluster):
            watch.until(lambda frame: not find_rule(frame, "dump-missing"), what="the finding cleared")


def test_consecutive_dumps_are_neither_late_nor_missed_with_the_default_limits(
    dumpable_cluster: Cluster, tmp_path: Path
) -> None:
    with agent(dumpable_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        for seconds in (0.6, 0.6, 0.6, 0.6, 4.0):
            observe_dump(watch, dumpable_cluster, seconds)
        frame = watch.next_frame()
    assert [finding.id for finding in frame.findings if finding.rule.startswith("dump-")] == []
    assert not any(event.kind.startswith("finding") and "pg_dump" in event.text for event in watch.events)


def test_an_archive_on_the_data_file_system_is_reported(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    server = fresh_cluster({"archive_mode": "on"})
    server.reload({"archive_command": f"cp %p {server.data_directory.parent}/archive/%f"})
    with agent(server.dsn(), tmp_path) as running:
        frame = running.watch().until(lambda frame: find_rule(frame, "wal-beside-backups"), what="the finding")
    (reported,) = find_rule(frame, "wal-beside-backups")
    assert (reported.severity, reported.runbook) == ("warning", "remove-backup") and reported.advice


def test_an_archive_on_another_file_system_is_not_reported(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    server = fresh_cluster({"archive_mode": "on"})
    data = os.stat(server.data_directory).st_dev
    apart = next(place for place in ("/dev/shm", "/tmp", "/") if os.stat(place).st_dev != data)
    server.reload({"archive_command": f"cp %p {apart}/nowhere/%f"})
    with agent(server.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(lambda frame: any("archive" in one.holds for one in frame.disks.mounts), what="the archive")
        judged = watch.until(lambda _: watch.picture.now("findings", FindingsNow) is not None, what="a judgement")
    assert find_rule(judged, "wal-beside-backups") == []


@contextmanager
def bind_mounted(path: Path, directory: Path) -> Iterator[None]:
    """A bind mount, until the block ends."""
    path.mkdir()
    subprocess.run(["mount", "--bind", str(directory), str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.root
def test_an_archive_on_a_bind_mount_of_the_data_file_system_is_reported(tmp_path: Path) -> None:
    bound = tmp_path / "bound"
    settings = {"archive_mode": "on", "archive_command": f"cp %p {bound}/%f"}
    # A disk of its own: mounts of a tmpfs do not tell by their source that they are one file system.
    with tempfile.TemporaryDirectory() as outside, loop_mounted(tmp_path / "image", Path(outside) / "fs") as place:
        Path(outside).chmod(0o755)
        place.chmod(0o777)
        (place / "archive").mkdir()
        server = Cluster(binaries_of(None), data_directory=place / "data", settings=settings, durable=False)
        with (
            bind_mounted(bound, place / "archive"),
            server,
            agent(server.dsn(), tmp_path) as running,
        ):
            frame = running.watch().until(lambda frame: find_rule(frame, "wal-beside-backups"), what="the finding")
    (reported,) = find_rule(frame, "wal-beside-backups")
    assert str(bound) in reported.text
