"""Whether sessions lie in a good place: on what file system, beside what, with how much room.

Asks the kernel with statvfs and stat, which hang on a dead mount: call it in a lane.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from dba_console.units import human_bytes

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs", "lustre", "gpfs")
)
"""File systems whose locks and shared memory SQLite's log cannot rely on (sqlite.org, "Write-Ahead Logging")."""
MEMORY = frozenset({"tmpfs", "ramfs"})
LOW_BYTES = 512 << 20
"""Room below which it is said: some nine days at 600 bytes a second."""


class Place(Struct, frozen=True, kw_only=True):
    """Where sessions lie. None is unknown."""

    path: str
    mount: str | None
    fstype: str | None
    free_bytes: int | None
    shares_with: list[str]
    """What of the server lies on the same file system: data, wal, archive, ..."""
    warnings: list[str]
    """One sentence each, with what would help."""


def examine(directory: Path, paths: Mapping[str, str], *, proc: str = "/proc") -> Place:
    """`paths`: what the server keeps where (host.Mounts.paths). Never raises; what cannot be read is unknown."""
    existing = _existing(directory)
    device = _device(existing)
    mount, fstype = _mount_of(existing, proc)
    shares = sorted(what for what, path in paths.items() if what != "session" and _same(device, path))
    free = _free(existing)
    return Place(
        path=str(directory), mount=mount, fstype=fstype, free_bytes=free, shares_with=shares,
        warnings=_warnings(fstype, shares, free),
    )  # fmt: skip


def _warnings(fstype: str | None, shares: list[str], free: int | None) -> list[str]:
    warnings = []
    if fstype in NETWORK:
        warnings.append(f"sessions lie on a network file system ({fstype}): name a local directory with --sessions")
    if fstype in MEMORY:
        warnings.append(f"sessions lie in memory ({fstype}) and are gone after a reboot")
    if shares:
        warnings.append(
            f"sessions share a file system with {', '.join(shares)}: when it is full or stalls, so does the recording; "
            "name another with --sessions"
        )
    if free is not None and free < LOW_BYTES:
        warnings.append(f"{human_bytes(free)} left where sessions lie")
    return warnings


def _existing(path: Path) -> Path:
    """The nearest directory upwards that is there already."""
    path = Path(os.path.abspath(path))
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _device(path: Path | str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def _same(device: int | None, path: str) -> bool:
    return device is not None and _device(path) == device


def _free(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _mount_of(path: Path, proc: str) -> tuple[str | None, str | None]:
    """Mount point and type from mountinfo (proc_pid_mountinfo(5)): the longest point above the path, the last wins."""
    best: tuple[str | None, str | None] = (None, None)
    real = os.path.realpath(path)
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields, _, after = line.partition(" - ")
                point = fields.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0] or ""):
                    best = (point, after.split(" ")[0])
    except (OSError, IndexError):
        return best
    return best
