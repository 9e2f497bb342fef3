"""Where sessions are written: can they be, will they stay, and do they fill up or stall together with the database."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.cli.doctor.check import DoctorCheck, missing, ok, unknown
from dba_console.errors import ExitCode
from dba_console.frames.mount_warnings import MEMORY, NETWORK
from dba_console.samples.host import Mount
from dba_console.units import human_bytes

SESSIONS = "sessions"
_OTHER_DIRECTORY_FIX = '[recording] directory = "…" in the configuration, or $DBA_CONSOLE_SESSIONS'
_CRITICAL_LOCATIONS = {"data": "PGDATA", "wal": "WAL", "archive": "the WAL archive"}


def check_sessions(
    directory: str, refused: str | None, mount: Mount | None, keep_bytes: int, *, locations_known: bool = True
) -> Iterator[DoctorCheck]:
    """The session directory. `refused` is why nothing can be written there, `mount` what it lies on.

    `locations_known`: where the server keeps its data is known, so that a mount that holds none of it is another one.
    """
    if refused is not None:
        yield missing(
            SESSIONS, "writable", f"{directory}: {refused}", lost="the recording: nothing is kept for later",
            fix=_OTHER_DIRECTORY_FIX, critical=ExitCode.SESSION,
        )  # fmt: skip
    else:
        yield ok(SESSIONS, "writable", f"sessions are written to {directory}")
    if mount is None:
        yield unknown(SESSIONS, "file_system", "the file system of the session directory is not known")
        return
    yield _file_system(mount)
    yield _shared(mount, locations_known)
    yield _space(mount, keep_bytes)


def _file_system(mount: Mount) -> DoctorCheck:
    what = f"{mount.fstype} at {mount.path}"
    if mount.status == "timeout":
        return missing(
            SESSIONS, "file_system", f"{what} does not answer: {mount.note or 'statvfs hangs'}",
            lost="the recording while it hangs; the live picture goes on", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    if mount.fstype in NETWORK:
        return missing(
            SESSIONS,
            "file_system",
            f"sessions lie on a network file system ({what})",
            lost="recording while the network or its server stalls, and the locks SQLite relies on",
            fix=_OTHER_DIRECTORY_FIX,
        )
    if mount.fstype in MEMORY:
        return missing(
            SESSIONS, "file_system", f"sessions lie in memory ({what})",
            lost="every session at the next reboot", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    return ok(SESSIONS, "file_system", f"on {what}")


def _shared(mount: Mount, locations_known: bool) -> DoctorCheck:
    shared = [name for what, name in _CRITICAL_LOCATIONS.items() if what in mount.holds]
    shared += [what.replace(":", " ") for what in mount.holds if what.startswith("tablespace:")]
    if not shared and not locations_known:
        return unknown(
            SESSIONS, "shared", "whether a mount is shared with PGDATA or WAL is not known: their place is not"
        )
    if not shared:
        return ok(SESSIONS, "shared", "shares no mount with PGDATA, WAL or tablespaces")
    return missing(
        SESSIONS, "shared", f"shares the mount {mount.path} with {', '.join(shared)}",
        lost="the recording just when that file system is full or stalled; and it takes space from the database",
        fix=_OTHER_DIRECTORY_FIX,
    )  # fmt: skip


def _space(mount: Mount, keep_bytes: int) -> DoctorCheck:
    if mount.available is None:
        return unknown(SESSIONS, "space", f"free space of {mount.path} is not known")
    text = f"{human_bytes(mount.available)} free, sessions may take {human_bytes(keep_bytes)}"
    if mount.available >= keep_bytes:
        return ok(SESSIONS, "space", text)
    return missing(
        SESSIONS, "space", text, lost="recording when the file system is full",
        fix="recording.max_size smaller, or another directory: " + _OTHER_DIRECTORY_FIX,
    )  # fmt: skip
