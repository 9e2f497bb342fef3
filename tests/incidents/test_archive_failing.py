"""The archive is taken away: the failure is named within seconds, and segments pile up until it is back."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.archive_failing import archive_of
from dba_console.demo.load import LoadPlan
from tests.background import wait_until
from tests.incidents.rehearsing import assert_seen, rehearse

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=4, forgotten=False, scale=1)


def test_an_archive_that_is_gone_is_named_within_five_seconds(tmp_path: Path) -> None:
    with rehearse("archive-failing", tmp_path, SMALL) as archive:
        verdict = archive.until_raised()
        frame = archive.until_frame(lambda frame: (frame.replication.archive_ready_count or 0) > 2, what="a backlog")
        assert (frame.replication.archive_failed_count or 0) > 0
        assert_seen(verdict)


def test_an_archive_that_is_back_takes_what_waited(tmp_path: Path) -> None:
    with rehearse("archive-failing", tmp_path, SMALL) as archive:
        cluster = archive.ground.cluster
        archive.incident.end(archive.ground)
        there = len(list(archive_of(cluster).iterdir()))
        # The archiver tries again with the next segment that is finished, and each minute.
        wait_until(lambda: len(list(archive_of(cluster).iterdir())) > there + 1, 20, what="the backlog archived")
