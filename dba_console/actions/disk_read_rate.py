"""How fast the disk under the server's data reads now: a little of its biggest file, past the page cache.

Only reads, with O_DIRECT, so that neither what is cached flatters the figure nor the look itself fills the cache. May
hang with the disk: called in a lane.
"""

from __future__ import annotations

import mmap
import os
import random
import time
from dataclasses import dataclass

from dba_console.probes.host.postmasters import find_postmasters

MEASURE_TIME_S = 0.3
CHUNK_BYTES = 1 << 20
"""As readahead of a sequential scan asks for at most; a page of 8 kB at a time would be slower on any disk."""
MIN_FILE_BYTES = 16 << 20
MAX_FILES = 5000
"""Looked at to find a big one."""


@dataclass(frozen=True, slots=True)
class ReadRate:
    """What was measured."""

    bytes_per_s: float | None
    read_bytes: int
    source: str
    note: str = ""
    """Why there is no figure."""


def read_rate(proc: str = "/proc", *, directory: str | None = None) -> ReadRate:
    """Of the only server's data, or of the biggest file below `directory`."""
    if directory is None:
        directories = [one.data_directory for one in find_postmasters(proc) if one.data_directory]
        if len(directories) != 1:
            return ReadRate(None, 0, "", f"{len(directories) or 'no'} servers of this host show their data directory")
        directory = f"{directories[0]}/base"
    path, size = _find_biggest_file(directory)
    if path is None or size < MIN_FILE_BYTES:
        return ReadRate(None, 0, "", "the server has no table big enough to measure by")
    try:
        return _measure(path, size)
    except OSError as error:
        return ReadRate(None, 0, "", f"{path} cannot be read past the cache: {error.strerror}")


def _find_biggest_file(directory: str) -> tuple[str | None, int]:
    best: tuple[str | None, int] = (None, 0)
    looked = 0
    for place, _, names in os.walk(directory, onerror=None):
        for name in names:
            looked += 1
            try:
                size = os.stat(f"{place}/{name}", follow_symlinks=False).st_size
            except OSError:
                continue
            if size > best[1]:
                best = (f"{place}/{name}", size)
        if looked > MAX_FILES:
            break
    return best


def _measure(path: str, size: int) -> ReadRate:
    """Raises OSError, EINVAL where the file system has no O_DIRECT."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    buffer = mmap.mmap(-1, CHUNK_BYTES)  # aligned, as O_DIRECT wants it
    try:
        chunks = size // CHUNK_BYTES
        first = random.randrange(chunks)
        started, done = time.monotonic(), 0
        for number in range(chunks):
            if (spent := time.monotonic() - started) >= MEASURE_TIME_S:
                break
            done += os.preadv(fd, [buffer], (first + number) % chunks * CHUNK_BYTES)
        spent = time.monotonic() - started
        return ReadRate(done / spent, done, path) if done else ReadRate(None, 0, path, "nothing could be read")
    finally:
        buffer.close()
        os.close(fd)
