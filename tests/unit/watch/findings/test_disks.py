"""Disks: what is said of which share and which date, and of what nothing is said."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.disks.file_system_rules import DiskLimits
from dba_console.watch.disks.readings import TempDirectory, TempFiles
from dba_console.watch.disks.rules import FAMILY
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.samples import host
from tests.build import GB, MB, NOW_US
from tests.readings import activity, server, sessions
from tests.unit.watch.findings.reading_ticks import PartTicks

TB = 1024 * GB
DATA = ["data", "wal"]


def mounts(used: float, size: float = 100 * GB, holds: list[str] | None = None, **fields: Any) -> host.Mounts:
    """One file system of `size` with so much used."""
    made = {"path": "/data", "options": "rw", "device": "vda", "inodes": 1000, "inodes_free": 900, **fields}
    row = host.Mount(
        source="/dev/vda", fstype="ext4", holds=DATA if holds is None else holds, size=int(size), used=int(used),
        available=int(size - used), **made,
    )  # fmt: skip
    return host.Mounts([row], {})


def concluded(used: list[float], size: float = 100 * GB, limits: Limits | None = None, **fields: Any) -> PartTicks:
    """What is concluded of these readings, five seconds apart."""
    part_ticks = PartTicks(*FAMILY.rules, limits=limits)
    for bytes_used in used:
        part_ticks.tick({"host.mounts": mounts(bytes_used, size, **fields)}, after_s=5.0)
    return part_ticks


def growing(start: float, per_s: float, seconds: float) -> list[float]:
    return [start + per_s * 5 * step for step in range(int(seconds / 5) + 1)]


@pytest.mark.parametrize(
    ("pct", "holds", "severity"),
    [
        (79, DATA, None),
        (81, DATA, "warning"),
        (91, DATA, "critical"),
        (91, ["tablespace:fast"], "critical"),
        (91, ["archive"], "warning"),
        (96, ["archive", "log"], "critical"),
        (99, ["session"], "warning"),
        (99, [], None),
    ],
)
def test_the_severity_of_used_space_depends_on_its_content(pct: int, holds: list[str], severity: str | None) -> None:
    assert concluded([pct * GB], holds=holds).severities.get("disk-filling:/data") == severity


def test_eighty_percent_of_twenty_terabytes_without_growth_is_info() -> None:
    assert concluded([16.2 * TB], 20 * TB).severities == {"disk-filling:/data": "info"}
    assert concluded([18.2 * TB], 20 * TB).severities == {"disk-filling:/data": "warning"}


def test_the_used_space_is_reported_until_it_is_clearly_below() -> None:
    part_ticks = concluded([81 * GB, *[79 * GB] * 20])
    assert part_ticks.severities == {"disk-filling:/data": "warning"}
    for _ in range(14):
        part_ticks.tick({"host.mounts": mounts(77 * GB)}, after_s=5.0)
    assert part_ticks.open == []


def test_a_warning_becomes_critical_at_its_own_percentage_and_not_before() -> None:
    assert concluded([81 * GB, *[89 * GB] * 4]).severities == {"disk-filling:/data": "warning"}
    assert concluded([81 * GB, 91 * GB, *[89 * GB] * 4]).severities == {"disk-filling:/data": "critical"}
    assert concluded([81 * GB, 91 * GB, *[87 * GB] * 4]).severities == {"disk-filling:/data": "warning"}


def test_steady_growth_reports_the_fill_time() -> None:
    (row,) = concluded(growing(75 * GB, 13 * MB, 300)).open
    assert row.severity == "warning"
    assert row.evidence["growth_bytes_per_s"] == pytest.approx(13 * MB, rel=0.01)
    assert row.evidence["full_in_s"] == pytest.approx((25 * GB - 3900 * MB) / (13 * MB), rel=0.02)
    assert row.text.startswith("/data (data, WAL) will be full in 27m")


def test_a_fill_time_is_at_most_six_times_the_watched_time_ahead() -> None:
    assert concluded(growing(50 * GB, 5 * MB, 300)).open == []
    (row,) = concluded(growing(50 * GB, 5 * MB, 1800)).open
    assert 2 * 3600 < row.evidence["full_in_s"] < 6 * 1800


def test_a_near_fill_time_is_critical_once_a_sixth_of_the_space_is_used() -> None:
    assert concluded(growing(50 * GB, 40 * MB, 205)).severities == {"disk-filling:/data": "warning"}
    assert concluded(growing(50 * GB, 40 * MB, 300)).severities == {"disk-filling:/data": "critical"}


def test_a_minute_of_loading_on_a_large_disk_is_not_reported() -> None:
    assert concluded(growing(1 * TB, 100 * MB, 60), 4 * TB).open == []


def test_one_step_and_noise_are_not_growth() -> None:
    assert concluded([*[50 * GB] * 20, *[60 * GB] * 40]).changes == []
    assert concluded([50 * GB + (step % 3) * 100 * MB for step in range(60)]).changes == []


def test_a_disk_full_in_two_minutes_is_critical_after_half_a_minute() -> None:
    assert concluded(growing(90 * GB - 4 * GB, 80 * MB, 25)).severities == {"disk-filling:/data": "warning"}
    assert concluded(growing(90 * GB - 4 * GB, 80 * MB, 35)).severities == {"disk-filling:/data": "critical"}


def test_bulk_loads_with_pauses_between_them_are_not_steady_growth() -> None:
    levels = [70.0 * GB + load * 2 * GB for load in range(5) for _ in range(24)]
    assert concluded(levels).changes == []


def test_ten_seconds_of_growth_count_only_if_little_space_is_left() -> None:
    assert concluded([50 * GB, 53 * GB, 56 * GB]).open != []
    assert concluded([50 * GB, 51 * GB, 52 * GB]).open == [], "a file of 2 GB was copied"
    assert concluded([50 * GB, 52 * GB, 52 * GB]).open == [], "it has stopped already"


def test_a_gap_is_not_growth() -> None:
    part_ticks = concluded([50 * GB, 51 * GB])
    part_ticks.tick({"host.mounts": mounts(70 * GB)}, after_s=600.0)
    part_ticks.tick({"host.mounts": mounts(70 * GB)}, after_s=5.0)
    assert part_ticks.changes == []


def test_hours_of_slow_growth_reveal_what_minutes_cannot() -> None:
    roomy = Limits(DiskLimits(roomy_bytes=0.0))
    part_ticks = concluded(growing(70 * GB, 0.5 * MB, 4 * 3600 - 600), 100 * GB, limits=roomy)
    (row,) = part_ticks.open
    assert row.evidence["full_in_s"] == pytest.approx(47_000, rel=0.1)
    assert row.evidence["watched_s"] > 3 * 3600


def test_a_disk_of_another_host_is_not_evaluated() -> None:
    part_ticks = PartTicks(*FAMILY.rules)
    part_ticks.tick({"pg.server": server(local=False), "host.mounts": mounts(99 * GB)})
    assert part_ticks.open == []


def test_an_unresponsive_file_system_is_not_reported_as_full() -> None:
    row = host.Mount("/data", "/dev/vda", "ext4", "rw", "vda", DATA, status="timeout", note="stalled")
    part_ticks = PartTicks(*FAMILY.rules)
    part_ticks.tick({"host.mounts": host.Mounts([row], {})})
    assert part_ticks.open == []


def test_foreign_names_cannot_break_the_sentence() -> None:
    (row,) = concluded([95 * GB], path="/da\x1b[2Jta").open
    assert "\x1b" not in row.text + row.id


def test_few_inodes_are_reported_although_there_is_space() -> None:
    assert concluded([10 * GB], inodes_free=100).severities == {"inodes-filling:/data": "warning"}
    assert concluded([10 * GB], inodes_free=10).severities == {"inodes-filling:/data": "critical"}
    assert concluded([10 * GB], inodes_free=10, holds=["log"]).severities == {"inodes-filling:/data": "warning"}
    assert concluded([10 * GB], inodes=None, inodes_free=None).open == []


def test_discard_is_info_and_asynchronous_discard_is_not_reported() -> None:
    assert concluded([1 * GB], options="rw,discard").severities == {"discard-mount:/data": "info"}
    assert concluded([1 * GB], options="rw,discard=async").open == []
    assert concluded([1 * GB], options="rw,discard", holds=["session"]).open == []


# -- temporary files


def temp_files_grown(
    sizes: list[float], *, free: float | None = 100 * GB, closed: list[float] | None = None, space: str = "pg_default"
) -> PartTicks:
    """What is concluded of temporary files of these sizes, five seconds apart, of pid 7."""
    part_ticks = PartTicks(*FAMILY.rules)
    rows = sessions(activity(7, "active", application="report", user="bi", query="select 1"), now_us=NOW_US)
    known = {} if free is None else {"host.mounts": mounts(0, free)}
    part_ticks.tick({"pg.activity": rows, **known})
    for number, size in enumerate(sizes):
        done = 0 if closed is None else int(closed[number])
        files = [TempDirectory(space, 7, 2, int(size))] if size else []
        part_ticks.tick({"pg.temp": TempFiles(files, done)}, after_s=5.0)
    return part_ticks


def test_a_fifth_of_the_free_space_is_reported_with_the_session() -> None:
    (row,) = temp_files_grown([30 * GB]).open
    assert row.severity == "warning"
    assert row.text.startswith("report (bi, pid 7) sorts on disk: 30.0 GB of temporary files on /data (data, WAL)")
    assert row.advice is not None and "pg_cancel_backend(7)" in row.advice


def test_a_sort_that_fills_the_disk_within_minutes_is_critical() -> None:
    (row,) = temp_files_grown([10 * GB, 25 * GB]).open
    assert row.severity == "critical"
    assert row.evidence["temp_full_in_s"] == pytest.approx(100 / 3, rel=0.1)


def test_many_small_sorts_count_by_their_written_bytes() -> None:
    closed = [0.0, 2 * GB, 4 * GB]
    assert temp_files_grown([100 * MB] * 3, closed=closed).severities == {"temp-spill": "warning"}
    assert temp_files_grown([100 * MB] * 3, closed=closed, free=4 * TB).open == [], "a large disk takes that for hours"


def test_a_large_sort_on_a_huge_disk_is_not_reported() -> None:
    assert temp_files_grown([20 * GB] * 3, free=4 * TB).changes == []


def test_a_gigabyte_is_reported_if_the_disk_is_unknown() -> None:
    assert temp_files_grown([2 * GB], free=None).severities == {"temp-spill": "warning"}
    assert temp_files_grown([0.5 * GB], free=None).open == []


def test_a_tablespace_for_temporary_files_is_named() -> None:
    assert temp_files_grown([2 * GB], space="fast").severities == {"temp-spill:fast": "warning"}


def test_a_statistics_reset_is_not_a_burst() -> None:
    assert temp_files_grown([100 * MB] * 3, closed=[900 * GB, 0, 0]).changes == []
