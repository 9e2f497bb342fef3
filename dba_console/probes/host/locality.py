"""Whether a connected server runs on this host: proven, or not claimed.

A wrong yes would show this host's numbers beside another host's database. So a backend's pid alone proves nothing
(another host has the same numbers): the postmaster's start must agree with what the server itself says.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from dba_console.clock import SYSTEM, Clock
from dba_console.probes.host.children import stat_of
from dba_console.probes.host.data_directory import read_lock_file
from dba_console.probes.host.files import read_file
from dba_console.probes.host.postmasters import data_directory_of, is_server
from dba_console.probes.lane import Lane, LaneTimeout

LOCK_TOLERANCE_S = 5
"""postmaster.pid is written some moments before PgStartTime is taken."""

BOOT_TOLERANCE_S = 60
"""Start by the kernel's account, where postmaster.pid cannot be read: a slewed clock moves it a little."""

HIDDEN = (
    "/proc hides the processes of other users (hidepid), so whether the server runs on this host is not known: "
    "run the agent as root or as the server's owner"
)
ELSEWHERE = (
    "the server's processes are not on this host (another host, a managed service, or a container): "
    "host panels stay empty; run the console where the server runs"
)


@dataclass(frozen=True, slots=True)
class Locality:
    """`local` None is undecided; `note` says how it is known, or what would help."""

    local: bool | None
    postmaster_pid: int | None
    data_directory: str | None
    note: str


def locate(
    backend_pid: int, server_start_us: int, data_directory: str | None, proc: str = "/proc", clock: Clock = SYSTEM
) -> Locality:
    """Whether backend `backend_pid` of a server started at `server_start_us` (pg_postmaster_start_time) is here.

    `data_directory` is what the server says, None without the right to ask. Never raises, never hangs.
    """
    backend = stat_of(proc, backend_pid)
    if backend is None and stat_of(proc, 1) is None:
        return Locality(None, None, None, HIDDEN)
    if backend is None or not is_server(backend.command):
        return Locality(False, None, None, ELSEWHERE)
    postmaster = stat_of(proc, backend.parent)
    if postmaster is None or not is_server(postmaster.command):
        return Locality(False, None, None, ELSEWHERE)
    here = data_directory_of(proc, backend.parent)
    start_s, tolerance = _start(proc, backend.parent, postmaster.start_ticks, here or data_directory, clock)
    if start_s is None:
        note = "when the server process here started is not known, so it is not taken for the one connected to"
        return Locality(None, None, None, note)
    if abs(start_s - server_start_us / 1e6) > tolerance:
        return Locality(False, None, None, ELSEWHERE)
    note = f"process {backend_pid} of this host is the server's, and its postmaster started when the server says"
    return Locality(True, backend.parent, here or data_directory, note)


def _start(proc: str, pid: int, start_ticks: int, directory: str | None, clock: Clock) -> tuple[float | None, float]:
    """When the postmaster started, seconds since 1970, and how far it may be off."""
    lane = Lane(f"postmaster {pid}", clock)
    try:
        lock = lane.call(lambda: read_lock_file(directory), 0.3) if directory else None
    except LaneTimeout:
        lock = None
    lane.close()
    if lock is not None and lock.pid == pid and lock.start_s is not None:
        return lock.start_s, LOCK_TOLERANCE_S
    boot_s = _boot_s(proc)
    return (None if boot_s is None else boot_s + start_ticks / os.sysconf("SC_CLK_TCK")), BOOT_TOLERANCE_S


def _boot_s(proc: str) -> int | None:
    try:
        data = read_file(f"{proc}/stat")
        return int(data.split(b"\nbtime ", 1)[1].split(b"\n", 1)[0])
    except (OSError, IndexError, ValueError):
        return None
