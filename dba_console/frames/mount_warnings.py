"""Arrangements of file systems that stop a database, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.frames.model import MountRow

FULL_WARN_PCT = 80.0
FULL_CRIT_PCT = 90.0
_SERVER = ("data", "wal")
_BESIDE = ("archive", "backup", "session")

MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs", "lustre", "gpfs")
)
"""File systems whose locks and shared memory SQLite's log cannot rely on (sqlite.org, "Write-Ahead Logging")."""


def mount_warnings(mounts: list[MountRow]) -> list[str]:
    """What is wrong with where things lie; only mounts that hold something of the server or the console are judged."""
    return [warning for mount in mounts if mount.holds for warning in _mount_warnings(mount)]


def _mount_warnings(mount: MountRow) -> Iterator[str]:
    server = [held for held in mount.holds if held in _SERVER or held.startswith("tablespace:")]
    beside = [held for held in mount.holds if held in _BESIDE]
    options = (mount.options or "").split(",")
    if mount.status != "ok":
        yield f"{mount.path} ({_names(mount.holds)}) does not answer: {mount.note or mount.status}"
    if server and beside:
        yield (
            f"{_names(beside)} and {_names(server)} share {mount.path}: "
            "filling it, or removing a large file there, stops the server"
        )
    if mount.fstype in MEMORY and server:
        yield f"{_names(server)} on {mount.fstype} ({mount.path}): lost with the next reboot"
    if mount.fstype in NETWORK and "session" in mount.holds:
        yield f"sessions on {mount.fstype} ({mount.path}): the recording stalls with the network, and may be damaged"
    if "discard" in options:
        yield f"{mount.path} is mounted with discard: removing a large file can stall the device"
    if "ro" in options and server:
        yield f"{mount.path} ({_names(server)}) is mounted read-only"
    yield from _fullness(mount)


def _fullness(mount: MountRow) -> Iterator[str]:
    if mount.used_pct is not None and mount.used_pct >= FULL_WARN_PCT:
        urgent = mount.used_pct >= FULL_CRIT_PCT and "wal" in mount.holds
        yield f"{mount.path} is {int(mount.used_pct)}% full" + (
            ": the server stops when WAL finds no room" if urgent else ""
        )
    if mount.inodes_pct is not None and mount.inodes_pct >= FULL_CRIT_PCT:
        yield f"{mount.path} has used {int(mount.inodes_pct)}% of its inodes"


def _names(holds: list[str]) -> str:
    return ", ".join("WAL" if held == "wal" else held for held in holds)
