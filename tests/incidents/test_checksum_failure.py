"""A damaged page that is read is a critical finding, and the page is sound again afterwards."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.checksum_failure import TABLE
from dba_console.demo.load import DATABASE
from tests.incidents.rehearsing import assert_seen, rehearse


def test_a_damaged_page_that_is_read_is_named_within_five_seconds(tmp_path: Path) -> None:
    with rehearse("checksum-failure", tmp_path) as damage:
        verdict = damage.until_raised()
        damage.until_frame(lambda frame: frame.safety.checksum_failures == 1, what="one failure counted")
        damage.incident.end(damage.ground)
        assert damage.ground.cluster.psql(f"select count(*) from {TABLE}", dbname=DATABASE) == "5000"
        assert_seen(verdict)
