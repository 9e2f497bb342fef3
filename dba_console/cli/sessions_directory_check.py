"""Check the sessions directory without creating it. All file system access has a deadline."""

from __future__ import annotations

import os
from pathlib import Path

from dba_console.core.clock import SYSTEM
from dba_console.core.paths import ownership_problem, trust_problem
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.file_systems import HostContext, MountProbe
from dba_console.watch.samples.host import Mount, Mounts

TIMEOUT_S = 1.0


def unwritable_reason(directory: Path) -> str | None:
    """Return why a session cannot be written below `directory`; None if it can."""
    lane = Lane("sessions")
    try:
        return lane.call(lambda: _unwritable_reason(directory), TIMEOUT_S)
    except LaneTimeout:
        return "its file system does not answer"
    finally:
        lane.close()


def _unwritable_reason(directory: Path) -> str | None:
    nearest = directory
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return "not writable by this user" if nearest == directory else f"cannot be created below {nearest}"
    if directory.is_symlink():
        return "it is a symbolic link: name its target"
    if _is_kernel_file_system(nearest):
        return "it is in a kernel file system"
    if (why := ownership_problem(directory) if nearest == directory else trust_problem(nearest)) is not None:
        return f"{why.text}: `{why.fix}`"
    if os.statvfs(nearest).f_flag & os.ST_RDONLY:
        return "its file system is read-only"
    return None


def _is_kernel_file_system(directory: Path) -> bool:
    """Return whether this is /proc or /sys: writable for root according to access(2), but no directory can be made."""
    return directory.resolve().parts[1:2] in (("proc",), ("sys",))


def mount_of(directory: Path, known: Mounts | None) -> Mount | None:
    """Return the mount that would hold sessions, with what else of the server is on it; None if unknown."""
    paths = {**(known.paths if known is not None else {}), "session": str(directory.absolute())}
    context = HostContext(
        postmaster_pid=None, data_directory=paths.get("data"), paths=paths, active_pids=frozenset(), watched=True,
        note=None,
    )  # fmt: skip
    probe = MountProbe(SYSTEM)
    try:
        reading = probe.read(context).decode()
    finally:
        probe.close()
    if not isinstance(reading, Mounts):
        return None
    return next((mount for mount in reading.mounts if "session" in mount.holds), None)
