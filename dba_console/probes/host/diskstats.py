"""/proc/diskstats: what each whole block device did since boot (Documentation/admin-guide/iostats.rst)."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.host import block_devices
from dba_console.probes.host.mountinfo import mount_of_path, parse_mountinfo
from dba_console.samples.host import Disk, Disks

_REFRESH_US = 30_000_000
"""Devices are looked up in /sys again this often: a loop device may be bound to another file meanwhile."""


class DiskStatsParser:
    """Keeps which devices are whole and what they stand on: /sys is asked when a device appears and each 30 s."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._known: dict[bytes, list[str] | None] = {}
        """`major minor name` -> what it stands on; None for a partition."""
        self._until_us = 0

    def parse(self, data: bytes, now_us: int) -> Disks:
        """Whole devices with any I/O since boot. Raises ValueError where a line is not one of diskstats."""
        if now_us >= self._until_us:
            self._known.clear()
            self._until_us = now_us + _REFRESH_US
        found = []
        for line in data.splitlines():
            words = line.split()
            if len(words) < 14:  # a partition's short line of kernels before 2.6.25
                continue
            if any(word != b"0" for word in words[3:14]) and (under := self._underlying(words)) is not None:
                found.append(_disk(words, under))
        return Disks(found)

    def _underlying(self, words: Sequence[bytes]) -> list[str] | None:
        key = b" ".join(words[:3])
        if key not in self._known:
            self._known[key] = self._look_up(words[2].decode("utf-8", "backslashreplace"))
        return self._known[key]

    def _look_up(self, name: str) -> list[str] | None:
        if not block_devices.is_whole(self._sys, name):
            return None
        if (path := block_devices.backing_file(self._sys, name)) is not None:
            return self._disk_of_file(path)
        return block_devices.slaves(self._sys, name)

    def _disk_of_file(self, path: str) -> list[str]:
        """By the mount table alone: the file itself is not touched, its file system may hang."""
        try:
            with open(f"{self._proc}/self/mountinfo", "rb") as file:
                mount = mount_of_path(parse_mountinfo(file.read()), path)
        except OSError:
            return []
        disk = None if mount is None else block_devices.whole_disk(self._sys, mount.device)
        return [] if disk is None else [disk]


def _disk(words: Sequence[bytes], under: list[str]) -> Disk:
    numbers = [int(word) for word in words[3:20]]
    # Discards (count, merged, sectors, time) came with 4.18, flushes (count, time) with 5.5.
    late: list[int | None] = [*numbers[11:], *[None] * 6]
    return Disk(
        words[2].decode("utf-8", "backslashreplace"), int(words[0]), int(words[1]),
        numbers[0], numbers[2], numbers[3], numbers[4], numbers[6], numbers[7], numbers[8], numbers[9], numbers[10],
        late[0], late[2], late[3], late[4], late[5], under,
    )  # fmt: skip
