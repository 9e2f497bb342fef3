"""Mounts: how full, when full, and what bites."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dba_console.watch.disks.panel import DisksPanel, derive_disks
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host
from tests.build import GB, MB, NOW_US, series
from tests.readings import mount, of


def disks(*mounts: host.Mount, history: ChartHistory | None = None) -> DisksPanel:
    return panel(series({"host.mounts": [host.Mounts(list(mounts), {})]}), history)


def panel(latest: Picture, history: ChartHistory | None = None) -> DisksPanel:
    return derive_disks(PictureFacts(latest, history or ChartHistory()))


def growing(per_s: float, last: float) -> ChartHistory:
    history = ChartHistory()
    for step in range(60):
        history.add(NOW_US + step * 5_000_000, {"mount:/data.used_bytes": last - per_s * 5 * (59 - step)})
    return history


def test_used_space_is_computed_as_in_df() -> None:
    row = disks(mount(size=100 * GB, used=47 * GB, available=47 * GB, inodes=1000, inodes_free=900)).mounts[0]
    assert (row.used_pct, row.inodes_pct) == (50.0, 10.0)


def test_free_space_of_the_wal_is_shown_separately_and_is_unknown_if_unresponsive() -> None:
    data = mount(path="/data", holds=["data"], size=10 * GB, used=GB, available=9 * GB)
    wal = mount(path="/wal", holds=["wal"], size=10 * GB, used=8 * GB, available=2 * GB)
    silent = mount(path="/wal", holds=["wal"], status="timeout")
    found = [disks(*mounts).wal_available_bytes for mounts in ([data, wal], [data], [data, silent])]
    assert found == [2 * GB, None, None]


def test_an_unresponsive_file_system_has_no_numbers() -> None:
    result = disks(mount(holds=["archive"], status="timeout", note="statvfs did not answer"))
    row = result.mounts[0]
    assert (row.used_pct, row.inodes_pct, row.full_in_s, row.status) == (None, None, None, "timeout")
    assert result.warnings == ["/data (archive) does not answer: statvfs did not answer"]


def test_a_file_system_without_an_inode_count_has_no_inode_percentage() -> None:
    assert disks(mount(inodes=0, inodes_free=0)).mounts[0].inodes_pct is None


@pytest.mark.parametrize(("mb_per_s", "full_in_s"), [(1.0, 5 * 1024), (0.1, None)])
def test_growth_above_the_rate_of_logs_gives_the_fill_time(mb_per_s: float, full_in_s: float | None) -> None:
    row = disks(mount(size=10 * GB, used=4 * GB, available=5 * GB), history=growing(mb_per_s * MB, 4.0 * GB)).mounts[0]
    assert row.growth_bytes_per_s == pytest.approx(mb_per_s * MB)
    assert row.full_in_s == (None if full_in_s is None else pytest.approx(full_in_s, rel=0.01))


def test_a_full_file_system_is_full_now() -> None:
    assert disks(mount(size=GB, used=GB, available=0)).mounts[0].full_in_s == 0.0


def test_the_first_reading_has_no_growth() -> None:
    assert disks(mount(used=GB, available=GB)).mounts[0].growth_bytes_per_s is None


@pytest.mark.parametrize(
    ("holds", "fields", "warning"),
    [
        ("data wal archive", {}, "archive and data, WAL share /data"),
        ("data wal", {}, None),
        ("wal", {"fstype": "tmpfs"}, "WAL on tmpfs (/data): lost at the next reboot"),
        ("session", {"fstype": "nfs4"}, "sessions on nfs4 (/data)"),
        ("backup", {"fstype": "nfs4"}, None),
        ("data", {"options": "rw,discard,noatime"}, "discard"),
        ("data", {"options": "rw,nodiscard"}, None),
        ("data", {"used": 79, "available": 21}, None),
        ("data", {"used": 80, "available": 20}, "/data is 80% full"),
        ("wal", {"used": 91, "available": 9}, "stops when WAL"),
        ("", {"used": 99, "available": 1, "options": "discard"}, None),
    ],
)
def test_what_server_files_need_of_their_mount_is_a_warning(
    holds: str, fields: dict[str, Any], warning: str | None
) -> None:
    found = disks(mount(holds=holds.split(), **fields)).warnings
    assert found == [] if warning is None else warning in found[0]


@pytest.mark.parametrize(("reset", "hit_pct", "commits_per_s"), [(1, 25.0, 10.0), (2, None, None)])
def test_rates_of_a_database_are_those_of_an_interval_without_a_reset(
    reset: int, hit_pct: float | None, commits_per_s: float | None
) -> None:
    old = of(DatabaseStat, oid=1, name="appdb", blks_hit=10**6, blks_read=0, stats_reset=1)
    new = structs.replace(old, blks_hit=10**6 + 10, blks_read=30, xact_commit=50, stats_reset=reset)
    row = panel(series({"pg.databases": [DatabaseStats([one]) for one in (old, new)]}, step_s=5)).databases[0]
    assert (row.hit_pct, row.commits_per_s) == (hit_pct, commits_per_s)
