"""What a data directory tells without its server: pg_control, PG_VERSION, postmaster.pid.

These files lie on the server's own file system, which may be the one that is stalled: everything here is called in a
lane only. pg_control belongs to the server's owner; who may not read it is told whom to be.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.probes.host.kernel_files import read_file
from dba_console.probes.host.pg_control import DamagedControl, PgControl, known_layout, parse_control
from dba_console.samples.host import ControlFile
from dba_console.samples.sample import Status

DENIED = "pg_control is not readable: run the agent as root or as the owner of the data directory"


class LockFile(NamedTuple):
    """postmaster.pid (src/include/utils/pidfile.h), by lines. Lines appear while the server starts."""

    pid: int
    data_directory: str | None
    start_s: int | None
    """When the postmaster started by its own clock, seconds since 1970: survives a later step of the host's clock."""
    port: int | None
    socket_directory: str | None


def parse_lock_file(text: str) -> LockFile | None:
    """The lock file's content, None where it is not one. A stand-alone backend writes its pid as a negative number.

    >>> parse_lock_file("812\\n/pg/data\\n1795190666\\n5432\\n/run/postgresql\\n*\\n")
    LockFile(pid=812, data_directory='/pg/data', start_s=1795190666, port=5432, socket_directory='/run/postgresql')
    """
    lines = [line.strip() for line in text.split("\n")] + [""] * 5
    pid = _number(lines[0])
    if pid is None:
        return None
    return LockFile(pid, lines[1] or None, _number(lines[2]), _number(lines[3]), lines[4] or None)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def read_lock_file(directory: str) -> LockFile | None:
    """postmaster.pid of a data directory, None where there is none to read."""
    try:
        data = read_file(f"{directory}/postmaster.pid")
    except OSError:
        return None
    return parse_lock_file(data.decode("utf-8", "surrogateescape"))


def read_major(directory: str) -> int | None:
    """The server's major version from PG_VERSION (before 10 it had two numbers: then the first)."""
    try:
        return _number(read_file(f"{directory}/PG_VERSION").decode("ascii", "replace").strip().split(".")[0])
    except OSError:
        return None


def read_control_file(directory: str, shown_as: str) -> tuple[ControlFile, Status, str | None]:
    """The reading of `host.control`, its status and note. Raises nothing; may hang with the file system."""
    lock = read_lock_file(directory)
    control, status, note = _read_control(directory)
    reading = ControlFile(
        system_identifier=control.system_identifier if control else None,
        version_number=control.version_number if control else None,
        major=read_major(directory),
        state=control.state if control else None,
        timeline=control.timeline if control else None,
        data_checksums=control.data_checksums if control else None,
        next_xid=control.next_xid if control else None,
        oldest_xid=control.oldest_xid if control else None,
        max_connections=control.max_connections if control else None,
        data_directory=shown_as,
        postmaster_pid=lock.pid if lock and lock.pid > 0 else None,
        port=lock.port if lock else None,
    )
    return reading, status, note


def _read_control(directory: str) -> tuple[PgControl | None, Status, str | None]:
    try:
        control = _read_twice(f"{directory}/global/pg_control")
    except PermissionError:
        return None, "denied", DENIED
    except OSError as error:
        return None, "error", f"pg_control cannot be read: {error.strerror}"
    except DamagedControl as error:
        return None, "error", f"{error}: compare with pg_controldata"
    if not known_layout(control.version_number):
        note = f"pg_control version {control.version_number} is not known here: only its identifier is shown"
        return control, "unsupported", note
    return control, "ok", None


def _read_twice(path: str) -> PgControl:
    """Once more where the checksum fails: the server may have been writing it."""
    try:
        return parse_control(read_file(path))
    except DamagedControl:
        return parse_control(read_file(path))
