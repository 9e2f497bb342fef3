"""The disk under the data directory fills up: a forgotten copy is written beside it, at a steady rate. Root only.

It is a disk of our own, on a loop device, so nothing else on the host can run out of room. The copy stops short of the
end: a server that cannot write its WAL panics, and there would be nothing left to watch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.incidents.filler import Filler
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.load import LoadPlan

if TYPE_CHECKING:
    from dba_console.demo.cluster import Settings
    from dba_console.demo.practice import PracticeGround

SIZE_BYTES = 3072 * MIB
BYTES_PER_S = 16 * MIB
"""Full in three minutes: time enough to look, and to do something."""
LEFT_BYTES = 128 * MIB
"""Where the copy stops: 96 % used, and room for the load's own WAL."""
FILE = "appdb-copy.dump"


class DiskFilling(Incident):
    name: ClassVar[str] = "disk-filling"
    title: ClassVar[str] = f"a forgotten copy grows beside the data, {BYTES_PER_S // MIB} MB/s"
    finding: ClassVar[str] = "disk-filling"
    within_s: ClassVar[float] = 10.0
    root: ClassVar[bool] = True
    plan: ClassVar[LoadPlan] = LoadPlan(idle=60, forgotten=False, rate_per_s=50)
    settings: ClassVar[Settings] = {"max_wal_size": "128MB", "min_wal_size": "64MB"}

    def __init__(self) -> None:
        self._disk: LoopDisk | None = None
        self._filler: Filler | None = None

    @contextmanager
    def site(self) -> Iterator[Path | None]:
        with loop_disk(SIZE_BYTES) as disk:
            self._disk = disk
            yield disk.data_directory

    def cause(self, ground: PracticeGround) -> None:
        """Returns when the first bytes are written; the rest follows."""
        assert self._disk is not None
        self._filler = Filler(
            self._disk.path / FILE, BYTES_PER_S, leave_bytes=LEFT_BYTES, account=ground.cluster.account
        )
        self._filler.wait_begun()

    def end(self, ground: PracticeGround) -> None:
        """The copy is removed."""
        if self._filler is not None:
            self._filler.stop()
            self._filler = None
