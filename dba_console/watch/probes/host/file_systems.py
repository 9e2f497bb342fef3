"""Reads file systems, their devices and what they hold. A mount that does not answer delays no other.

All statvfs calls of a reading start together and share one deadline, so a reading never takes longer than that (`df`
hanging on a dead NFS server has stopped more than one monitor). psutil names no device numbers, so it could not tell a
mount's disk without touching the mount.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dba_console.core.clock import SYSTEM, Clock
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.probes.host.kernel_files import printable, read_file, read_word
from dba_console.watch.probes.host.postmasters import data_directory_of
from dba_console.watch.samples.host import Mount, Mounts
from dba_console.watch.samples.sample import Part, make_part

# /proc/self/mountinfo: mounts (proc_pid_mountinfo(5)), and which mount holds a path. Nothing here accesses a mount, so
# nothing can hang on one.

_PSEUDO = frozenset((
    "autofs", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs",
    "devpts", "devtmpfs", "efivarfs", "fusectl", "fuse.gvfsd-fuse", "fuse.portal", "hugetlbfs", "mqueue",
    "nfsd", "nsfs", "overlay", "proc", "pstore", "ramfs", "resctrl", "rootfs",
    "rpc_pipefs", "securityfs", "selinuxfs", "smackfs", "squashfs", "sysfs", "tmpfs", "tracefs",
))  # fmt: skip
"""File systems that hold no database. Shown only if a path of the server is on one."""

_SHOWN = frozenset(("/", "/dev/shm", "/tmp"))
"""Always shown: the root, and where PostgreSQL and its tools put shared memory and temporary files."""

_ESCAPE = re.compile(rb"\\([0-7]{3})")


class MountEntry(NamedTuple):
    """One line of mountinfo. `device` is `MAJOR:MINOR`; texts may contain surrogate escapes (os.fsdecode)."""

    device: str
    root: str
    path: str
    options: str
    fstype: str
    source: str


def parse_mountinfo(data: bytes) -> list[MountEntry]:
    """Return the entries in the kernel's order. An invalid line is skipped."""
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


def read_mounts(proc: str) -> list[MountEntry]:
    """Return this process's mounts in the kernel's order. Raises OSError."""
    return parse_mountinfo(read_file(f"{proc}/self/mountinfo"))


def hidepid_option(proc: str = "/proc") -> str | None:
    """Return the option of /proc that hides other users' processes, as `hidepid=2`; None if it hides none.

    Root, and members of the group in `gid=`, see all processes (proc(5)).
    """
    try:
        entries = read_mounts(proc)
    except OSError:
        return None
    options = next((one.options for one in reversed(entries) if (one.path, one.fstype) == (proc, "proc")), "")
    hidden = next((word for word in options.split(",") if word.startswith("hidepid=")), None)
    return None if hidden in ("hidepid=0", "hidepid=off") else hidden


def _decode(word: bytes) -> str:
    """Blank, tab, line end and backslash are written as `\\040` and so on."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), word))


def _merged(mount: bytes, superblock: bytes) -> str:
    """Return the options of the mount, then those of the file system (discard, data=) that are not already there."""
    words = _decode(mount).split(",")
    words += [word for word in _decode(superblock).split(",") if word and word not in words and word != "rw"]
    return ",".join(words)


def visible_mounts(entries: Sequence[MountEntry]) -> list[MountEntry]:
    """Return one entry per mount point: the last one mounted there hides those before it."""
    return list({entry.path: entry for entry in entries}.values())


def mount_of_path(entries: Iterable[MountEntry], path: str) -> MountEntry | None:
    """Return the mount of an absolute path: the one with the longest mount point above it."""
    found: MountEntry | None = None
    for entry in entries:
        point = entry.path.rstrip("/")
        # >= so that of two mounts on one point the later, visible one is taken.
        if (path == point or path.startswith(point + "/")) and (found is None or len(entry.path) >= len(found.path)):
            found = entry
    return found


def choose_mounts(entries: Sequence[MountEntry], holding: frozenset[str]) -> list[MountEntry]:
    """Return the mounts to show: those whose mount point is in `holding`, then real file systems, each once.

    A file system with several mounts (bind mounts) is shown at the first, and at each that holds something.
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
    # A bind mount of one file (a container's /etc/hosts) or of a part of a hidden one adds nothing.
    return entry.fstype not in _PSEUDO and not entry.path.startswith(("/proc/", "/sys/", "/etc/", "/dev/"))


# Block devices from /sys/dev/block and /sys/block: whether whole, the disk of a partition, the devices below a dm, md
# or loop device (Documentation/ABI/stable/sysfs-block). A partition is never counted in addition to its disk: a disk's
# numbers include those of its partitions.

_PARTITION = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+)\d+|(?:nvme\d+n\d+|mmcblk\d+|nbd\d+|md\d+|loop\d+)p\d+")
"""Names of partitions where /sys is missing (some containers)."""


def is_whole(sys: str, name: str) -> bool:
    """Check whether it is a whole device, by its name in /proc/diskstats; a `/` in a name is a `!` in /sys."""
    if os.path.isdir(f"{sys}/block"):
        return os.path.isdir(f"{sys}/block/{name.replace('/', '!')}")
    return _PARTITION.fullmatch(name) is None


def whole_disk(sys: str, device: str) -> str | None:
    """Return the whole device of `MAJOR:MINOR`, None if it is not a block device (NFS, tmpfs, btrfs's own numbers)."""
    return _disk_of(f"{sys}/dev/block/{device}")


def disk_of_name(sys: str, name: str) -> str | None:
    """Return the whole device of a kernel name such as `sda1`, None if there is no such block device."""
    return _disk_of(f"{sys}/class/block/{name.replace('/', '!')}")


def _disk_of(link: str) -> str | None:
    try:
        directory = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    except OSError:
        return None
    if os.path.exists(f"{directory}/partition"):
        directory = os.path.dirname(directory)
    return os.path.basename(directory).replace("!", "/")


def slaves(sys: str, name: str) -> list[str]:
    """Return the whole devices under a dm or md device, empty for any other."""
    directory = f"{sys}/block/{name.replace('/', '!')}/slaves"
    try:
        members = os.listdir(directory)
    except OSError:
        return []
    disks = {disk_of_name(sys, member) or member.replace("!", "/") for member in members}
    return sorted(disks)


def backing_file(sys: str, name: str) -> str | None:
    """Return the file behind a loop device, None for any other device."""
    return read_word(f"{sys}/block/{name}/loop/backing_file") if name.startswith("loop") else None


# Where PostgreSQL's directories are: symbolic links resolved, relative paths taken from the data directory. Resolving a
# link accesses the file system, so it runs in a lane only.

WITHIN_DATA = {"wal": "pg_wal", "temp": "base/pgsql_tmp"}
"""Directories inside the data directory unless a link or a setting moves them."""

NO_ACCESS = (
    "the data directory is not accessible, so whether pg_wal is a link to another file system is unknown: "
    "run the agent as root or as the owner of the server"
)


def named_paths(paths: Mapping[str, str], data_directory: str | None) -> dict[str, str]:
    """Return kind -> absolute path, as named: completed by what every data directory has, without file access.

    >>> named_paths({"data": "/pg", "log": "log"}, None)
    {'data': '/pg', 'log': '/pg/log', 'wal': '/pg/pg_wal', 'temp': '/pg/base/pgsql_tmp'}
    """
    data = paths.get("data") or data_directory
    named = {what: path for what, path in paths.items() if path}
    if data:
        named["data"] = data
        for what, below in WITHIN_DATA.items():
            named.setdefault(what, f"{data}/{below}")
    whole = {what: path if path.startswith("/") else f"{data}/{path}" for what, path in named.items()}
    return {what: path for what, path in whole.items() if path.startswith("/")}


def resolve_links(named: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Return kind -> path with all links resolved, and a note if that was not permitted.

    A path that may be a link but is not accessible is left out: it must not be attributed to the wrong mount.
    """
    followed: dict[str, str] = {}
    note = None
    for what, path in named.items():
        try:
            followed[what] = _resolve(path)
        except PermissionError:
            note = NO_ACCESS
        except OSError:
            followed[what] = os.path.normpath(path)
    return followed, note


def _resolve(path: str) -> str:
    """Return the path without links; a last part that does not exist yet is kept. Raises OSError."""
    try:
        return os.path.realpath(path, strict=True)
    except FileNotFoundError:
        head, tail = os.path.split(path)
        return os.path.join(_resolve(head), tail) if tail else os.path.normpath(path)


# What the agent knows of the server so far, for the host probes. Built by the agent for each tick and never changed: it
# is passed to the lanes' threads.

ELSEWHERE = "the server does not run on this host, so its kernel cannot be read from here: run the console there"


@dataclass(frozen=True)
class HostContext:
    """Where the watched server is on this host, or why that is unknown.

    `paths` maps kind to path as the server names it: data, wal, temp, archive, log, session, `tablespace:NAME`;
    relative ones are relative to the data directory. `active_pids` are the backends to read each second, others are
    read in turn. `watched` is False if the target is not this host: then nothing of this host is shown, and `note` says
    why.
    """

    postmaster_pid: int | None = None
    data_directory: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    active_pids: frozenset[int] = frozenset()
    watched: bool = True
    note: str | None = None


DEADLINE_S = 0.3
"""Time limit for all mounts together; a healthy statvfs takes microseconds."""

MAX_MOUNTS = 64
"""Maximum number of mounts shown, those that hold something first: a container host has thousands."""

NO_DATA = (
    "the data directory is unknown: grant pg_monitor to the role, or run the agent as root or as the "
    "owner of the server"
)
STALLED = "statvfs did not return in time: the file system is stalled"


class FileSystemSize(Protocol):
    """The result of statvfs(3), with the names of os.statvfs_result."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bfree(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...
    @property
    def f_files(self) -> int: ...
    @property
    def f_ffree(self) -> int: ...


class MountProbe:
    """Reads `host.mounts`. Created once; not thread-safe."""

    def __init__(
        self,
        clock: Clock = SYSTEM,
        *,
        proc: str = "/proc",
        sys: str = "/sys",
        statvfs: Callable[[str], FileSystemSize] = os.statvfs,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._clock = clock
        self._proc = proc
        self._sys = sys
        self._statvfs = statvfs
        self._deadline_us = int(deadline_s * 1e6)
        self._lanes: dict[str, Lane] = {}
        self._links_lane = Lane("places", clock)
        self._resolved: dict[str, str] = {}

    @property
    def stuck(self) -> list[str]:
        """Names of the lanes that wait for a file system now."""
        lanes = (self._links_lane, *self._lanes.values())
        return [lane.name for lane in lanes if lane.stuck]

    def read(self, context: HostContext) -> Part:
        """Return the part `host.mounts`. Never raises; takes at most the deadline twice (links, then sizes)."""
        started = self._clock.mono_us()
        if not context.watched:
            note = context.note or ELSEWHERE
            return make_part("host.mounts", None, at_us=started, status="unsupported", note=note)
        try:
            reading = self._read(context)
        except Exception as error:
            note = f"the mounts of this host cannot be read: {error}"
            return make_part("host.mounts", None, at_us=started, status="error", note=note)
        ended = self._clock.mono_us()
        return make_part("host.mounts", reading, at_us=ended, took_us=ended - started, note=reading.note)

    def _read(self, context: HostContext) -> Mounts:
        entries = read_mounts(self._proc)
        named = named_paths(context.paths, context.data_directory or self._process_data_directory(context))
        followed, note = self._resolve_links(named)
        holds: dict[str, list[str]] = {}
        for what, path in sorted(followed.items()):
            if (entry := mount_of_path(entries, path)) is not None:
                holds.setdefault(entry.path, []).append(printable(what))
        chosen = choose_mounts(entries, frozenset(holds))
        chosen.sort(key=lambda entry: entry.path not in holds)
        shown = sorted(chosen[:MAX_MOUNTS], key=lambda entry: entry.path)
        places = {printable(what): printable(path) for what, path in named.items()}
        mounts = self._read_sizes(shown, holds)
        if "data" not in named:
            note = NO_DATA
        elif note is None and len(chosen) > MAX_MOUNTS:
            note = f"{MAX_MOUNTS} of {len(chosen)} file systems are shown, those the server uses first"
        return Mounts(mounts, places, note)

    def _process_data_directory(self, context: HostContext) -> str | None:
        """Return the postmaster's working directory, for a role that cannot read the setting from the server."""
        if "data" in context.paths or context.postmaster_pid is None:
            return None
        return data_directory_of(self._proc, context.postmaster_pid)

    def _resolve_links(self, named: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Resolve links in a lane; the previous result if the file system does not answer."""
        try:
            followed, note = self._links_lane.call(lambda: resolve_links(named), self._deadline_us / 1e6)
        except LaneTimeout:
            kept = {what: self._resolved.get(what, os.path.normpath(path)) for what, path in named.items()}
            return kept, "a file system does not answer, so links in the server's paths were not resolved"
        self._resolved = followed
        return followed, note

    def _read_sizes(self, entries: Sequence[MountEntry], holds: Mapping[str, list[str]]) -> list[Mount]:
        started = [(entry, self._start(entry.path)) for entry in entries]
        self._drop_lanes({entry.path for entry in entries})
        until_us = self._clock.mono_us() + self._deadline_us
        return [_mount(entry, self._device(entry), holds, pending, until_us) for entry, pending in started]

    def _start(self, path: str) -> PendingCall[FileSystemSize] | None:
        lane = self._lanes.get(path)
        if lane is None:
            lane = self._lanes[path] = Lane(f"statvfs {printable(path)}", self._clock)
        try:
            return lane.start(lambda: self._statvfs(path))
        except LaneTimeout:
            return None

    def _drop_lanes(self, mounted: set[str]) -> None:
        for path in [path for path in self._lanes if path not in mounted]:
            self._lanes.pop(path).close()

    def _device(self, entry: MountEntry) -> str | None:
        disk = whole_disk(self._sys, entry.device)
        if disk is None and entry.source.startswith("/dev/"):
            # btrfs and others mount under a number of their own and name a device as source.
            disk = disk_of_name(self._sys, entry.source.rpartition("/")[2])
        return None if disk is None else printable(disk)

    def close(self) -> None:
        """End idle lanes; stuck ones are abandoned."""
        for lane in (self._links_lane, *self._lanes.values()):
            lane.close()
        self._lanes.clear()


def _mount(
    entry: MountEntry,
    device: str | None,
    holds: Mapping[str, list[str]],
    pending: PendingCall[FileSystemSize] | None,
    until_us: int,
) -> Mount:
    path, source, options = printable(entry.path), printable(entry.source), printable(entry.options)
    held = holds.get(entry.path, [])
    try:
        if pending is None:
            raise LaneTimeout
        size = pending.result(until_us)
    except LaneTimeout:
        return Mount(path, source, entry.fstype, options, device, held, status="timeout", note=STALLED)
    except OSError as error:
        note = f"statvfs failed: {error.strerror}"
        return Mount(path, source, entry.fstype, options, device, held, status="error", note=note)
    block = size.f_frsize
    # A file system without a fixed number of inodes (btrfs, some NFS) reports 0: unknown.
    inodes, inodes_free = (size.f_files, size.f_ffree) if size.f_files else (None, None)
    return Mount(
        path, source, entry.fstype, options, device, held, size.f_blocks * block,
        (size.f_blocks - size.f_bfree) * block, size.f_bavail * block, inodes, inodes_free,
    )  # fmt: skip
