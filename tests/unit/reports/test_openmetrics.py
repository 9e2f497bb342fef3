"""OpenMetrics: what Prometheus' own readers make of it, and that nothing is counted twice, lost or invented."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Point

from dba_console.recording.recording import Recording
from dba_console.reports.metrics import METRICS
from dba_console.reports.openmetrics import SeriesFile
from dba_console.watch.safety.readings import DatabaseStats
from dba_console.watch.samples.host import Cpu, Mounts
from dba_console.watch.samples.sample import Sample
from tests.build import part, sample
from tests.readings import blank, busy_server, cpu, mount, server
from tests.requirements import require_tool
from tests.unit.recording.recordings import record, ticks
from tests.unit.reports.exports import PRACTICE, exported, noted


@pytest.fixture(scope="module")
def practice() -> str:
    return exported(PRACTICE, "openmetrics")


read: Callable[[str], Iterable[Metric]] = text_string_to_metric_families


def families(text: str) -> dict[str, Metric]:
    """The families by name without the prefix, as the reference parser reads them."""
    return {family.name.removeprefix("dba_console_"): family for family in read(text)}


def points(family: Metric, **labels: str) -> list[Point]:
    return [one for one in family.samples if labels.items() <= one.labels.items()]


def test_the_reference_parser_reads_every_family_with_type_and_unit(practice: str) -> None:
    found = families(practice)
    assert (found["host_cpu_seconds"].type, found["host_cpu_seconds"].unit) == ("counter", "seconds")
    assert (found["io_iowait_ratio"].type, found["io_iowait_ratio"].unit) == ("gauge", "ratio")
    assert found["pg_server"].type == "info"
    assert all(
        0 <= one.value <= 1 for name, family in found.items() if name.endswith("_ratio") for one in family.samples
    )
    assert all(one.labels["instance"] == "shop:46367" for family in found.values() for one in family.samples)
    unread = {metric.part for metric in METRICS if metric.name not in found}
    assert unread <= {"pg.io", "pg.sizes", "pg.horizon", "pg.replication", "cluster", "jobs.now"}


def test_promtool_loads_every_point(practice: str, tmp_path: Path) -> None:
    (tmp_path / "export.om").write_text(practice)
    promtool = require_tool("promtool")
    load = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "export.om"), str(tmp_path / "data")]
    done = subprocess.run(load, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    blocks = [msgspec.json.decode(path.read_bytes()) for path in (tmp_path / "data").glob("*/meta.json")]
    loaded = sum(block["stats"]["numSamples"] for block in blocks)
    assert loaded == sum(not line.startswith("#") for line in practice.splitlines())


def test_counters_are_the_numbers_that_the_kernel_and_the_server_counted(practice: str) -> None:
    recording = Recording.open(PRACTICE)
    picture = recording.picture_at(recording.last_us)
    recording.close()
    assert picture is not None
    cpu, databases = picture.now("host.cpu", Cpu), picture.now("pg.databases", DatabaseStats)
    assert cpu is not None
    assert databases is not None
    found = families(practice)
    assert points(found["host_cpu_seconds"], mode="iowait")[-1].value == cpu.iowait / 100
    commits = next(row.xact_commit for row in databases.rows if row.name == "shop")
    assert points(found["pg_database_transactions"], database="shop", outcome="commit")[-1].value == commits


def test_each_reading_is_one_point_although_blocks_repeat_it(tmp_path: Path) -> None:
    found = families(exported(record(tmp_path, ticks(95), block=10), "openmetrics"))
    commits = points(found["pg_database_transactions"], database="db1", outcome="commit")
    assert [one.value for one in commits] == [9 * tick for tick in range(1, 96) if tick == 1 or tick % 3 == 0]
    assert len(points(found["pg_next_xid"])) == 4


def test_points_of_a_series_are_in_the_order_of_time_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    samples = ticks(32)
    back = [Sample(one.seq, one.wall_us - 15_000_000, one.mono_us, one.parts, one.boot) for one in samples[20:]]
    text, notes = noted(record(tmp_path, [*samples[:20], *back]), "openmetrics")
    times = [float(one.timestamp or 0) for one in points(families(text)["host_cpu_seconds"], mode="user")]
    assert all(later > earlier for earlier, later in pairwise(times))
    assert len(times) == 20
    assert "the clock of the host was set back" in notes[0]


def test_points_may_be_thinned(tmp_path: Path) -> None:
    text = exported(record(tmp_path, ticks(95)), "openmetrics", every_s=15)
    assert len(points(families(text)["host_cpu_seconds"], mode="user")) == 7


def test_a_hostile_name_is_a_label_value_and_no_line(tmp_path: Path) -> None:
    hostile = 'a"b\\c\n# EOF\nd=1 \x1b[2J\u202e'
    mounts = Mounts([mount(hostile, size=1 << 30, used=5)], {})
    found = families(exported(record(tmp_path, [sample(part("host.mounts", mounts))]), "openmetrics"))
    [used] = points(found["mount_used_bytes"])
    assert used.value == 5
    assert used.labels["mount"] == 'a"b\\c␊# EOF␊d=1 ␛[2J\ufffd'


def test_the_host_of_the_console_is_left_out_if_the_server_runs_on_another(tmp_path: Path) -> None:
    readings = part("host.cpu", cpu()), part("pg.server", server(local=False))
    found = families(exported(record(tmp_path, [sample(*readings)]), "openmetrics"))
    assert "pg_server" in found
    assert not any(name.startswith("host_") for name in found)


def test_a_session_without_samples_is_an_export_without_families(tmp_path: Path) -> None:
    assert exported(record(tmp_path, []), "openmetrics") == "# EOF\n"


def test_a_series_longer_than_memory_is_read_back_in_order() -> None:
    metric = METRICS[0]
    with SeriesFile() as series:
        for tick in range(10):
            series.add(metric, ("idle",), tick, tick / 2)
            series.add(metric, ("user",), tick, tick)
            if tick % 4 == 3:
                series.flush()
        series.flush()
        read = list(series.chunks(metric, ("idle",)))
    assert [at_ms for times, _ in read for at_ms in times] == list(range(10))
    assert [value for _, values in read for value in values] == [tick / 2 for tick in range(10)]
    assert len(read) == 3


def test_every_declared_metric_is_read_from_an_empty_and_from_a_full_reading() -> None:
    for metric in METRICS:
        for reading in (blank(metric.part), busy_server(20, 3)[metric.part]):
            assert all(len(labels) == len(metric.labels) for labels, _ in metric.values(reading))
