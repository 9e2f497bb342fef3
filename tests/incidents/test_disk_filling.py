"""A disk fills up: it is named within ten seconds; the copy that fills it stops short of the end, and goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.demo.account import server_account
from dba_console.demo.incidents.disk_filling import NEWER
from dba_console.demo.incidents.filler import Filler
from dba_console.demo.incidents.loop_disk import MIB, loop_disk
from dba_console.demo.load import LoadPlan
from dba_console.errors import ExitCode
from tests.background import wait_until
from tests.incidents.rehearsing import assert_seen, rehearse
from tests.incidents.unprivileged import demo_without_root

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


@pytest.mark.root
def test_a_disk_that_fills_up_is_named_within_ten_seconds(tmp_path: Path) -> None:
    with rehearse("disk-filling", tmp_path, SMALL) as disk:
        verdict = disk.until_raised()
        frame = disk.until_frame(
            lambda frame: any("data" in row.holds and (row.used_pct or 0) > 80 for row in frame.disks.mounts),
            what="80 %",
        )
        assert_seen(verdict)
        place = next(Path(row.path) for row in frame.disks.mounts if "data" in row.holds)
        assert (place / NEWER).exists()
        disk.incident.end(disk.ground)
        assert not (place / NEWER).exists()


@pytest.mark.root
def test_the_copy_stops_before_the_disk_is_full() -> None:
    with loop_disk(64 * MIB) as disk:
        filler = Filler(disk.path / "copy", 64 * MIB, leave_bytes=16 * MIB, account=server_account())
        try:
            filler.wait_begun()
            wait_until(lambda: filler.ended, 10, what="the end of the copy")
            room = os.statvfs(disk.path)
            assert 15 * MIB < room.f_bavail * room.f_frsize < 33 * MIB
        finally:
            filler.stop()
        assert not (disk.path / "copy").exists()


def test_without_root_it_is_said_that_root_is_needed(tmp_path: Path) -> None:
    done = demo_without_root(tmp_path, "--incident", "disk-filling", "--headless")
    assert done.returncode == ExitCode.PERMISSION
    assert "needs root" in done.stderr
