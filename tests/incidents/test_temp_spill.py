"""A report sorts on disk: that temporary files eat the data volume is named within ten seconds, with who does it."""

from __future__ import annotations

import pytest

from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.temp_spill import LIMIT_MIB
from tests.runbooks.runs import assert_detected, incident

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


@pytest.mark.alone  # 80 MB/s of sorts: it is named by what it writes, and beside other tests it writes less
def test_a_report_that_spills_is_named_within_ten_seconds_and_stays_below_its_limit() -> None:
    with incident("temp-spill", SMALL) as scene:
        assert scene.sql("select current_setting('temp_file_limit')") == f"{LIMIT_MIB // 1024}GB"
        assert_detected(scene.cause_and_judge())
        frame = scene.frame(
            lambda frame: sum(row.temp_bytes_per_s or 0 for row in frame.disks.databases) > 20 << 20, "the spill"
        )
        assert any("data" in mount.holds for mount in frame.disks.mounts)
