"""Incident: a runaway report sorts far more than its work_mem, and its temporary files fill the data volume.

temp_file_limit limits what it may write, and with root the data is on a private disk: the host is safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.incident import Incident, wait_for
from dba_console.demo.incidents.loop_disk import MIB, own_data_disk

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Settings

SIZE_BYTES = 3072 * MIB
LIMIT_MIB = 1024
RUNAWAY_MIB_PER_S = 40
SMALL_MIB = 40
"""Temporary files of a small sort; one per second."""
APPLICATION = "yearly-report"
TRIES = 100


class TempSpill(Incident):
    name: ClassVar[str] = "temp-spill"
    title: ClassVar[str] = f"{APPLICATION} sorts on disk, {RUNAWAY_MIB_PER_S + SMALL_MIB} MB/s of temporary files"
    finding: ClassVar[str] = "temp-spill"
    within_s: ClassVar[float] = 10.0
    plan: ClassVar[LoadPlan] = LoadPlan(idle=60, forgotten=False, rate_per_s=50)
    settings: ClassVar[Settings] = {"temp_file_limit": f"{LIMIT_MIB}MB", "work_mem": "1MB", "max_wal_size": "128MB"}

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        with own_data_disk(SIZE_BYTES) as directory:
            yield directory

    def cause(self, ground: PracticeGround) -> None:
        """Return when temporary files exist on the data volume."""
        client = {"role": "reporting", "application": APPLICATION, "dbname": DATABASE}
        # It fails at the limit and is retried, as a scheduled report is.
        ground.clients.psql(*[_RUNAWAY] * TRIES, **client)
        script = ground.clients.script("report.sql", _SMALL)
        ground.clients.pgbench("-c", "1", "-R", "1", "-f", str(script), **client)
        wait_for(ground.cluster, f"(select sum(size) > {16 * MIB} from pg_ls_tmpdir())")


def _sort(rows: int, condition: str = "") -> str:
    """Return a sort of rows of a kilobyte each, none in sorted order."""
    made = f"select md5(g::text) k, repeat(md5(g::text), 30) pad from generate_series(1, {rows}) g{condition}"
    return f"select max(pad) from (select * from ({made}) made order by k offset 0) sorted;"


_ROWS_PER_MIB = 1024
# A real report reads its rows as fast as its joins deliver them: here a tenth of a second for each four megabytes.
_STEP = RUNAWAY_MIB_PER_S // 10 * _ROWS_PER_MIB
_RUNAWAY = _sort(4 * LIMIT_MIB * _ROWS_PER_MIB, f" where g % {_STEP} <> 0 or pg_sleep(0.1)::text is not null")
_SMALL = _sort(SMALL_MIB * _ROWS_PER_MIB)
