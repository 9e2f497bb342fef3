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
    fields = _read_stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def is_alive(pid: int | None, start: int | None) -> bool:
    """Whether the process of that id and start is there and not dead. The caller has compared boots."""
    return pid is not None and start is not None and start_ticks(pid) == start


def kernel_counts_io() -> bool:
    """Whether this kernel counts what processes read from storage and write to it (CONFIG_TASK_IO_ACCOUNTING)."""
    return os.path.exists("/proc/self/io")


def group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    wanted, members = b"%d" % group, []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _read_stat(int(name))
        if fields is not None and fields[2] == wanted and fields[0] not in (b"Z", b"X"):
            members.append(int(name))
    return members


def process_name(pid: int) -> str:
    """The name of a process as the kernel keeps it, 15 bytes at most; empty where it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read(64).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _read_stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on (proc_pid_stat(5)): after the name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None
