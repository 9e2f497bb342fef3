"""/proc/self/mountinfo: what is mounted where (proc_pid_mountinfo(5)), and which mount holds a path.

Nothing here touches a mount, so nothing here can hang on one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PSEUDO = frozenset((
    "autofs", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs",
    "devpts", "devtmpfs", "efivarfs", "fusectl", "fuse.gvfsd-fuse", "fuse.portal", "hugetlbfs", "mqueue",
    "nfsd", "nsfs", "overlay", "proc", "pstore", "ramfs", "resctrl", "rootfs",
    "rpc_pipefs", "securityfs", "selinuxfs", "smackfs", "squashfs", "sysfs", "tmpfs", "tracefs",
))  # fmt: skip
"""File systems nobody keeps a database on. One is shown all the same when something of the server lies there."""

_SHOWN = frozenset(("/", "/dev/shm", "/tmp"))
"""Shown whatever they are: the root, and where PostgreSQL and its tools put shared memory and temporary files."""

_ESCAPE = re.compile(rb"\\([0-7]{3})")


class MountEntry(NamedTuple):
    """One line of mountinfo. `device` is `MAJOR:MINOR`; Texts may hold surrogate escapes (os.fsdecode)."""

    device: str
    root: str
    path: str
    options: str
    fstype: str
    source: str


def parse_mountinfo(data: bytes) -> list[MountEntry]:
    """Entries in the kernel's order. A line that cannot be read is left out, the others still count."""
    entries = []
    for line in data.split(b"\n"):
        left, separator, right = line.partition(b" - ")
        before, after = left.split(b" "), right.split(b" ")
        if not separator or len(before) < 6 or len(after) < 2:
            continue
        options = _merged(before[5], after[2] if len(after) > 2 else b"")
        root, path, fstype, source = (_decode(word) for word in (before[3], before[4], after[0], after[1]))
        entries.append(MountEntry(before[2].decode(), root, path, options, fstype, source))
    return entries


def hidepid_option(proc: str = "/proc") -> str | None:
    """The option of /proc that hides other users' processes, as `hidepid=2`; None where it hides none.

    Root, and members of the group that `gid=` names, see them all the same (proc(5)).
    """
    try:
        with open(f"{proc}/self/mountinfo", "rb") as file:
            entries = parse_mountinfo(file.read())
    except OSError:
        return None
    options = next((one.options for one in reversed(entries) if (one.path, one.fstype) == (proc, "proc")), "")
    hidden = next((word for word in options.split(",") if word.startswith("hidepid=")), None)
    return None if hidden in ("hidepid=0", "hidepid=off") else hidden


def _decode(word: bytes) -> str:
    """Blank, tab, line end and backslash stand as `\\040` and so on."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), word))


def _merged(mount: bytes, superblock: bytes) -> str:
    """Options of the mount, then those of the file system (discard, data=) that are not already there."""
    words = _decode(mount).split(",")
    words += [word for word in _decode(superblock).split(",") if word and word not in words and word != "rw"]
    return ",".join(words)


def visible_mounts(entries: Sequence[MountEntry]) -> list[MountEntry]:
    """One entry per mount point: the last one mounted there hides those before it."""
    return list({entry.path: entry for entry in entries}.values())


def mount_of_path(entries: Iterable[MountEntry], path: str) -> MountEntry | None:
    """The mount an absolute path lies on: the one with the longest mount point above it."""
    found: MountEntry | None = None
    for entry in entries:
        point = entry.path.rstrip("/")
        # >= so that of two mounts on one point the later, visible one is taken.
        if (path == point or path.startswith(point + "/")) and (found is None or len(entry.path) >= len(found.path)):
            found = entry
    return found


def choose_mounts(entries: Sequence[MountEntry], holding: frozenset[str]) -> list[MountEntry]:
    """Mounts to show: those whose mount point is in `holding`, then real file systems, each once.

    A file system mounted in several places (bind mounts) is shown at the first, and wherever it holds something.
    """
    mounted = visible_mounts(entries)
    shown = [entry for entry in mounted if entry.path in holding]
    seen = {entry.device for entry in shown}
    for entry in mounted:
        if entry.path in holding or not _is_real(entry) or entry.device in seen:
            continue
        seen.add(entry.device)
        shown.append(entry)
    return sorted(shown, key=lambda entry: entry.path)


def _is_real(entry: MountEntry) -> bool:
    if entry.path in _SHOWN:
        return True
    # A bind mount of one file (a container's /etc/hosts) or of a part of what is not shown says nothing of its own.
    return entry.fstype not in _PSEUDO and not entry.path.startswith(("/proc/", "/sys/", "/etc/", "/dev/"))
