"""Processes as /proc tells of them: whether this is still the one that was meant, and what it cost."""

from __future__ import annotations

import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """What tells this boot of the kernel from every other; process ids mean nothing beyond it."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where it is gone, or dead and only not yet buried."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def lives(pid: int | None, start: int | None) -> bool:
    """Whether the process of that id and start is there and not dead. The caller has compared boots."""
    return pid is not None and start is not None and start_ticks(pid) == start


def io_bytes(pid: int) -> tuple[int | None, int | None]:
    """Bytes read from and written to storage by the process and its reaped children; None where not accounted."""
    found: dict[bytes, int] = {}
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            for line in file:
                name, _, value = line.partition(b": ")
                found[name] = int(value)
    except (OSError, ValueError):
        pass  # CONFIG_TASK_IO_ACCOUNTING is off, or the process changed its user
    return found.get(b"read_bytes"), found.get(b"write_bytes")


def group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    wanted, members = b"%d" % group, []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        if fields is not None and fields[2] == wanted and fields[0] not in (b"Z", b"X"):
            members.append(int(name))
    return members


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on (proc_pid_stat(5)): after the name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None
