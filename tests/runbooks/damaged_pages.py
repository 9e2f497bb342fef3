"""Pages damaged on disk: a few bytes of a file that the server has written out and holds no more."""

from __future__ import annotations

from dba_console.demo.incidents.checksum_failure import OFFSET, PAGE_BYTES
from dba_console.demo.temporary_server import Cluster
from tests.sql import query


def damage(cluster: Cluster, path: str, block: int = 2) -> None:
    """Flip bytes of a block of that file of the data directory. The server must not hold the page: a fresh table whose
    buffers were never read does not; anything else is restarted before."""
    query(cluster, "checkpoint")
    with (cluster.data_directory / path).open("r+b") as file:
        file.seek(block * PAGE_BYTES + OFFSET)
        sound = file.read(8)
        file.seek(block * PAGE_BYTES + OFFSET)
        file.write(bytes(byte ^ 0xFF for byte in sound))
