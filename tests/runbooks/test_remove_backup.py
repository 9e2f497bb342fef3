"""The runbook `remove-backup`, walked beside a server's data on a disk that is mounted with discard. Root only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.temporary_server import Cluster
from tests.actions.shrink_files import big_file
from tests.clusters import binaries_of
from tests.requirements import require_root
from tests.runbooks.runs import Walk, WatchedServer, hostile_server

RUNBOOK = "remove-backup"
ASIDE, CUT = "rename-it", "truncate-it"
ANSWERS = (
    "is-there-a-newer-backup-that-works/manual=newest.dump, restored on Monday",
    "is-there-a-newer-backup-that-works/manual-2=no increments, nothing is restored to before",
    "prevent-a-recurrence=a disk of their own, ticket 4711",
)


@dataclass(frozen=True)
class BackupServer:
    """A watched server whose data lie on a disk of their own, and a place for backups on the same disk."""

    watched: WatchedServer
    disk: LoopDisk
    cluster: Cluster
    backups: Path

    def walk(self, path: Path) -> Walk:
        confirmed = (f"{ASIDE}={self.watched.target}", f"{CUT}=it may go")
        return self.watched.run_headless(RUNBOOK, *ANSWERS, *confirmed, file=str(path))

    def free(self) -> int:
        found = os.statvfs(self.disk.path)
        return found.f_bfree * found.f_frsize


@pytest.fixture(scope="module")
def backup_server() -> Iterator[BackupServer]:
    require_root()
    with loop_disk(512 * MIB) as disk:
        subprocess.run(["mount", "-o", "remount,discard", str(disk.path)], check=True)
        with (
            Cluster(binaries_of(None), data_directory=disk.data_directory) as cluster,
            hostile_server(cluster) as watched,
        ):
            backups = disk.path / "backups"
            backups.mkdir()
            yield BackupServer(watched, disk, cluster, backups)


def test_the_file_is_deleted_and_its_neighbours_and_the_server_stay(backup_server: BackupServer) -> None:
    oldest, newest = big_file(backup_server.backups, 32), big_file(backup_server.backups, 2, "newest.dump")
    backup_server.watched.wait_until_raised("discard-mount")
    free = backup_server.free()
    walk = backup_server.walk(oldest)
    assert walk.code == 0, walk.text
    assert {ASIDE, CUT} <= set(walk.done())
    assert list(backup_server.backups.iterdir()) == [newest]
    assert newest.stat().st_size == 2 * MIB
    assert backup_server.free() > free + 16 * MIB
    assert backup_server.cluster.psql("select 1") == "1"


def test_it_does_not_start_with_anything_but_a_plain_file_with_one_name(backup_server: BackupServer) -> None:
    one = big_file(backup_server.backups, 1, "one.dump")
    two, link = backup_server.backups / "two.dump", backup_server.backups / "link.dump"
    os.link(one, two)
    link.symlink_to(one)
    reported = {two: "it is a hard link", link: f"name the file itself, {one}", backup_server.backups: "is a directory",
            backup_server.backups / "nothing.dump": "does not exist"}  # fmt: skip
    for path, why in reported.items():
        walk = backup_server.walk(path)
        assert walk.code == 7, walk.text
        assert walk.records("run.started") == [] and walk.done() == []
        assert why in walk.ending and "it is a regular file with one name" in walk.ending
    assert one.stat().st_size == two.stat().st_size == MIB


def test_a_file_of_the_server_is_refused_and_stays(backup_server: BackupServer) -> None:
    path = big_file(backup_server.cluster.data_directory, 1)
    walk = backup_server.walk(path)
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["what-is-it/outside"] and walk.records("run.started") == [], "before anything is asked"
    assert "lies in the data directory" in walk.ending
    assert path.stat().st_size == MIB
    path.unlink()


def test_one_file_of_a_backup_or_of_a_backup_repository_is_refused_and_stays(backup_server: BackupServer) -> None:
    base = backup_server.backups / "base" / "2026-11-01"
    tool = backup_server.backups / "pgbackrest" / "backup" / "main"
    objects = backup_server.backups / "walg" / "basebackups_005"
    for directory in (base / "16384", tool / "20261101-010000F", objects):
        directory.mkdir(parents=True)
    (base / "backup_manifest").write_text('{"Files": [{ "Path": "16384/17\\"1", "Size": 1 }, { "Path": "16384/171" }]}')
    (tool / "backup.info").touch()
    reported = {
        big_file(base / "16384", 1, "171"): "is listed in",
        big_file(tool / "20261101-010000F", 1, "base.tar.zst"): "lies in a backup repository",
        big_file(objects, 1, "base.tar.lz4"): "remove it with wal-g delete",
    }
    for path, why in reported.items():
        walk = backup_server.walk(path)
        assert walk.code == 7, walk.text
        assert walk.unmet() == ["what-is-it/repository"] and walk.records("run.started") == [], (
            "before anything is asked"
        )
        assert why in walk.ending and path.stat().st_size == MIB
    beside = big_file(base, 1, "base.tar.gz")
    assert backup_server.walk(beside).code == 0 and not beside.exists(), "a backup in one file is named in no manifest"


def test_without_the_typed_confirmation_nothing_is_cut_and_the_name_stays(backup_server: BackupServer) -> None:
    path = big_file(backup_server.backups, 1, "kept.dump")
    walk = backup_server.watched.run_headless(RUNBOOK, *ANSWERS, file=str(path))
    assert walk.code == 8, walk.text
    assert path.stat().st_size == MIB
    path.unlink()
