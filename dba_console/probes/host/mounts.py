"""File systems and what they hold. statvfs of each mount has a lane of its own: a dead one hides no other.

All statvfs calls of a reading start together and share one deadline, so a reading never takes longer than that
(`df` hanging on a dead NFS server has stopped more than one monitor).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dba_console.clock import SYSTEM, Clock
from dba_console.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.probes.host import block_devices
from dba_console.probes.host.context import ELSEWHERE, HostContext
from dba_console.probes.host.kernel_files import printable, read_file
from dba_console.probes.host.mountinfo import MountEntry, choose_mounts, mount_of_path, parse_mountinfo
from dba_console.probes.host.postmasters import data_directory_of
from dba_console.probes.host.resolved_paths import named_paths, resolve_links
from dba_console.samples.host import Mount, Mounts
from dba_console.samples.sample import Part, make_part

DEADLINE_S = 0.3
"""For all mounts together; a healthy statvfs takes microseconds."""

MAX_MOUNTS = 64
"""Mounts shown at most, those that hold something first: a container host has thousands."""

NO_DATA = (
    "where the server keeps its data is not known: grant pg_monitor to the role, or run the agent as root or as the "
    "owner of the server"
)
STALLED = "statvfs has not answered in time: the file system is stalled"


class FileSystemSize(Protocol):
    """What statvfs(3) says, as os.statvfs_result names it."""

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
    """Reads `host.mounts`. Created once; used by one thread."""

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
        """Lanes that wait for a file system now, by name."""
        lanes = (self._links_lane, *self._lanes.values())
        return [lane.name for lane in lanes if lane.stuck]

    def read(self, context: HostContext) -> Part:
        """The part `host.mounts`. Never raises; takes at most the deadline twice (links, then sizes)."""
        begun = self._clock.mono_us()
        if not context.watched:
            note = context.note or ELSEWHERE
            return make_part("host.mounts", None, at_us=begun, status="unsupported", note=note)
        try:
            reading = self._read(context)
        except Exception as error:
            note = f"the mounts of this host cannot be read: {error}"
            return make_part("host.mounts", None, at_us=begun, status="error", note=note)
        ended = self._clock.mono_us()
        return make_part("host.mounts", reading, at_us=ended, took_us=ended - begun, note=reading.note)

    def _read(self, context: HostContext) -> Mounts:
        entries = parse_mountinfo(read_file(f"{self._proc}/self/mountinfo"))
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
        """The data directory as the postmaster's process tells it, for a role that may not ask the server."""
        if "data" in context.paths or context.postmaster_pid is None:
            return None
        return data_directory_of(self._proc, context.postmaster_pid)

    def _resolve_links(self, named: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
        """Links followed, in a lane; what they were the last time where the file system does not answer."""
        try:
            followed, note = self._links_lane.call(lambda: resolve_links(named), self._deadline_us / 1e6)
        except LaneTimeout:
            kept = {what: self._resolved.get(what, os.path.normpath(path)) for what, path in named.items()}
            return kept, "a file system does not answer, so links in the server's paths were not followed now"
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
        disk = block_devices.whole_disk(self._sys, entry.device)
        if disk is None and entry.source.startswith("/dev/"):
            # btrfs and others mount under a number of their own and name a device as source.
            disk = block_devices.disk_of_name(self._sys, entry.source.rpartition("/")[2])
        return None if disk is None else printable(disk)

    def close(self) -> None:
        """Let idle lanes end; stuck ones are left to what holds them."""
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
    # A file system without a fixed number of inodes (btrfs, some NFS) says 0, which means not known.
    inodes, inodes_free = (size.f_files, size.f_ffree) if size.f_files else (None, None)
    return Mount(
        path, source, entry.fstype, options, device, held, size.f_blocks * block,
        (size.f_blocks - size.f_bfree) * block, size.f_bavail * block, inodes, inodes_free,
    )  # fmt: skip
