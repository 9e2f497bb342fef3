"""Processes in /proc: identity, state, name, process groups."""

from __future__ import annotations

import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return the id of this boot of the kernel; process ids are meaningless after it."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def start_ticks(pid: int) -> int | None:
    """Return the process's start in clock ticks since boot; None if it is gone, or a zombie."""
    fields = _read_stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def is_alive(pid: int | None, start: int | None) -> bool:
    """Check whether the process with that pid and start exists and is not dead. The caller has compared boots."""
    return pid is not None and start is not None and start_ticks(pid) == start


def kernel_counts_io() -> bool:
    """Check whether this kernel accounts storage I/O of processes (CONFIG_TASK_IO_ACCOUNTING)."""
    return os.path.exists("/proc/self/io")


def group_members(group: int) -> list[int]:
    """Return the living processes of a process group."""
    wanted, members = b"%d" % group, []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _read_stat(int(name))
        if fields is not None and fields[2] == wanted and fields[0] not in (b"Z", b"X"):
            members.append(int(name))
    return members


def living_process(leader: int | None, start: int | None) -> int | None:
    """Return a living process of the command whose group's leader has that pid and start: the leader, else another of
    its group; None if none is left. A group's number is not given to another process while one of its members lives."""
    if leader is None or start is None:
        return None
    found = start_ticks(leader)
    if found is not None:
        return leader if found == start else None
    return next(iter(group_members(leader)), None)


def process_name(pid: int) -> str:
    """Return the kernel's name of a process, at most 15 bytes; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read(64).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _read_stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third on (proc_pid_stat(5)); the name may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None
