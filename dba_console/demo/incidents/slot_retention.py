"""Incident: an inactive replication slot retains all WAL: its replica was switched off and the slot not dropped.

With root the data is on a small private disk, which the WAL fills within minutes. Without, max_slot_wal_keep_size is
set: the slot approaches invalidation instead of the disk filling up.
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
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Settings

SLOT = "old_replica"
SIZE_BYTES = 3072 * MIB
WAL_MIB_PER_S = 16
"""Fills a disk of SIZE_BYTES in three minutes, as a busy hour of bulk loads fills a larger one."""
MOST_WAL_MIB = 2304
"""Writing stops here, before the disk is full: the server would panic, and there would be nothing left to watch."""
KEEP_MIB = 1024
"""max_slot_wal_keep_size without a private disk: beyond it the slot is lost, and the host's disk is safe."""


class SlotRetention(Incident):
    name: ClassVar[str] = "slot-retention"
    title: ClassVar[str] = f"slot {SLOT} retains {WAL_MIB_PER_S} MB of WAL per second for a removed replica"
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
        """Create the slot as its replica left it, with its unread WAL reserved."""
        ground.cluster.psql(f"select pg_create_physical_replication_slot('{SLOT}', true)")

    def cause(self, ground: PracticeGround) -> None:
        """Start bulk work; returns when its first WAL is written."""
        start_lsn = ground.cluster.psql("select pg_current_wal_lsn()")
        script = ground.clients.script("bulk.sql", _BULK)
        ground.clients.pgbench(
            "-c", "1", "-R", str(WAL_MIB_PER_S), "-f", str(script),
            role="postgres", application="bulk-load", dbname=DATABASE,
        )  # fmt: skip
        wait_for(ground.cluster, f"pg_current_wal_lsn() > '{start_lsn}'::pg_lsn + {MIB}")

    def end(self, ground: PracticeGround) -> None:
        """Drop the slot: the next checkpoint removes the WAL it retained."""
        ground.clients.stop()
        if ground.cluster.running:
            ground.cluster.psql(
                f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{SLOT}'"
            )


# A megabyte of WAL at a time and nothing else. It stops when the slot retains MOST_WAL_MIB.
_BULK = f"""
select pg_logical_emit_message(false, 'bulk', repeat('x', {MIB}))
  from pg_replication_slots
 where slot_name = '{SLOT}' and pg_current_wal_lsn() - restart_lsn < {MOST_WAL_MIB * MIB};
"""
