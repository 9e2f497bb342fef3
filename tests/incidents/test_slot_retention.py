"""A slot nobody reads keeps WAL: it is named within ten seconds, and given up at the end."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.slot_retention import SLOT
from dba_console.demo.load import LoadPlan
from tests.incidents.rehearsing import assert_seen, rehearse
from tests.incidents.unprivileged import demo_without_root

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


def test_a_slot_that_keeps_wal_for_nobody_is_named_within_ten_seconds(tmp_path: Path) -> None:
    with rehearse("slot-retention", tmp_path, SMALL) as slot:
        verdict = slot.until_raised()
        frame = slot.until_frame(
            lambda frame: any((row.retained_bytes or 0) > 64 << 20 for row in frame.replication.slots), what="kept WAL"
        )
        assert [row.name for row in frame.replication.slots] == [SLOT]
        assert_seen(verdict)


def test_after_the_end_of_the_incident_there_is_no_slot(tmp_path: Path) -> None:
    with rehearse("slot-retention", tmp_path, SMALL) as slot:
        slot.incident.end(slot.ground)
        assert slot.ground.cluster.psql("select count(*) from pg_replication_slots") == "0"


def test_without_root_it_is_told_when_the_slot_is_lost(tmp_path: Path) -> None:
    done = demo_without_root(tmp_path, "--incident", "slot-retention", "--headless", "--for", "20s")
    assert done.returncode == 0, done.stderr
    assert "the slot is lost" in done.stdout
