"""Tables put out of the page cache, so that a trial reads them as a dump of a database larger than memory does.

Only clean pages of these files are given back, and nothing is written; the server's own buffers keep what they have. It
costs whoever works with these tables: so it is done where it is asked for, and said.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from dba_console.dumping.dump_tables import DumpTable
from dba_console.dumping.server_connection import ReadOnlyConnection
from dba_console.errors import PermissionDenied

_PATHS = """
select pg_relation_filepath(c.oid), pg_relation_filepath(nullif(c.reltoastrelid, 0))
from pg_class c where c.oid = any(%s)
"""


def evict_tables(server: ReadOnlyConnection, data: str, tables: Sequence[DumpTable]) -> int:
    """Bytes of files put out of the page cache. Raises PermissionDenied where they cannot be opened."""
    done = 0
    for row in server.rows(_PATHS, ([table.oid for table in tables],)):
        for path in row:
            if path:
                done += _evict_segments(os.path.join(data, path))
    return done


def _evict_segments(path: str) -> int:
    done, number = 0, 0
    while (size := _evict_file(f"{path}.{number}" if number else path)) is not None:
        done, number = done + size, number + 1
    return done


def _evict_file(path: str) -> int | None:
    """Its size; None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise PermissionDenied(
            f"{path} cannot be opened, so it cannot be put out of the page cache",
            hint="leave --fresh out, or run this as the server's owner or as root",
        ) from error
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
