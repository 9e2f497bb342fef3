"""A steady load on a real disk, so that two tools that read its counters see the same seconds."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = 64 * 1024
SIZE = 16 << 20


@contextmanager
def steady_io(path: Path) -> Iterator[None]:
    """Writes and reads of 64 kB past the page cache, about a hundred of each per second, until the block ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC, 0o600)
    os.posix_fallocate(fd, 0, SIZE)
    stop = threading.Event()
    begun = threading.Event()

    def run() -> None:
        # O_DIRECT wants memory aligned to a page, which an anonymous mapping is.
        buffer = mmap.mmap(-1, BLOCK)
        buffer[:] = os.urandom(BLOCK)
        offset = 0
        while not stop.wait(0.008):
            os.pwritev(fd, [buffer], offset)
            os.preadv(fd, [buffer], offset)
            offset = (offset + BLOCK) % SIZE
            begun.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert begun.wait(30), "the load did not begin"
        yield
    finally:
        stop.set()
        thread.join(30)
        os.close(fd)
