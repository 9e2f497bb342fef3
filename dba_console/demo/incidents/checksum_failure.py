"""Incident: a page is damaged on disk: a few bytes of a table's file are flipped, and the table is read.

The page is damaged while PostgreSQL has no copy of it in memory, so the next read finds the damage, fails, and is
counted (bufpage.c, PageIsVerifiedExtended; pg_stat_database.checksum_failures). The original bytes are restored at the
end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.core.errors import ConsoleError
from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import Incident

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround

TABLE = "ledger"
PAGE_BYTES = 8192
DAMAGED_BLOCK = 7
OFFSET = 4000
"""Within the rows of the page, not in its header, so that only the checksum detects it."""
LENGTH = 8


class ChecksumFailure(Incident):
    name: ClassVar[str] = "checksum-failure"
    title: ClassVar[str] = f"a page of the table {TABLE} is damaged on disk and read"
    finding: ClassVar[str] = "checksum-failure"

    def __init__(self) -> None:
        self._path: Path | None = None
        self._original_bytes: bytes | None = None

    def prepare(self, ground: PracticeGround) -> None:
        """Create a table that is only on disk: after a restart no buffer holds it, and no session reads it."""
        ground.cluster.psql(_MAKE, dbname=DATABASE)
        ground.cluster.psql(f"vacuum analyze {TABLE}", dbname=DATABASE)
        found = ground.cluster.psql(f"select pg_relation_filepath('{TABLE}')", dbname=DATABASE)
        self._path = ground.cluster.data_directory / found
        ground.cluster.restart()

    def cause(self, ground: PracticeGround) -> None:
        """Damage the page and read the table. Raises ConsoleError if the read succeeds, which must not happen."""
        self._original_bytes = self._read()
        self._write(bytes(byte ^ 0xFF for byte in self._original_bytes))
        try:
            ground.cluster.psql(f"select sum(amount) from {TABLE}", dbname=DATABASE)
        except ConsoleError as error:
            if "invalid page" in error.message:
                return
            raise
        raise ConsoleError(f"the damaged page of {TABLE} was read without an error: it was in memory already")

    def end(self, ground: PracticeGround) -> None:
        """Restore the original bytes."""
        if self._original_bytes is not None:
            self._write(self._original_bytes)
            self._original_bytes = None

    def _read(self) -> bytes:
        assert self._path is not None
        with self._path.open("rb") as file:
            file.seek(DAMAGED_BLOCK * PAGE_BYTES + OFFSET)
            return file.read(LENGTH)

    def _write(self, content: bytes) -> None:
        assert self._path is not None
        with self._path.open("r+b") as file:
            file.seek(DAMAGED_BLOCK * PAGE_BYTES + OFFSET)
            file.write(content)


# autovacuum would read the table into memory before the damage is found; so it is off for this table.
_MAKE = f"""
create table {TABLE} (id bigint, amount numeric, booked text) with (autovacuum_enabled = off);
insert into {TABLE} select n, n % 1000, repeat('booked ', 10) from generate_series(1, 5000) n;
"""
