"""pg.temp: temporary files as they lie on disk."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.samples.postgres import TempDirectory, TempFiles


def temp_of(rows: Sequence[Row], closed: Sequence[Row], names: OidNames) -> TempFiles:
    """pg_ls_tmpdir() of every tablespace; files of parallel workers lie in directories it does not list."""
    return TempFiles(
        [TempDirectory(decode_name(space, names.codec), pid, files, size) for space, pid, files, size in rows],
        int(closed[0][0]) if closed and closed[0][0] is not None else None,
    )
