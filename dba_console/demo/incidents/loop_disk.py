"""A private disk: a file system in a sparse file on a loop device, always removed afterwards. Root only.

Only this disk is filled or frozen. A cleanup process, a shell in its own session, holds the other end of a pipe: when
it closes, at the normal end or because we were killed, it thaws and unmounts everything and removes the files. So the
cleanup is the same after `kill -9`.
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
from dba_console.demo.server_account import clean_environment, server_account
from dba_console.demo.temporary_server import scratch_directory

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze", "mountpoint")
MIB = 1 << 20
SPARE_BYTES = 256 * MIB
"""Left free on the file system of the image: only our disk is filled, not the host's."""
GIVE_BACK_S = 30.0

# $1: the directory of all files; the rest: mount points, the upper ones first. A mount still in use (a server that has
# not ended yet) is retried for 6 s, then lazily unmounted: it disappears with its last user.
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
    """`path` is mounted and belongs to the server's user; `host_directory` is on the host's disk and is removed with
    it.

    `lower_path` is the file system with the disk's image, None if that is the host's own. Freezing it makes the disk
    hang, as a failed storage network does.
    """

    path: Path
    host_directory: Path
    lower_path: Path | None = None

    @property
    def data_directory(self) -> Path:
        """The server's data directory: beside lost+found, created by initdb."""
        return self.path / "data"


@contextmanager
def loop_disk(size_bytes: int, *, stacked: bool = False) -> Iterator[LoopDisk]:
    """Create a disk of `size_bytes`, which uses only the space that is written; `stacked` on another one that can be
    frozen.

    Raises PermissionDenied without root, Unsupported if a tool or space is missing or the kernel has no loop device.
    """
    _check_requirements(size_bytes)
    directory = Path(tempfile.mkdtemp(prefix="dba-console-disk-", dir=scratch_directory()))
    directory.chmod(0o711)  # the server's user passes through
    path, below = directory / "disk", directory / "below" if stacked else None
    cleanup = _start_cleanup(directory, [path] if below is None else [path, below])
    try:
        carrier = directory
        if below is not None:
            _make_filesystem(directory / "below.image", size_bytes + size_bytes // 8 + 64 * MIB, below)
            carrier = below
        _make_filesystem(carrier / "image", size_bytes, path)
        server_account().chown(path)
        yield LoopDisk(path, directory, below)
    finally:
        _unmount_and_remove(cleanup, directory)


@contextmanager
def own_data_disk(size_bytes: int) -> Iterator[Path | None]:
    """Yield a data directory on a private disk for root; None for other users: the data is in its usual directory."""
    if os.geteuid() != 0:
        yield None
        return
    with loop_disk(size_bytes) as disk:
        yield disk.data_directory


def _check_requirements(size_bytes: int) -> None:
    if os.geteuid() != 0:
        raise PermissionDenied("only root can mount a private disk", hint="run it with sudo")
    for tool in TOOLS:
        if shutil.which(tool, path=_path()) is None:
            raise Unsupported(f"{tool} is missing, which a private disk needs", hint="install util-linux, e2fsprogs")
    place = scratch_directory()
    free = shutil.disk_usage(place).free
    if free < size_bytes + SPARE_BYTES:
        raise Unsupported(
            f"a disk of {size_bytes // MIB} MB does not fit into {place}: {free // MIB} MB free",
            hint="set TMPDIR to a directory with more space",
        )


def _make_filesystem(image: Path, size_bytes: int, mount_point: Path) -> None:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    mount_point.mkdir(mode=0o755)
    # Tables and journal are written at once, not by the kernel in the minutes after, so that the disk has only our I/O.
    # So they are smaller than usual.
    journal = max(4, min(32, size_bytes // MIB // 64))
    once = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    _run("mkfs.ext4", "-q", "-m", "0", "-i", "65536", "-J", f"size={journal}", "-E", once, str(image))
    _run("mount", "-t", "ext4", "-o", "loop,noatime", str(image), str(mount_point))


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_environment(), check=False, timeout=60
    )
    if done.returncode != 0:
        raise Unsupported(f"cannot create a private disk: {command[0]}: {done.stderr.strip()}")


def _start_cleanup(directory: Path, mounts: list[Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "dba-console-disk", str(directory), *map(str, mounts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )


def _unmount_and_remove(cleanup: subprocess.Popen[bytes], directory: Path) -> None:
    assert cleanup.stdin is not None
    cleanup.stdin.close()
    try:
        cleanup.wait(GIVE_BACK_S)
    except subprocess.TimeoutExpired as error:
        raise ConsoleError(f"the disk in {directory} could not be unmounted in {GIVE_BACK_S:g} s") from error


def _path() -> str:
    # Administrators' directories are not in every user's PATH, not even in root's under sudo.
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _environment() -> dict[str, str]:
    return {**clean_environment(), "PATH": _path()}
