"""global/pg_control read as PostgreSQL writes it on 64-bit hosts (src/include/catalog/pg_control.h).

Only fields whose place is known for the format version are told, and only when the checksum over all of them holds.
The system identifier and the version stand first in every format.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_CRC_AT = {1201: 288, 1300: 288, 1700: 288, 1800: 292}
"""Where the CRC-32C stands, by pg_control_version: 12 (1201), 13 to 16 (1300), 17 (1700), 18 (1800). The fields read
here have the same places in all of them."""

_STATES = (
    "starting up", "shut down", "shut down in recovery", "shutting down", "in crash recovery", "in archive recovery",
    "in production",
)  # fmt: skip
"""DBState in the words of pg_controldata."""


class PgControl(NamedTuple):
    """As of the last checkpoint: `next_xid` with its epoch (64 bit), `oldest_xid` without. None: layout unknown.

    `checkpoint_lsn` is where its record begins, as `Latest checkpoint location` of pg_controldata: `0/3000028`.
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


class DamagedControl(ValueError):
    """The checksum does not hold: torn while being written, damaged, or of a host with another byte order."""


def known_layout(version_number: int) -> bool:
    """True where more than identifier and version can be read."""
    return version_number in _CRC_AT


def parse_control(data: bytes) -> PgControl:
    """The content of global/pg_control. Raises DamagedControl.

    Of an unknown format version only identifier and version are told, unproven by a checksum.
    """
    if len(data) < 16:
        raise DamagedControl("pg_control is cut short")
    identifier, version = struct.unpack_from("<QI", data, 0)
    crc_at = _CRC_AT.get(version)
    if crc_at is None:
        # A version number no server ever had: big-endian or not a control file at all.
        if not 900 <= version <= 9999:
            raise DamagedControl("pg_control has no version number that can be read here")
        return PgControl(str(identifier), version)
    if len(data) < crc_at + 4 or crc32c(data[:crc_at]) != struct.unpack_from("<I", data, crc_at)[0]:
        raise DamagedControl("the checksum of pg_control does not match its content")
    state = struct.unpack_from("<i", data, 16)[0]
    low, high = struct.unpack_from("<II", data, 32)
    return PgControl(
        str(identifier),
        version,
        _STATES[state] if 0 <= state < len(_STATES) else None,
        timeline=struct.unpack_from("<I", data, 48)[0],
        next_xid=struct.unpack_from("<Q", data, 64)[0],
        oldest_xid=struct.unpack_from("<I", data, 84)[0],
        max_connections=struct.unpack_from("<i", data, 180)[0],
        data_checksums=struct.unpack_from("<I", data, 252)[0] != 0,
        checkpoint_lsn=f"{high:X}/{low:X}",
    )


_table: list[int] = []


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) as src/port/pg_crc32c_sb8.c computes it.

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
