"""Archives that fail or do not keep up: which file, how many wait, until when; and WAL that lies in memory."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.replication.readings import Archiver, Replication
from dba_console.watch.samples.findings import FindingNow
from tests.build import GB, MB
from tests.readings import of
from tests.unit.watch.findings.reading_ticks import ReadingTicks, disk, only, primary

HOUR = 3600.0


class ArchiverTicks:
    """An archiver that archived ten files, the last a minute before the first tick."""

    def __init__(self, available: int = 1000 * GB) -> None:
        self.watching = ReadingTicks("archive-failing", "archive-backlog")
        self.archived_at: int | None = self.watching.ago(60)
        self.watching.tick({"pg.server": primary(), "host.mounts": disk(available)})

    def tick(
        self,
        *,
        failed: int = 0,
        failed_s: float | None = None,
        ready: int | None = 0,
        after_s: float = 1,
        **fields: Any,
    ) -> Any:
        """What is concluded; the last of `failed` failures was `failed_s` seconds ago."""
        made = {
            "enabled": True,
            "archived_count": 10,
            "last_archived_wal": "00000001000000000000002A",
            "last_archived_at": self.archived_at,
            "failed_count": failed,
            "last_failed_wal": None if failed_s is None else "00000001000000000000002B",
            "last_failed_at": None if failed_s is None else self.watching.ago(failed_s),
            "ready_count": ready,
        }
        return self.watching.tick({"pg.archiver": of(Archiver, **{**made, **fields})}, after_s)


def test_the_first_failure_is_a_warning_that_names_the_file() -> None:
    archive = ArchiverTicks()
    assert archive.tick() == {}
    found = only(archive.tick(failed=1, failed_s=0.5, ready=1))
    assert (found.id, found.severity, found.runbook) == ("archive-failing", "warning", "archive-failing")
    assert "WAL file 00000001000000000000002B failed: 1 file (16.0 MB) waits" in found.text


def test_the_third_failure_in_a_row_is_critical() -> None:
    archive = ArchiverTicks()
    archive.tick(failed=7)
    archive.tick(failed=8, failed_s=0.5, ready=1)
    found = only(archive.tick(failed=10, failed_s=0.5, ready=1))
    assert found.severity == "critical"
    assert "failed 3 times in a row" in found.text


def test_an_archived_file_ends_a_series_of_failures() -> None:
    archive = ArchiverTicks()
    archive.tick(failed=2, failed_s=0.5, ready=1)
    archive.archived_at = archive.watching.ago(0.1)
    archive.tick(failed=2, failed_s=30, ready=1)
    assert only(archive.tick(failed=3, failed_s=0, ready=1)).severity == "warning"


def test_an_archive_that_never_worked_counts_from_its_first_failure() -> None:
    archive = ArchiverTicks()
    archive.archived_at = None
    found = only(archive.tick(failed=9, failed_s=3, ready=4, archived_count=0))
    assert found.severity == "critical"
    assert "9 times in a row" in found.text and "none was ever archived" in found.text


def test_an_old_failure_without_waiting_files_is_not_a_finding() -> None:
    archive = ArchiverTicks()
    assert archive.tick(failed=3, failed_s=30, ready=0) == {}


def test_without_archiving_nothing_is_reported() -> None:
    archive = ArchiverTicks()
    assert archive.tick(failed=3, failed_s=1, ready=200, enabled=False) == {}


def test_the_fill_time_of_the_disk_is_reported_if_rate_and_free_space_are_known() -> None:
    archive = ArchiverTicks(available=36 * GB)
    for tick in range(6):
        position = of(Replication, lsn=tick * 10 * MB, timeline=1)
        archive.watching.tick({"pg.replication": position})
    found = only(archive.tick(failed=1, failed_s=0.5, ready=1))
    assert found.evidence["full_in_s"] == pytest.approx(36 * GB / (10 * MB))
    assert "pg_wal fills its disk in 1h01" in found.text


def test_waiting_files_without_failures_are_a_backlog_and_never_critical_by_number_alone() -> None:
    archive = ArchiverTicks()
    assert archive.tick(ready=15) == {}
    found = only(archive.tick(ready=16))
    assert (found.id, found.severity) == ("archive-backlog", "warning")
    assert "16 files (256 MB) wait" in found.text
    assert only(archive.tick(ready=2000)).severity == "warning"


@pytest.mark.parametrize(("megabytes", "few", "many"), [(1, 255, 256), (64, 3, 4), (1024, 2, 3)])
def test_the_number_of_files_in_a_backlog_depends_on_their_size(megabytes: int, few: int, many: int) -> None:
    archive = ArchiverTicks()
    archive.watching.tick({"pg.server": primary(set={"wal_segment_size": str(megabytes * MB)})})
    assert archive.tick(ready=few) == {}
    assert only(archive.tick(ready=many)).severity == "warning"


def test_a_file_that_waits_for_long_is_reported_even_alone() -> None:
    archive = ArchiverTicks()
    assert archive.tick(ready=2, oldest_ready_at=archive.watching.ago(890)) == {}
    found = only(archive.tick(ready=2, oldest_ready_at=archive.watching.ago(910)))
    assert found.severity == "warning"
    assert "2 files (32.0 MB) wait, the oldest for 15m10" in found.text
    late = only(archive.tick(ready=1, oldest_ready_at=archive.watching.ago(3601)))
    assert late.severity == "critical" and late.evidence["archive_oldest_s"] == pytest.approx(3601)
    assert "1 file (16.0 MB) waits for 1h" in late.text


@pytest.mark.parametrize(("grows", "severity"), [(1, "critical"), (0, "warning")])
def test_a_backlog_that_fills_the_disk_within_the_hour_is_critical_and_a_constant_one_is_not(
    grows: int, severity: str
) -> None:
    archive = ArchiverTicks(available=36 * GB)
    for tick in range(35):
        findings = archive.tick(ready=20 + 2 * grows * tick, after_s=2)
    found = only(findings)
    assert found.severity == severity
    assert ("pg_wal fills its disk in 38m" in found.text) == bool(grows)


def test_a_backlog_without_a_command_is_reported_as_such() -> None:
    watching = ReadingTicks("archive-backlog")
    archiver = of(Archiver, enabled=True, ready_count=20)
    found = only(watching.tick({"pg.server": primary(set={"archive_command": ""}), "pg.archiver": archiver}))
    assert found.text.startswith("Nothing archives WAL (no archive_command): 20 files")


def test_a_shrinking_backlog_is_reported_until_it_is_well_below() -> None:
    archive = ArchiverTicks()
    archive.tick(ready=20)
    for _ in range(20):
        findings = archive.tick(ready=14)
    assert set(findings) == {"archive-backlog"}
    for _ in range(20):
        findings = archive.tick(ready=11)
    assert findings == {}


# -- where WAL lies --------------------------------------------------------------------------------------------------


def placed(fstype: str, holds: list[str]) -> dict[str, FindingNow]:
    return ReadingTicks("wal-on-tmpfs").tick({"host.mounts": disk(fstype=fstype, holds=holds)})


def test_wal_in_memory_is_critical() -> None:
    found = only(placed("tmpfs", ["wal"]))
    assert found.severity == "critical"
    assert found.text == "WAL is on tmpfs (/pg): a power failure or a reboot loses the cluster"


@pytest.mark.parametrize(("fstype", "holds"), [("xfs", ["wal"]), ("tmpfs", ["temp"])])
def test_wal_on_disk_and_temporary_files_in_memory_are_not_findings(fstype: str, holds: list[str]) -> None:
    assert placed(fstype, holds) == {}
