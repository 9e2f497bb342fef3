"""A replication slot nobody reads keeps all WAL: the replica it was for was switched off, the slot was not dropped.

With root the data lies on a small disk of its own, which the WAL fills with a date. Without, a limit on what slots may
keep is in force: the slot comes nearer to being lost instead of the disk to being full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.incident import Incident, wait_for
from dba_console.demo.incidents.loop_disk import MIB, own_data_disk

if TYPE_CHECKING:
    from dba_console.demo.cluster import Settings
    from dba_console.demo.practice_ground import PracticeGround

SLOT = "old_replica"
SIZE_BYTES = 3072 * MIB
WAL_MIB_PER_S = 16
"""Full in three minutes on a disk of SIZE_BYTES; a busy hour of bulk loads on a larger one."""
MOST_WAL_MIB = 2304
"""Where the writing stops, short of a full disk: the server would panic, and there were nothing left to watch."""
KEEP_MIB = 1024
"""max_slot_wal_keep_size where there is no disk of our own: the slot is lost beyond it, and the host's disk is safe."""


class SlotRetention(Incident):
    name: ClassVar[str] = "slot-retention"
    title: ClassVar[str] = f"slot {SLOT} keeps {WAL_MIB_PER_S} MB of WAL a second for a replica that is gone"
    finding: ClassVar[str] = "slot-retention"
    within_s: ClassVar[float] = 10.0
    plan: ClassVar[LoadPlan] = LoadPlan(idle=60, forgotten=False, rate_per_s=50)
    settings: ClassVar[Settings] = {
        "max_wal_size": "64MB",
        "min_wal_size": "32MB",
        "max_slot_wal_keep_size": -1 if os.geteuid() == 0 else f"{KEEP_MIB}MB",
    }

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        with own_data_disk(SIZE_BYTES) as directory:
            yield directory

    def prepare(self, ground: PracticeGround) -> None:
        """The slot as its replica left it, with the WAL reserved that it had not read."""
        ground.cluster.psql(f"select pg_create_physical_replication_slot('{SLOT}', true)")

    def cause(self, ground: PracticeGround) -> None:
        """Bulk work begins; returns when its first WAL is written."""
        begun = ground.cluster.psql("select pg_current_wal_lsn()")
        script = ground.clients.script("bulk.sql", _BULK)
        ground.clients.pgbench(
            "-c", "1", "-R", str(WAL_MIB_PER_S), "-f", str(script),
            role="postgres", application="bulk-load", dbname=DATABASE,
        )  # fmt: skip
        wait_for(ground.cluster, f"pg_current_wal_lsn() > '{begun}'::pg_lsn + {MIB}")

    def end(self, ground: PracticeGround) -> None:
        """The slot is dropped: the next checkpoint removes what it kept."""
        ground.clients.stop()
        if ground.cluster.running:
            ground.cluster.psql(
                f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{SLOT}'"
            )


# A megabyte of WAL at a time and of nothing else. It stops by itself where the slot keeps MOST_WAL_MIB.
_BULK = f"""
select pg_logical_emit_message(false, 'bulk', repeat('x', {MIB}))
  from pg_replication_slots
 where slot_name = '{SLOT}' and pg_current_wal_lsn() - restart_lsn < {MOST_WAL_MIB * MIB};
"""
