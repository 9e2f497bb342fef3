"""Block devices as /sys/dev/block and /sys/block know them: which is whole, what a partition lies on, what a dm, md or
loop device stands on (Documentation/ABI/stable/sysfs-block).

A partition is never counted beside its disk: a disk's numbers include those of its partitions.
"""

from __future__ import annotations

import os
import re

from dba_console.probes.host.kernel_files import read_word

_PARTITION = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+)\d+|(?:nvme\d+n\d+|mmcblk\d+|nbd\d+|md\d+|loop\d+)p\d+")
"""Names of partitions where /sys is not there to say it (some containers)."""


def is_whole(sys: str, name: str) -> bool:
    """True for a device of its own, as /proc/diskstats names it; a `/` in a name is a `!` in /sys."""
    if os.path.isdir(f"{sys}/block"):
        return os.path.isdir(f"{sys}/block/{name.replace('/', '!')}")
    return _PARTITION.fullmatch(name) is None


def whole_disk(sys: str, device: str) -> str | None:
    """The whole device behind `MAJOR:MINOR`, None where it is not a block device (NFS, tmpfs, btrfs's own numbers)."""
    try:
        place = os.readlink(f"{sys}/dev/block/{device}")
    except OSError:
        return None
    return _disk_of(os.path.join(f"{sys}/dev/block", place))


def disk_of_name(sys: str, name: str) -> str | None:
    """The whole device of a kernel name such as `sda1`, None where there is no such block device."""
    try:
        place = os.readlink(f"{sys}/class/block/{name.replace('/', '!')}")
    except OSError:
        return None
    return _disk_of(os.path.join(f"{sys}/class/block", place))


def _disk_of(directory: str) -> str:
    directory = os.path.normpath(directory)
    if os.path.exists(f"{directory}/partition"):
        directory = os.path.dirname(directory)
    return os.path.basename(directory).replace("!", "/")


def slaves(sys: str, name: str) -> list[str]:
    """Whole devices under a dm or md device, empty for one that stands on its own."""
    directory = f"{sys}/block/{name.replace('/', '!')}/slaves"
    try:
        members = os.listdir(directory)
    except OSError:
        return []
    disks = {disk_of_name(sys, member) or member.replace("!", "/") for member in members}
    return sorted(disks)


def backing_file(sys: str, name: str) -> str | None:
    """The file a loop device shows as a disk, None for any other device."""
    return read_word(f"{sys}/block/{name}/loop/backing_file") if name.startswith("loop") else None
