"""The runbook `remove-backup`, walked beside a server's data on a disk that is mounted with discard. Root only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from tests.actions.shrink_files import big_file
from tests.clusters import binaries_of
from tests.requirements import require_root
from tests.runbooks.runs import Scene, Walk, besieged

BOOK = "remove-backup"
ASIDE, CUT = "rename-it", "truncate-it"
TOLD = (
    "is-there-a-newer-backup-that-works/manual=newest.dump, restored on Monday",
    "is-there-a-newer-backup-that-works/manual-2=no increments, nothing is restored to before",
    "prevent-a-recurrence=a disk of their own, ticket 4711",
)


@dataclass(frozen=True)
class Ground:
    """A watched server whose data lie on a disk of their own, and a place for backups on the same disk."""

    scene: Scene
    disk: LoopDisk
    cluster: Cluster
    backups: Path

    def walk(self, path: Path) -> Walk:
        confirmed = (f"{ASIDE}={self.scene.target}", f"{CUT}=it may go")
        return self.scene.headless(BOOK, *TOLD, *confirmed, file=str(path))

    def free(self) -> int:
        found = os.statvfs(self.disk.path)
        return found.f_bfree * found.f_frsize


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    require_root()
    with loop_disk(512 * MIB) as disk:
        subprocess.run(["mount", "-o", "remount,discard", str(disk.path)], check=True)
        with Cluster(binaries_of(None), data_directory=disk.data_directory) as cluster, besieged(cluster) as scene:
            backups = disk.path / "backups"
            backups.mkdir()
            yield Ground(scene, disk, cluster, backups)


def test_the_file_is_deleted_and_its_neighbours_and_the_server_stay(ground: Ground) -> None:
    oldest, newest = big_file(ground.backups, 32), big_file(ground.backups, 2, "newest.dump")
    ground.scene.raised("discard-mount")
    free = ground.free()
    walk = ground.walk(oldest)
    assert walk.code == 0, walk.text
    assert {ASIDE, CUT} <= set(walk.done())
    assert list(ground.backups.iterdir()) == [newest]
    assert newest.stat().st_size == 2 * MIB
    assert ground.free() > free + 16 * MIB
    assert ground.cluster.psql("select 1") == "1"


def test_it_does_not_start_with_anything_but_a_plain_file_with_one_name(ground: Ground) -> None:
    one = big_file(ground.backups, 1, "one.dump")
    two, link = ground.backups / "two.dump", ground.backups / "link.dump"
    os.link(one, two)
    link.symlink_to(one)
    told = {two: "it is a hard link", link: f"name the file itself, {one}", ground.backups: "is a directory",
            ground.backups / "nothing.dump": "does not exist"}  # fmt: skip
    for path, why in told.items():
        walk = ground.walk(path)
        assert walk.code == 7, walk.text
        assert walk.records("run.started") == [] and walk.done() == []
        assert why in walk.ending and "it is a regular file with one name" in walk.ending
    assert one.stat().st_size == two.stat().st_size == MIB


def test_a_file_of_the_server_is_refused_and_stays(ground: Ground) -> None:
    path = big_file(ground.cluster.data_directory, 1)
    walk = ground.walk(path)
    assert walk.code == 7, walk.text
    assert walk.red() == ["what-is-it/outside"] and walk.records("run.started") == [], "before anything is asked"
    assert "lies in the data directory" in walk.ending
    assert path.stat().st_size == MIB
    path.unlink()


def test_one_file_of_a_backup_or_of_a_backup_repository_is_refused_and_stays(ground: Ground) -> None:
    base = ground.backups / "base" / "2026-11-01"
    tool = ground.backups / "pgbackrest" / "backup" / "main"
    objects = ground.backups / "walg" / "basebackups_005"
    for directory in (base / "16384", tool / "20261101-010000F", objects):
        directory.mkdir(parents=True)
    (base / "backup_manifest").write_text('{"Files": [{ "Path": "16384/17\\"1", "Size": 1 }, { "Path": "16384/171" }]}')
    (tool / "backup.info").touch()
    told = {
        big_file(base / "16384", 1, "171"): "is listed in",
        big_file(tool / "20261101-010000F", 1, "base.tar.zst"): "lies in a backup repository",
        big_file(objects, 1, "base.tar.lz4"): "remove it with wal-g delete",
    }
    for path, why in told.items():
        walk = ground.walk(path)
        assert walk.code == 7, walk.text
        assert walk.red() == ["what-is-it/repository"] and walk.records("run.started") == [], "before anything is asked"
        assert why in walk.ending and path.stat().st_size == MIB
    beside = big_file(base, 1, "base.tar.gz")
    assert ground.walk(beside).code == 0 and not beside.exists(), "a backup in one file is named in no manifest"


def test_without_the_typed_confirmation_nothing_is_cut_and_the_name_stays(ground: Ground) -> None:
    path = big_file(ground.backups, 1, "kept.dump")
    walk = ground.scene.headless(BOOK, *TOLD, file=str(path))
    assert walk.code == 8, walk.text
    assert path.stat().st_size == MIB
    path.unlink()
