"""I/O figures, as vmstat and iostat compute them."""

from __future__ import annotations

import pytest

from dba_console.watch.block_devices import Device
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.io.panel import IoPanel, derive_io
from dba_console.watch.io.readings import IoStat, IoStats
from dba_console.watch.samples import host
from tests.build import series
from tests.readings import cpu, disk, mount, of


def io(latest: Picture) -> IoPanel:
    return derive_io(PictureFacts(latest, ChartHistory()))


def device(old: host.Disk, new: host.Disk, seconds: float = 2.0) -> Device:
    latest = series({"host.cpu": [cpu(), cpu()], "host.disks": [host.Disks([old]), host.Disks([new])]}, step_s=seconds)
    return io(latest).devices[0]


def test_await_is_time_per_completed_request() -> None:
    row = device(disk(reads=10, read_ms=100), disk(reads=30, read_ms=130))
    assert (row.reads_per_s, row.read_await_ms) == (10.0, 1.5)


def test_a_device_with_no_completions_has_no_await() -> None:
    row = device(disk(), disk())
    assert (row.reads_per_s, row.read_await_ms, row.util_pct) == (0.0, None, 0.0)


def test_utilisation_is_the_busy_time_of_the_interval_and_at_most_all_of_it() -> None:
    assert device(disk(io_ms=0), disk(io_ms=500)).util_pct == 25.0
    assert device(disk(io_ms=0), disk(io_ms=2100)).util_pct == 100.0


def test_a_time_that_wrapped_at_32_bits_still_has_an_await() -> None:
    row = device(disk(reads=1, read_ms=(1 << 32) - 5), disk(reads=11, read_ms=95))
    assert row.read_await_ms == 10.0


def test_a_device_that_was_removed_and_added_has_no_rates() -> None:
    row = device(disk(reads=100, writes=100, io_ms=9), disk(reads=1, writes=1, io_ms=1, in_flight=2))
    assert (row.reads_per_s, row.util_pct, row.in_flight) == (None, None, 2)


def test_the_first_tick_has_no_rates_at_all() -> None:
    panel = io(series({"host.cpu": [cpu(user=5)], "host.disks": [host.Disks([disk(reads=5)])]}))
    assert (panel.iowait_pct, panel.read_bytes_per_s, panel.devices[0].reads_per_s) == (None, None, None)


def test_stacked_devices_are_not_counted_twice() -> None:
    def disks(sectors: int) -> host.Disks:
        below = [disk("sda", read_sectors=sectors), disk("sdb", read_sectors=sectors)]
        raid = disk("md0", read_sectors=2 * sectors, underlying=["sda", "sdb"])
        return host.Disks([*below, raid, disk("dm-0", read_sectors=2 * sectors, underlying=["md0"])])

    panel = io(series({"host.cpu": [cpu(), cpu()], "host.disks": [disks(0), disks(100)]}))
    assert panel.read_bytes_per_s == 2 * 100 * 512


def test_the_content_of_a_volume_is_shown_for_the_disk_below_it() -> None:
    disks = host.Disks([disk("sda"), disk("dm-0", underlying=["sda"])])
    mounts = host.Mounts([mount("/data", device="dm-0", holds=["data", "wal"])], {})
    panel = io(series({"host.cpu": [cpu()], "host.disks": [disks], "host.mounts": [mounts]}))
    assert {row.name: row.holds for row in panel.devices} == {"sda": ["data", "wal"], "dm-0": ["data", "wal"]}


def test_iowait_is_its_share_of_all_cpu_time() -> None:
    panel = io(series({"host.cpu": [cpu(), cpu(user=50, nice=10, system=20, irq=5, softirq=5, idle=90, iowait=20)]}))
    assert panel.iowait_pct == 10.0
    assert (panel.user_pct, panel.system_pct) == (30.0, 15.0)


def test_iowait_that_went_back_slightly_is_zero() -> None:
    panel = io(series({"host.cpu": [cpu(iowait=100), cpu(iowait=99, user=100)]}))
    assert (panel.iowait_pct, panel.user_pct) == (0.0, 100.0)


def test_the_stalled_percentage_of_the_interval_comes_from_the_total() -> None:
    def pressure(total_us: int) -> host.Pressure:
        return of(host.Pressure, io_full=host.PressureStall(1.0, 0.0, 0.0, total_us))

    panel = io(series({"host.cpu": [cpu(), cpu()], "host.pressure": [pressure(0), pressure(250_000)]}))
    assert panel.psi_full_pct == pytest.approx(25.0)


def test_a_kernel_without_psi_leaves_the_panel_ok_and_says_so() -> None:
    latest = series({"host.cpu": [cpu()]})
    panel = io(latest)
    assert (panel.status, panel.psi_some_avg10) == ("ok", None)


def test_a_new_kind_of_io_was_zero_before() -> None:
    row = of(IoStat, backend_type="checkpointer", object="relation", context="normal", writes=10)
    panel = io(series({"pg.io": [IoStats([]), IoStats([row])]}, step_s=10))
    assert panel.server[0].writes_per_s == 1.0
    assert panel.server[0].reads_per_s is None
