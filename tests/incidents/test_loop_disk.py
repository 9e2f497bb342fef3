"""A disk of one's own is given back whatever happens: left in order, killed, frozen, in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.core.errors import PermissionDenied, Unsupported
from dba_console.demo.incidents.loop_disk import MIB, loop_disk
from tests.background import wait_until
from tests.requirements import require_tool

SMALL = 32 * MIB
_HOLDER = """
import sys
from dba_console.demo.incidents.loop_disk import MIB, loop_disk
with loop_disk(32 * MIB, stacked=True) as disk:
    print(disk.host_directory, disk.lower_path, flush=True)
    sys.stdin.read()
"""


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


@pytest.mark.root
def test_a_disk_has_the_requested_size_and_uses_only_what_is_written() -> None:
    with loop_disk(SMALL) as disk:
        found = os.statvfs(disk.path)
        assert 0.7 * SMALL < found.f_blocks * found.f_frsize <= SMALL
        assert (disk.host_directory / "image").stat().st_blocks * 512 < SMALL / 2


@pytest.mark.root
def test_an_abandoned_disk_is_unmounted_and_removed() -> None:
    with loop_disk(SMALL, stacked=True) as disk:
        assert str(disk.path) in mounts()
    assert str(disk.host_directory) not in mounts()
    assert not disk.host_directory.exists()


@pytest.mark.root
def test_an_abandoned_disk_in_use_is_removed_with_its_last_user() -> None:
    with loop_disk(SMALL) as disk:
        held = (disk.path / "held").open("wb")
    assert str(disk.host_directory) not in mounts()
    held.close()


@pytest.mark.root
def test_a_killed_holder_leaves_no_mount_not_even_a_frozen_one() -> None:
    freeze = require_tool("fsfreeze")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        beside, below = holder.stdout.readline().split()
        subprocess.run([freeze, "-f", below], check=True)
        holder.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(beside).exists(), 30, what="the end of the disk")
    assert beside not in mounts()


@pytest.mark.root
def test_a_disk_that_does_not_fit_is_refused_with_the_free_space() -> None:
    with pytest.raises(Unsupported, match="does not fit"), loop_disk(1 << 60):
        pass


def test_without_root_there_is_no_private_disk() -> None:
    if os.geteuid() == 0:
        script = (
            "import os\n"
            "from dba_console.demo.incidents.loop_disk import loop_disk\n"
            "from dba_console.core.errors import PermissionDenied\n"
            "os.setuid(65534)\n"
            "try:\n    loop_disk(1).__enter__()\nexcept PermissionDenied:\n    print('refused')"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd="/")
        assert done.stdout.strip() == "refused", done.stderr
    else:
        with pytest.raises(PermissionDenied), loop_disk(1):
            pass
