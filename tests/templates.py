"""Data directories copied instead of made: one initdb per installation and run, as PostgreSQL's INITDB_TEMPLATE does.

A copy gets a system identifier of its own, as initdb would have given it: in the control file, whose checksum follows,
and in the first page of the WAL. What is asked of initdb beyond the usual options is made by initdb itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import struct
import subprocess
import tempfile
from pathlib import Path

from dba_console.demo.temporary_server import Cluster

_made_by_initdb = Cluster.initdb
_LONG_HEADER_SYSID = 24
"""Offset of xlp_sysid in XLogLongPageHeaderData (access/xlog_internal.h)."""
_LONGEST_CONTROL = 512
"""PG_CONTROL_MAX_SAFE_SIZE (catalog/pg_control.h): the control file's data and its checksum end before it."""


def copy_templates() -> None:
    """From now on `Cluster.initdb` of this process copies."""
    setattr(Cluster, "initdb", _initdb)  # noqa: B010  # nothing of the product knows of templates


def _initdb(cluster: Cluster, *options: str) -> None:
    if options or not cluster.data_directory.parent.is_dir():
        _made_by_initdb(cluster, *options)
        return
    template = _template(cluster)
    subprocess.run(["cp", "-a", "--reflink=auto", str(template), str(cluster.data_directory)], check=True)
    _identify(cluster.data_directory)


def _template(cluster: Cluster) -> Path:
    """The directory initdb made for this installation, made now where no process of this run did so before."""
    installation = f"{cluster.binaries.directory} {cluster.binaries.version} {cluster.account.name}"
    place = Path(tempfile.gettempdir()) / "templates"
    place.mkdir(mode=0o755, exist_ok=True)
    template = place / hashlib.sha256(installation.encode()).hexdigest()[:12]
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            with tempfile.TemporaryDirectory(prefix="base-", dir=place) as base:
                maker = Cluster(cluster.binaries, base=Path(base))
                try:
                    _made_by_initdb(maker)
                    maker.data_directory.rename(template)
                finally:
                    maker.close()
    return template


def _identify(data: Path) -> None:
    """Give a data directory that never ran a system identifier of its own."""
    identifier = struct.pack("<Q", secrets.randbits(62) | 1 << 62)
    path = data / "global" / "pg_control"
    control = bytearray(path.read_bytes())
    at = next(
        size for size in range(8, _LONGEST_CONTROL, 4)
        if struct.unpack_from("<I", control, size)[0] == crc32c(control[:size])
    )  # fmt: skip
    control[:8] = identifier
    struct.pack_into("<I", control, at, crc32c(control[:at]))
    _overwrite(path, 0, bytes(control))
    (segment,) = (path for path in (data / "pg_wal").iterdir() if path.is_file() and len(path.name) == 24)
    _overwrite(segment, _LONG_HEADER_SYSID, identifier)


def _overwrite(path: Path, offset: int, new: bytes) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, new, offset)
    finally:
        os.close(handle)


def crc32c(text: bytes | bytearray) -> int:
    """The Castagnoli checksum of PostgreSQL's control file.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
