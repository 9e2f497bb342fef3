"""Whether blocks of a file are shared with another one (reflink, snapshot), as FIEMAP tells (Documentation/filesystems/
fiemap.rst).
"""

from __future__ import annotations

import fcntl
import os
import struct

FS_IOC_FIEMAP = 0xC020660B
"""_IOWR('f', 11, struct fiemap): 32 bytes without extents, on every architecture PostgreSQL is run on by many."""
MAX_EXTENTS = 256
"""Looked at, from the beginning: a copy shares all or nearly all of them, and the rest would have to be read."""
SHARED_FLAG = 0x2000
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")


def shares_blocks(path: str) -> bool | None:
    """True where any of the first extents is shared; None where the file system does not say."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        request = bytearray(
            _HEADER.pack(0, 0xFFFFFFFFFFFFFFFF, 0, 0, MAX_EXTENTS, 0) + bytes(MAX_EXTENTS * _EXTENT.size)
        )
        fcntl.ioctl(fd, FS_IOC_FIEMAP, request)
    except OSError:
        return None
    finally:
        os.close(fd)
    return any(flags & SHARED_FLAG for flags in extent_flags(bytes(request)))


def extent_flags(answer: bytes) -> list[int]:
    """The flags of each extent in the kernel's answer."""
    mapped = min(_HEADER.unpack_from(answer)[3], MAX_EXTENTS)
    return [_EXTENT.unpack_from(answer, _HEADER.size + number * _EXTENT.size)[5] for number in range(mapped)]
