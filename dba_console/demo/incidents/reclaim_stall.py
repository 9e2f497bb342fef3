"""I/O stands still while page cache is reclaimed, and connections fill: story S1, the real thing. Root only.

The data lies on a disk of our own whose image lies on another one, and that one is frozen: the upper disk takes
requests and answers none, as a storage network that went away does. So whoever commits waits for I/O, in the kernel's
own account of it. Meanwhile page cache is reclaimed in earnest, with no shortage of memory. New sessions keep coming,
none of them ends, and the pool runs towards the limit.

Who is not root is shown a recording of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.incidents.freeze_cycles import FreezeCycles
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.incidents.memory_reclaim import cache_bytes, choose_method
from dba_console.demo.incidents.waiting import wait_for
from dba_console.demo.load import DATABASE, LoadPlan

if TYPE_CHECKING:
    from dba_console.demo.cluster import Settings
    from dba_console.demo.practice_ground import PracticeGround

SIZE_BYTES = 1024 * MIB
ARRIVALS_PER_S = 14
MOST_ARRIVALS = 116
"""With the load's 120 and us, 237 of 247 usable: nearly every slot, and nobody of the load is turned away."""
RECORDING = Path(__file__).parents[1] / "recordings" / "reclaim-stall"
_BLOCKED = "count(*) >= 10 from pg_stat_activity where wait_event like 'WAL%'"


class ReclaimStall(Incident):
    name: ClassVar[str] = "reclaim-stall"
    title: ClassVar[str] = "I/O stands still for 9 s at a time while page cache is reclaimed"
    finding: ClassVar[str] = "reclaim-stall"
    needs_root: ClassVar[bool] = True
    plan: ClassVar[LoadPlan] = LoadPlan(idle=100, forgotten=False)
    settings: ClassVar[Settings] = {"max_wal_size": "128MB", "min_wal_size": "64MB"}

    def __init__(self) -> None:
        self._disk: LoopDisk | None = None
        self._freeze_cycles: FreezeCycles | None = None

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        with loop_disk(SIZE_BYTES, stacked=True) as disk:
            self._disk = disk
            yield disk.data_directory

    def recording(self) -> Path | None:
        return RECORDING if RECORDING.is_dir() else None

    def prepare(self, ground: PracticeGround) -> None:
        """The page cache that will be reclaimed."""
        assert self._disk is not None and self._disk.lower_path is not None
        way, bytes_ = choose_method(), cache_bytes()
        ground.say(f"{bytes_ // MIB} MB of page cache will be reclaimed by {way.description}")
        self._freeze_cycles = FreezeCycles(self._disk.lower_path, self._disk.host_directory / "cached", bytes_, way)
        self._freeze_cycles.wait_filled()

    def cause(self, ground: PracticeGround) -> None:
        """Returns when commits wait for a disk that does not answer."""
        assert self._freeze_cycles is not None
        script = ground.clients.script("checkout.sql", _CHECKOUT)
        ground.clients.pgbench(
            "-C", "-c", str(MOST_ARRIVALS), "-R", str(ARRIVALS_PER_S), "-f", str(script),
            role="shop_web", application="shop-checkout", dbname=DATABASE,
        )  # fmt: skip
        self._freeze_cycles.start_freezing()
        wait_for(ground.cluster, f"(select {_BLOCKED})")

    def end(self, ground: PracticeGround) -> None:
        """Thawed: everybody who waited goes on."""
        if self._freeze_cycles is not None:
            self._freeze_cycles.stop()


_CHECKOUT = "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 1, now());\n"
