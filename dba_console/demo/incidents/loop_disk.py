"""A disk of one's own: a file system in a sparse file on a loop device, given back whatever becomes of us. Root only.

What fills up or freezes here is ours alone. A guard, a shell in a session of its own, holds the other end of a pipe:
when it closes, because we are done or because we were killed, it thaws and unmounts everything and removes the files.
So there is one way of giving back, and it is the same after `kill -9`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dba_console.core.errors import ConsoleError, PermissionDenied, Unsupported
from dba_console.demo.cluster import scratch_directory
from dba_console.demo.server_account import clean_environment, server_account

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze", "mountpoint")
MIB = 1 << 20
SPARE_BYTES = 256 * MIB
"""Left free beside the image on the file system it lies on: what we fill up is our disk, not the host's."""
GIVE_BACK_S = 30.0

# $1: the directory that holds everything; the rest: mount points, the upper ones first. A mount that is still in use
# (a server that has not ended yet) is waited for 6 s, then taken out of the tree: it goes with its last user.
_SCRIPT = r"""
trap '' HUP INT TERM
read -r word
top=$1; shift
for mount; do
    n=0
    while mountpoint -q "$mount"; do
        for each; do fsfreeze -u "$each" 2>/dev/null; done
        umount "$mount" 2>/dev/null && continue
        n=$((n + 1))
        if [ $n -ge 60 ]; then umount -l "$mount"; break; fi
        sleep 0.1
    done
done
rm -rf --one-file-system -- "$top"
"""


@dataclass(frozen=True, slots=True)
class LoopDisk:
    """`path` is mounted and belongs to the server's user; `host_directory` lies on the host's disk and is removed
    with it.

    `lower_path` is the file system that carries the disk's image, None when that is the host's own. Freezing it
    leaves the disk without an answer, as a storage network that went away does.
    """

    path: Path
    host_directory: Path
    lower_path: Path | None = None

    @property
    def data_directory(self) -> Path:
        """Where a server's data goes: beside lost+found, in a directory that initdb makes."""
        return self.path / "data"


@contextmanager
def loop_disk(size_bytes: int, *, stacked: bool = False) -> Iterator[LoopDisk]:
    """A disk of `size_bytes`, of which only what is written takes room; `stacked` on another one, that can be frozen.

    Raises PermissionDenied without root, Unsupported where a tool or the room is missing or the kernel has no loop
    device.
    """
    _check_requirements(size_bytes)
    beside = Path(tempfile.mkdtemp(prefix="dba-console-disk-", dir=scratch_directory()))
    beside.chmod(0o711)  # the server's user passes through
    path, below = beside / "disk", beside / "below" if stacked else None
    guard = _start_guard(beside, [path] if below is None else [path, below])
    try:
        carrier = beside
        if below is not None:
            _make_filesystem(beside / "below.image", size_bytes + size_bytes // 8 + 64 * MIB, below)
            carrier = below
        _make_filesystem(carrier / "image", size_bytes, path)
        server_account().chown(path)
        yield LoopDisk(path, beside, below)
    finally:
        _unmount_and_remove(guard, beside)


@contextmanager
def own_data_disk(size_bytes: int) -> Iterator[Path | None]:
    """For root a data directory on a disk of its own; for everybody else None: the data lies where it always does."""
    if os.geteuid() != 0:
        yield None
        return
    with loop_disk(size_bytes) as disk:
        yield disk.data_directory


def _check_requirements(size_bytes: int) -> None:
    if os.geteuid() != 0:
        raise PermissionDenied("a disk of its own is mounted by root only", hint="run it with sudo")
    for tool in TOOLS:
        if shutil.which(tool, path=_path()) is None:
            raise Unsupported(
                f"there is no {tool}, which makes a disk of its own", hint="install util-linux, e2fsprogs"
            )
    place = scratch_directory()
    free = shutil.disk_usage(place).free
    if free < size_bytes + SPARE_BYTES:
        raise Unsupported(
            f"a disk of {size_bytes // MIB} MB does not fit into {place}, which has {free // MIB} MB left",
            hint="name a roomier directory with TMPDIR",
        )


def _make_filesystem(image: Path, size_bytes: int, mount_point: Path) -> None:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    mount_point.mkdir(mode=0o755)
    # Tables and journal are written at once, not by the kernel in the minutes after: then the disk is quiet but for
    # what we do. So there is less of them than usual.
    journal = max(4, min(32, size_bytes // MIB // 64))
    once = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    _run("mkfs.ext4", "-q", "-m", "0", "-i", "65536", "-J", f"size={journal}", "-E", once, str(image))
    _run("mount", "-t", "ext4", "-o", "loop,noatime", str(image), str(mount_point))


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_environment(), check=False, timeout=60
    )
    if done.returncode != 0:
        raise Unsupported(f"cannot make a disk of its own: {command[0]}: {done.stderr.strip()}")


def _start_guard(beside: Path, mounts: list[Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "dba-console-disk", str(beside), *map(str, mounts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )


def _unmount_and_remove(guard: subprocess.Popen[bytes], beside: Path) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        guard.wait(GIVE_BACK_S)
    except subprocess.TimeoutExpired as error:
        raise ConsoleError(f"the disk in {beside} could not be unmounted in {GIVE_BACK_S:g} s") from error


def _path() -> str:
    # Administrators' directories are not in everybody's PATH, not even in root's under sudo.
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _environment() -> dict[str, str]:
    return {**clean_environment(), "PATH": _path()}
