"""Mounts: how full, when full, and what bites."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.disks import derive_disks
from dba_console.watch.frames.model import Disks
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.samples import host, postgres
from tests.build import GB, MB, NOW_US, series
from tests.readings import mount, of


def disks(*mounts: host.Mount, history: ChartHistory | None = None) -> Disks:
    return panel(series({"host.mounts": [host.Mounts(list(mounts), {})]}), history)


def panel(latest: Picture, history: ChartHistory | None = None) -> Disks:
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


def test_steady_growth_gives_the_fill_time() -> None:
    row = disks(mount(size=10 * GB, used=4 * GB, available=5 * GB), history=growing(1.0 * MB, 4.0 * GB)).mounts[0]
    assert row.growth_bytes_per_s == pytest.approx(MB)
    assert row.full_in_s == pytest.approx(5 * 1024, rel=0.01)


def test_growth_below_the_rate_of_logs_predicts_nothing() -> None:
    row = disks(mount(size=10 * GB, used=4 * GB, available=5 * GB), history=growing(0.1 * MB, 4.0 * GB)).mounts[0]
    assert row.full_in_s is None


def test_a_full_file_system_is_full_now() -> None:
    assert disks(mount(size=GB, used=GB, available=0)).mounts[0].full_in_s == 0.0


def test_the_first_reading_has_no_growth() -> None:
    assert disks(mount(used=GB, available=GB)).mounts[0].growth_bytes_per_s is None


def warned(**fields: Any) -> list[str]:
    return disks(mount(**fields)).warnings


def test_wal_and_archive_on_one_mount_cause_a_warning() -> None:
    assert "archive and data, WAL share /data" in warned(holds=["data", "wal", "archive"])[0]


def test_data_and_wal_on_one_mount_cause_no_warning() -> None:
    assert warned(holds=["data", "wal"]) == []


def test_wal_in_memory_causes_a_warning() -> None:
    assert warned(holds=["wal"], fstype="tmpfs") == ["WAL on tmpfs (/data): lost at the next reboot"]


def test_a_recording_on_a_network_file_system_causes_a_warning_and_a_backup_does_not() -> None:
    assert "sessions on nfs4 (/data)" in warned(holds=["session"], fstype="nfs4")[0]
    assert warned(holds=["backup"], fstype="nfs4") == []


def test_discard_causes_a_warning_and_nodiscard_does_not() -> None:
    assert len(warned(holds=["data"], options="rw,discard,noatime")) == 1
    assert warned(holds=["data"], options="rw,nodiscard") == []


def test_fullness_causes_a_warning_from_eighty_percent_on() -> None:
    assert warned(holds=["data"], used=79, available=21) == []
    assert warned(holds=["data"], used=80, available=20) == ["/data is 80% full"]
    assert "stops when WAL" in warned(holds=["wal"], used=91, available=9)[0]


def test_a_mount_without_server_files_is_not_evaluated() -> None:
    assert warned(holds=[], used=99, available=1, options="discard") == []


def test_the_hit_ratio_is_that_of_the_interval() -> None:
    old = of(postgres.DatabaseStat, oid=1, name="appdb", blks_hit=1_000_000, blks_read=0)
    new = of(postgres.DatabaseStat, oid=1, name="appdb", blks_hit=1_000_010, blks_read=30, xact_commit=50)
    rows = panel(series({"pg.databases": [postgres.DatabaseStats([old]), postgres.DatabaseStats([new])]}, step_s=5))
    assert (rows.databases[0].hit_pct, rows.databases[0].commits_per_s) == (25.0, 10.0)


def test_reset_statistics_of_a_database_have_no_rates() -> None:
    old = of(postgres.DatabaseStat, oid=1, name="appdb", stats_reset=1)
    new = of(postgres.DatabaseStat, oid=1, name="appdb", stats_reset=2, xact_commit=50)
    rows = panel(series({"pg.databases": [postgres.DatabaseStats([old]), postgres.DatabaseStats([new])]}, step_s=5))
    assert rows.databases[0].commits_per_s is None
