"""Reads a data directory without its server: pg_control, PG_VERSION, postmaster.pid.

These files are on the server's own file system, which may be stalled: everything here runs in a lane only. pg_control
is readable by the server's owner only; the note for others says so.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dba_console.watch.probes.host.kernel_files import read_file
from dba_console.watch.samples.host import ControlFile
from dba_console.watch.samples.sample import Status

# Parser of global/pg_control as PostgreSQL writes it on 64-bit hosts (src/include/catalog/pg_control.h). Only fields
# with a known position in the format version are returned, and only if the checksum over all of them matches. System
# identifier and version come first in every format.

_CRC_AT = {1201: 288, 1300: 288, 1700: 288, 1800: 292}
"""Offset of the CRC-32C by pg_control_version: 12 (1201), 13 to 16 (1300), 17 (1700), 18 (1800). The fields read here
have the same offsets in all of them."""

_STATES = (
    "starting up", "shut down", "shut down in recovery", "shutting down", "in crash recovery", "in archive recovery",
    "in production",
)  # fmt: skip
"""DBState, worded as by pg_controldata."""


class PgControl(NamedTuple):
    """As of the last checkpoint: `next_xid` with its epoch (64 bit), `oldest_xid` without. None: layout unknown.

    `checkpoint_lsn` is the start of its record, `Latest checkpoint location` of pg_controldata: `0/3000028`.
    `min_recovery_lsn` is `Minimum recovery ending location`: pages on disk may have changes up to there; `0/0` on a
    primary.
    """

    system_identifier: str
    version_number: int
    state: str | None = None
    timeline: int | None = None
    next_xid: int | None = None
    oldest_xid: int | None = None
    max_connections: int | None = None
    data_checksums: bool | None = None
    checkpoint_lsn: str | None = None
    min_recovery_lsn: str | None = None


class DamagedControl(ValueError):
    """The checksum does not match: torn while being written, damaged, or from a host with another byte order."""


def known_layout(version_number: int) -> bool:
    """Check whether more than identifier and version can be read."""
    return version_number in _CRC_AT


def parse_control(data: bytes) -> PgControl:
    """Parse the content of global/pg_control. Raises DamagedControl.

    For an unknown format version only identifier and version are returned, not verified by a checksum.
    """
    if len(data) < 16:
        raise DamagedControl("pg_control is truncated")
    identifier, version = struct.unpack_from("<QI", data, 0)
    crc_at = _CRC_AT.get(version)
    if crc_at is None:
        # A version number no server ever had: big-endian, or not a control file.
        if not 900 <= version <= 9999:
            raise DamagedControl("pg_control has an unreadable version number")
        return PgControl(str(identifier), version)
    if len(data) < crc_at + 4 or crc32c(data[:crc_at]) != struct.unpack_from("<I", data, crc_at)[0]:
        raise DamagedControl("the checksum of pg_control does not match its content")
    state = struct.unpack_from("<i", data, 16)[0]
    return PgControl(
        str(identifier),
        version,
        _STATES[state] if 0 <= state < len(_STATES) else None,
        timeline=struct.unpack_from("<I", data, 48)[0],
        next_xid=struct.unpack_from("<Q", data, 64)[0],
        oldest_xid=struct.unpack_from("<I", data, 84)[0],
        max_connections=struct.unpack_from("<i", data, 180)[0],
        data_checksums=struct.unpack_from("<I", data, 252)[0] != 0,
        checkpoint_lsn=_lsn_at(data, 32),
        min_recovery_lsn=_lsn_at(data, 136),
    )


def _lsn_at(data: bytes, offset: int) -> str:
    low, high = struct.unpack_from("<II", data, offset)
    return f"{high:X}/{low:X}"


_REQUIRED_AT = {
    "max_connections": 180, "max_worker_processes": 184, "max_wal_senders": 188, "max_prepared_transactions": 192,
    "max_locks_per_transaction": 196,
}  # fmt: skip
"""Offsets of the settings of the primary, which a standby gets from its WAL."""


def required_settings(data: bytes) -> dict[str, str]:
    """Return the lowest values of these settings with which the server can replay. Raises DamagedControl.

    Empty: the format version is unknown.
    """
    if not known_layout(parse_control(data).version_number):
        return {}
    return {name: str(struct.unpack_from("<i", data, at)[0]) for name, at in _REQUIRED_AT.items()}


_table: list[int] = []


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) as src/port/pg_crc32c_sb8.c computes it.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if not _table:
        _table.extend(_table_entry(index) for index in range(256))
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


DENIED = "pg_control is not readable: run the agent as root or as the owner of the data directory"


class LockFile(NamedTuple):
    """postmaster.pid (src/include/utils/pidfile.h), by lines. Lines are added while the server starts."""

    pid: int
    data_directory: str | None
    start_s: int | None
    """When the postmaster started, seconds since 1970 by its own clock: a later step of the host's clock has no
    effect."""
    port: int | None
    socket_directory: str | None


def parse_lock_file(text: str) -> LockFile | None:
    """Parse the lock file, None if it is not one. A stand-alone backend writes its pid as a negative number.

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
    """Read postmaster.pid of a data directory, None if it is missing or not readable."""
    try:
        data = read_file(f"{directory}/postmaster.pid")
    except OSError:
        return None
    return parse_lock_file(data.decode("utf-8", "surrogateescape"))


def read_major(directory: str) -> int | None:
    """Return the server's major version from PG_VERSION (before 10 it had two numbers: then the first)."""
    try:
        return _number(read_file(f"{directory}/PG_VERSION").decode("ascii", "replace").strip().split(".")[0])
    except OSError:
        return None


def read_control_file(directory: str, shown_as: str) -> tuple[ControlFile, Status, str | None]:
    """Return the reading of `host.control`, its status and note. Raises nothing; may hang with the file system."""
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
        return None, "error", f"{error}; compare with pg_controldata"
    if not known_layout(control.version_number):
        note = f"pg_control version {control.version_number} is unknown: only the system identifier is shown"
        return control, "unsupported", note
    return control, "ok", None


def _read_twice(path: str) -> PgControl:
    """Read again if the checksum fails: the server may have been writing it."""
    try:
        return parse_control(read_file(path))
    except DamagedControl:
        return parse_control(read_file(path))
