"""A report sorts on disk: that temporary files eat the data volume is named within ten seconds, with who does it."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.temp_spill import LIMIT_MIB
from dba_console.demo.load import LoadPlan
from tests.incidents.rehearsing import assert_seen, rehearse

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


def test_a_report_that_spills_is_named_within_ten_seconds(tmp_path: Path) -> None:
    with rehearse("temp-spill", tmp_path, SMALL) as spill:
        verdict = spill.until_raised()
        frame = spill.until_frame(
            lambda frame: sum(row.temp_bytes_per_s or 0 for row in frame.disks.databases) > 20 << 20, what="the spill"
        )
        assert any("data" in mount.holds for mount in frame.disks.mounts)
        assert_seen(verdict)


def test_the_spill_stays_below_its_limit(tmp_path: Path) -> None:
    with rehearse("temp-spill", tmp_path, SMALL) as spill:
        assert spill.ground.cluster.psql("select current_setting('temp_file_limit')") == f"{LIMIT_MIB // 1024}GB"
        spill.incident.end(spill.ground)
        spill.ground.clients.stop()
        spill.until_frame(
            lambda frame: any("data" in mount.holds for mount in frame.disks.mounts), what="the disk afterwards"
        )
