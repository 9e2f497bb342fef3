"""A disk fills up: the copy that fills it stops short of the end, and goes; without root there is none.

That it is named in time, and what is done then: `runbooks/test_disk_filling.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.core.errors import ExitCode
from dba_console.demo.incidents.disk_filling import FileFiller
from dba_console.demo.incidents.loop_disk import MIB, loop_disk
from dba_console.demo.server_account import server_account
from tests.background import wait_until
from tests.incidents.unprivileged import demo_without_root


@pytest.mark.root
def test_the_copy_stops_before_the_disk_is_full() -> None:
    with loop_disk(64 * MIB) as disk:
        filler = FileFiller(disk.path / "copy", 64 * MIB, leave_bytes=16 * MIB, account=server_account())
        try:
            filler.wait_begun()
            wait_until(lambda: filler.ended, 60, what="the end of the copy")
            room = os.statvfs(disk.path)
            assert 15 * MIB < room.f_bavail * room.f_frsize < 33 * MIB
        finally:
            filler.stop()
        assert not (disk.path / "copy").exists()


def test_without_root_an_error_says_that_root_is_needed(tmp_path: Path) -> None:
    done = demo_without_root(tmp_path, "--incident", "disk-filling", "--headless")
    assert done.returncode == ExitCode.PERMISSION
    assert "needs root" in done.stderr
