"""Real file systems: a loop device, a memory disk under pg_wal, a frozen one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dba_console.watch.probes.host.file_systems import HostContext, MountProbe
from dba_console.watch.probes.host.probe import HostProbe
from dba_console.watch.samples.host import Mount
from tests.requirements import lacking

pytestmark = pytest.mark.root

Mounter = Callable[..., Path]


@pytest.fixture
def tmp_path(disk_directory: Path) -> Path:
    """On a disk: what is mounted below /dev is not shown."""
    return Path(tempfile.mkdtemp(dir=disk_directory))


@pytest.fixture
def mount(tmp_path: Path, require_tool: Callable[[str], str]) -> Iterator[Mounter]:
    """Mounts something at a name below the test's directory; all is unmounted at the end."""
    with ExitStack() as stack:

        def mounted(name: str, *arguments: str) -> Path:
            directory = tmp_path / name
            directory.mkdir()
            done = subprocess.run(
                [require_tool("mount"), *arguments, str(directory)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                lacking(f"this machine cannot mount: {done.stderr.strip()}")
            stack.callback(subprocess.run, [require_tool("umount"), str(directory)], check=True)
            return directory

        yield mounted


@pytest.fixture
def image(tmp_path: Path, require_tool: Callable[[str], str]) -> Path:
    """A file that holds an ext4 file system."""
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run([require_tool("mkfs.ext4"), "-q", str(path)], check=True)
    return path


def rows(context: HostContext) -> dict[str, Mount]:
    probe = MountProbe()
    reading = probe.read(context).decode()
    probe.close()
    return {row.path: row for row in reading.mounts}


def test_wal_on_a_memory_disk_is_found_through_its_link(mount: Mounter, tmp_path: Path) -> None:
    wal = mount("wal", "-t", "tmpfs", "-o", "size=8m", "tmpfs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/pg_wal").symlink_to(wal)
    row = rows(HostContext(data_directory=str(tmp_path / "data")))[str(wal)]
    assert (row.fstype, row.holds, row.device) == ("tmpfs", ["wal"], None)
    assert row.size == 8 << 20


def test_a_memory_disk_without_server_files_is_not_shown(mount: Mounter) -> None:
    place = mount("idle", "-t", "tmpfs", "tmpfs")
    assert str(place) not in rows(HostContext())


def test_a_loop_device_names_itself_and_the_disk_under_it(mount: Mounter, image: Path, tmp_path: Path) -> None:
    place = mount("loop", "-o", "loop", str(image))
    (place / "file").write_bytes(b"x" * 100_000)
    found = rows(HostContext(paths={"session": str(tmp_path)}))
    device = found[str(place)].device
    assert device is not None
    assert device.startswith("loop")
    probe = HostProbe()
    [part] = probe.read(["host.disks"], HostContext())
    probe.close()
    under = next(disk.underlying for disk in part.decode().devices if disk.name == device)
    below = [row.device for row in found.values() if "session" in row.holds and row.device]
    assert under == below


def test_a_frozen_file_system_is_still_measured(
    mount: Mounter, image: Path, require_tool: Callable[[str], str]
) -> None:
    place = mount("frozen", "-o", "loop", str(image))
    freeze = require_tool("fsfreeze")
    subprocess.run([freeze, "-f", str(place)], check=True)
    try:
        row = rows(HostContext(paths={"data": str(place)}))[str(place)]
    finally:
        subprocess.run([freeze, "-u", str(place)], check=True)
    assert row.status == "ok"
    assert "data" in row.holds
    assert row.used is not None
