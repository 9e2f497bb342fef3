"""I/O: a stall that affects sessions is reported from each available signal; a merely busy disk is not."""

from __future__ import annotations

import pytest

from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.io.rules import FAMILY
from dba_console.watch.io_stall import StallLimits
from dba_console.watch.samples import postgres
from tests.readings import activity
from tests.unit.watch.findings.host_ticks import HostTicks

WORK = {"reads": 500, "read_ms": 400, "writes": 100, "write_ms": 100, "io_ms": 500, "weighted_ms": 500}
"""A second of an ordinary device: half busy, under a millisecond each."""


def calm_host(seconds: int = 30) -> HostTicks:
    host_ticks = HostTicks(*FAMILY.rules)
    host_ticks.seconds(seconds, vda=WORK, vdb=WORK)
    assert host_ticks.open == []
    return host_ticks


def stalled(host_ticks: HostTicks, seconds: int, *, sessions: int, pct: float = 100.0) -> None:
    for _ in range(seconds):
        host_ticks.set_waiting_sessions(sessions)
        host_ticks.seconds(1, stalled_pct=pct, vda={"io_ms": 1000, "weighted_ms": 9000})


@pytest.fixture
def host_ticks() -> HostTicks:
    return calm_host()


def test_a_stalled_share_of_the_last_ten_seconds_is_reported_with_waiters_and_location(host_ticks: HostTicks) -> None:
    stalled(host_ticks, 5, sessions=3, pct=80)
    found = host_ticks.one("io-stalled")
    assert found.severity == "warning"
    assert (
        found.text == "I/O is stalled: 40 % of the last 10 s fully stalled, 3 sessions wait for it; on vda (data, WAL)"
    )
    assert found.evidence["waiting_sessions"] == 3


def test_most_of_ten_seconds_lost_by_many_sessions_is_critical_and_does_not_flap(host_ticks: HostTicks) -> None:
    for pct in (70, 50, 70, 50):
        stalled(host_ticks, 10, sessions=30, pct=pct)
    assert [change.finding.severity for change in host_ticks.changes] == ["warning", "critical"]


def test_a_total_stall_is_raised_within_five_seconds(host_ticks: HostTicks) -> None:
    begun = host_ticks.at_s
    while "io-stalled" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        stalled(host_ticks, 1, sessions=10)


def test_a_half_stall_during_recovery_keeps_the_finding_until_io_continues(host_ticks: HostTicks) -> None:
    stalled(host_ticks, 10, sessions=10)
    stalled(host_ticks, 30, sessions=10, pct=25)
    assert host_ticks.ids == host_ticks.raised == ["io-stalled"]
    host_ticks.rows = []
    assert host_ticks.seconds(30, vda=WORK) == []


def test_a_short_disk_pause_is_not_a_stall(host_ticks: HostTicks) -> None:
    """For one second nothing comes back and everybody waits; before and after others keep the disk busy."""
    host_ticks.seconds(6, stalled_pct=70, vda=WORK)
    stalled(host_ticks, 1, sessions=11)
    host_ticks.rows = []
    host_ticks.seconds(10, stalled_pct=40, vda=WORK)
    assert host_ticks.raised == []


@pytest.mark.parametrize("sessions", [0, 1])
def test_a_disk_the_server_does_not_wait_for_is_not_a_finding(sessions: int, host_ticks: HostTicks) -> None:
    """A compile, or a dd on the disk beside: everybody who works waits, and none of the server's sessions does."""
    host_ticks.seconds(
        60, stalled_pct=95, vdb={"writes": 100, "write_ms": 90_000, "io_ms": 1000, "weighted_ms": 90_000}
    )
    host_ticks.set_waiting_sessions(sessions)
    host_ticks.seconds(10, stalled_pct=95)
    assert host_ticks.raised == []


def test_short_statements_of_a_busy_server_are_not_a_stall(host_ticks: HostTicks) -> None:
    """A disk that takes a thousand commits a second has everybody in WALSync all the time."""
    for _ in range(30):
        host_ticks.set_waiting_sessions(20, for_s=0.02, event="WALSync")
        host_ticks.seconds(1, stalled_pct=80, vda=WORK)
    assert host_ticks.raised == []


@pytest.mark.parametrize(
    "fields",
    [
        {"application": "pg_dump"}, {"application": "pg_restore"}, {"query": "COPY public.orders TO stdout"},
        {"query": "create index on orders (customer)"}, {"query": "VACUUM orders"},
        {"backend_type": "parallel worker"}, {"backend_type": "autovacuum worker"},
    ],
)  # fmt: skip
def test_work_limited_by_the_disk_is_not_a_stall(fields: dict[str, str], host_ticks: HostTicks) -> None:
    for _ in range(30):
        host_ticks.set_waiting_sessions(8, for_s=600, **fields)
        host_ticks.seconds(1, stalled_pct=85, vda=WORK)
    assert host_ticks.raised == []


@pytest.mark.parametrize(
    ("event", "kind"),
    [("WALWrite", "LWLock"), ("WALWriteLock", "LWLock"), ("BufferIO", "IPC"), ("buffer_io", "LWLock")],
)
def test_waiting_for_the_io_of_another_session_is_waiting_for_io(event: str, kind: str, host_ticks: HostTicks) -> None:
    for _ in range(5):
        host_ticks.set_waiting_sessions(6, event=event, wait_event_type=kind)
        host_ticks.seconds(1, stalled_pct=90)
    assert host_ticks.ids == ["io-stalled"]


def test_processes_hanging_on_a_device_that_writes_nothing_are_a_stop(host_ticks: HostTicks) -> None:
    """A frozen file system: no pressure, no device busy, state D."""
    begun = host_ticks.at_s
    host_ticks.hanging = [1000, 1001, 1002]
    host_ticks.rows = [
        activity(pid, "active", wait_event_type="IO", wait_event="DataFileWrite") for pid in (1000, 1001)
    ]
    while "io-stalled" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        host_ticks.tick()
    found = host_ticks.one("io-stalled")
    assert found.severity == "critical"
    assert found.text.startswith("I/O is stalled: 3 server processes hang in the kernel, for 3 s")
    assert found.text.endswith("; on vda (data, WAL)")


@pytest.mark.parametrize(
    ("hanging", "working", "rows"),
    [
        pytest.param([], [1000, 1001, 1002], [], id="processes that wait in short turns"),
        pytest.param([501], [], [], id="one process that syncs a file"),
        pytest.param(
            [500, 501],
            [],
            [
                activity(500, None, backend_type="checkpointer"),
                activity(501, "active", query="create index on orders (customer)"),
            ],
            id="a checkpoint that waits for the disk",
        ),
    ],
)
def test_a_device_that_writes_while_processes_wait_is_not_a_stop(
    hanging: list[int],
    working: list[int],
    rows: list[postgres.Activity],
    host_ticks: HostTicks,
) -> None:
    host_ticks.hanging, host_ticks.working, host_ticks.rows = hanging, dict.fromkeys(working, 0), rows
    host_ticks.seconds(20, vda=WORK)
    assert host_ticks.raised == []


def test_a_device_with_requests_and_no_completions_is_a_stop(host_ticks: HostTicks) -> None:
    begun = host_ticks.at_s
    host_ticks.advance_device(in_flight=12)
    host_ticks.hanging = [1000]
    while "io-stalled" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        host_ticks.tick()
    found = host_ticks.one("io-stalled")
    assert found.severity == "critical"
    assert "vda (data, WAL) has 12 requests in flight and completed none for " in found.text


@pytest.mark.parametrize("in_flight", [0, 12], ids=["an idle device", "a device without server files that hangs"])
def test_a_device_the_server_does_not_use_is_not_a_stop(in_flight: int, host_ticks: HostTicks) -> None:
    host_ticks.advance_device("vdb", in_flight=in_flight)
    host_ticks.ticks(30)
    assert host_ticks.raised == []


@pytest.mark.parametrize("iowait", [60, 0])
def test_blocked_tasks_with_iowait_indicate_it_on_a_kernel_without_psi(iowait: int) -> None:
    host_ticks = HostTicks(*FAMILY.rules)
    host_ticks.io_stalled_us = None
    host_ticks.ticks(10)
    host_ticks.blocked = 14
    for _ in range(5):
        host_ticks.waited_ticks += iowait
        host_ticks.idle_ticks += 100 - iowait
        host_ticks.set_waiting_sessions(14)
        host_ticks.tick()
    if not iowait:
        assert host_ticks.raised == []
        return
    found = host_ticks.one("io-stalled")
    assert found.severity == "warning"
    assert "14 tasks blocked for " in found.text


def test_a_gap_and_a_first_tick_raise_nothing() -> None:
    host_ticks = HostTicks(*FAMILY.rules)
    host_ticks.io_stalled_us = 10**12
    host_ticks.hanging = [1, 2, 3]
    host_ticks.advance_device(in_flight=9)
    host_ticks.set_waiting_sessions(20)
    assert host_ticks.ticks(2) == []
    host_ticks = calm_host()
    host_ticks.io_stalled_us = (host_ticks.io_stalled_us or 0) + 59_000_000
    host_ticks.set_waiting_sessions(20)
    assert host_ticks.tick(60) == []
    assert host_ticks.tick() == []


def test_thresholds_can_be_configured() -> None:
    host_ticks = HostTicks(*FAMILY.rules, limits=Limits(StallLimits(waiting_sessions=50, critical_sessions=50)))
    host_ticks.ticks(10)
    stalled(host_ticks, 10, sessions=30)
    assert host_ticks.raised == []


# A device against its own usual

FULL = {"reads": 500, "read_ms": 1500, "writes": 100, "write_ms": 300, "io_ms": 1000, "weighted_ms": 1800}
"""All of a second busy, three milliseconds each, two requests at a time."""
QUEUED = {"reads": 500, "read_ms": 9000, "writes": 100, "write_ms": 1800, "io_ms": 1000, "weighted_ms": 12_000}


def test_a_busy_device_with_a_longer_queue_than_typical_is_at_its_limit() -> None:
    host_ticks = calm_host(300)
    host_ticks.seconds(18, vda=QUEUED)
    assert [name for name in host_ticks.ids if name.startswith("device-saturated")] == []
    host_ticks.seconds(8, vda=QUEUED)
    found = host_ticks.one("device-saturated:vda")
    assert found.severity == "warning"
    assert found.text.startswith("vda (data, WAL) is saturated: 100 % busy for 2")
    assert "12 requests queue, typically 0.5" in found.text


def test_a_device_that_is_always_fully_busy_is_not_at_its_limit() -> None:
    """Utilisation tells nothing of a device that serves many requests at once."""
    host_ticks = HostTicks(*FAMILY.rules)
    assert host_ticks.seconds(400, vda=FULL) == []


@pytest.mark.parametrize(
    ("known_s", "busy"),
    [
        pytest.param(100, {"vda": QUEUED}, id="the typical value is unknown in the first minutes"),
        pytest.param(300, {"vda": WORK, "vdb": QUEUED}, id="the other disk"),
        pytest.param(
            300,
            {"vda": {"writes": 900, "write_ms": 900 * 80, "io_ms": 900, "weighted_ms": 72_000}},
            id="slow requests without waiters are a write-back",
        ),
    ],
)
def test_a_busy_device_is_not_a_finding(known_s: int, busy: dict[str, dict[str, int]]) -> None:
    host_ticks = calm_host(known_s)
    host_ticks.seconds(60, **busy)
    assert host_ticks.raised == []


SLOW = {"reads": 200, "read_ms": 200 * 26, "io_ms": 800, "weighted_ms": 5000}


def slow_requests(host_ticks: HostTicks, seconds: int) -> None:
    for _ in range(seconds):
        host_ticks.set_waiting_sessions(3, for_s=0.1)
        host_ticks.seconds(1, vda=SLOW)


def test_a_device_that_takes_many_times_its_typical_time_is_slow() -> None:
    host_ticks = calm_host(300)
    slow_requests(host_ticks, 45)
    found = host_ticks.one("io-slow:vda")
    assert found.severity == "warning"
    assert found.text.startswith("vda (data, WAL) is slow: a read takes ")
    assert "(0.8 ms)" in found.text
    slow_requests(host_ticks, 25)
    assert "io-slow:vda" in host_ticks.ids, "a problem of the last minute is not part of the typical value"


def test_a_burst_of_slow_requests_is_not_a_finding() -> None:
    host_ticks = calm_host(300)
    slow_requests(host_ticks, 20)
    host_ticks.seconds(30, vda=WORK)
    assert host_ticks.raised == []


def test_a_device_that_returns_with_new_counters_raises_nothing(host_ticks: HostTicks) -> None:
    host_ticks.disks["vda"] = {}
    assert host_ticks.seconds(5, vda=WORK) == []
