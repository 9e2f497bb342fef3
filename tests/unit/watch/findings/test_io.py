"""I/O: a stall that affects sessions is reported from each available signal; a merely busy disk is not."""

from __future__ import annotations

import pytest

from dba_console.core.thresholds import IoLimits, Limits
from dba_console.watch.findings import io
from tests.readings import activity
from tests.unit.watch.findings.host_ticks import HostTicks

WORK = {"reads": 500, "read_ms": 400, "writes": 100, "write_ms": 100, "io_ms": 500, "weighted_ms": 500}
"""A second of an ordinary device: half busy, under a millisecond each."""


def calm_host(seconds: int = 30) -> HostTicks:
    host_ticks = HostTicks(io.RULES)
    host_ticks.seconds(seconds, vda=WORK, vdb=WORK)
    assert host_ticks.open == []
    return host_ticks


def stalled(host_ticks: HostTicks, seconds: int, *, sessions: int, pct: float = 100.0) -> None:
    for _ in range(seconds):
        host_ticks.set_waiting_sessions(sessions)
        host_ticks.seconds(1, stalled_pct=pct, vda={"io_ms": 1000, "weighted_ms": 9000})


def test_a_stalled_share_of_the_last_ten_seconds_is_reported_with_waiters_and_location() -> None:
    host_ticks = calm_host()
    stalled(host_ticks, 5, sessions=3, pct=80)
    found = host_ticks.one("io-stalled")
    assert found.severity == "warning"
    assert (
        found.text == "I/O is stalled: 40 % of the last 10 s fully stalled, 3 sessions wait for it; on vda (data, WAL)"
    )
    assert found.evidence["waiting_sessions"] == 3


def test_most_of_ten_seconds_lost_by_many_sessions_is_critical() -> None:
    host_ticks = calm_host()
    stalled(host_ticks, 10, sessions=30, pct=70)
    assert host_ticks.one("io-stalled").severity == "critical"


def test_a_share_around_the_critical_threshold_does_not_flap() -> None:
    host_ticks = calm_host()
    for pct in (70, 50, 70, 50):
        stalled(host_ticks, 10, sessions=30, pct=pct)
    changes = [change.finding.severity for change in host_ticks.changes]
    assert changes == ["warning", "critical"]


def test_a_total_stall_is_raised_within_five_seconds() -> None:
    host_ticks = calm_host()
    begun = host_ticks.at_s
    while "io-stalled" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        stalled(host_ticks, 1, sessions=10)


def test_it_clears_when_io_continues() -> None:
    host_ticks = calm_host()
    stalled(host_ticks, 10, sessions=10)
    host_ticks.rows = []
    assert host_ticks.seconds(30, vda=WORK) == []


def test_a_half_stall_during_recovery_keeps_the_finding_without_flapping() -> None:
    host_ticks = calm_host()
    stalled(host_ticks, 10, sessions=10)
    stalled(host_ticks, 30, sessions=10, pct=25)
    assert host_ticks.ids == ["io-stalled"]
    assert host_ticks.raised == ["io-stalled"]


def test_a_short_disk_pause_is_not_a_stall() -> None:
    """For one second nothing comes back and everybody waits; before and after others keep the disk busy."""
    host_ticks = calm_host()
    host_ticks.seconds(6, stalled_pct=70, vda=WORK)
    stalled(host_ticks, 1, sessions=11)
    host_ticks.rows = []
    host_ticks.seconds(10, stalled_pct=40, vda=WORK)
    assert host_ticks.raised == []


@pytest.mark.parametrize("sessions", [0, 1])
def test_a_disk_the_server_does_not_wait_for_is_not_a_finding(sessions: int) -> None:
    """A compile, or a dd on the disk beside: everybody who works waits, and none of the server's sessions does."""
    host_ticks = calm_host()
    host_ticks.seconds(
        60, stalled_pct=95, vdb={"writes": 100, "write_ms": 90_000, "io_ms": 1000, "weighted_ms": 90_000}
    )
    host_ticks.set_waiting_sessions(sessions)
    host_ticks.seconds(10, stalled_pct=95)
    assert host_ticks.raised == []


def test_short_statements_of_a_busy_server_are_not_a_stall() -> None:
    """A disk that takes a thousand commits a second has everybody in WALSync all the time."""
    host_ticks = calm_host()
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
def test_work_limited_by_the_disk_is_not_a_stall(fields: dict[str, str]) -> None:
    host_ticks = calm_host()
    for _ in range(30):
        host_ticks.set_waiting_sessions(8, for_s=600, **fields)
        host_ticks.seconds(1, stalled_pct=85, vda=WORK)
    assert host_ticks.raised == []


@pytest.mark.parametrize(
    ("event", "kind"),
    [("WALWrite", "LWLock"), ("WALWriteLock", "LWLock"), ("BufferIO", "IPC"), ("buffer_io", "LWLock")],
)
def test_waiting_for_the_io_of_another_session_is_waiting_for_io(event: str, kind: str) -> None:
    host_ticks = calm_host()
    for _ in range(5):
        host_ticks.set_waiting_sessions(6, event=event, wait_event_type=kind)
        host_ticks.seconds(1, stalled_pct=90)
    assert host_ticks.ids == ["io-stalled"]


def test_processes_hanging_on_a_device_that_writes_nothing_are_a_stop() -> None:
    """A frozen file system: no pressure, no device busy, state D."""
    host_ticks = calm_host()
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


def test_processes_that_wait_in_short_turns_make_progress() -> None:
    host_ticks = calm_host()
    host_ticks.working = {1000: 0, 1001: 0, 1002: 0}
    host_ticks.seconds(20, vda=WORK)
    assert host_ticks.raised == []


def test_a_checkpoint_that_waits_for_the_disk_is_not_a_stop() -> None:
    host_ticks = calm_host()
    host_ticks.hanging = [500, 501]
    host_ticks.rows = [
        activity(500, None, backend_type="checkpointer"),
        activity(501, "active", query="create index on orders (customer)"),
    ]
    host_ticks.seconds(20, vda=WORK)
    assert host_ticks.raised == []


def test_one_process_that_syncs_a_file_is_not_a_stop() -> None:
    host_ticks = calm_host()
    host_ticks.hanging = [501]
    host_ticks.seconds(20, vda=WORK)
    assert host_ticks.raised == []


def test_a_device_with_requests_and_no_completions_is_a_stop() -> None:
    host_ticks = calm_host()
    begun = host_ticks.at_s
    host_ticks.advance_device(in_flight=12)
    host_ticks.hanging = [1000]
    while "io-stalled" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        host_ticks.tick()
    found = host_ticks.one("io-stalled")
    assert found.severity == "critical"
    assert "vda (data, WAL) has 12 requests in flight and completed none for " in found.text


def test_a_device_without_server_files_may_hang() -> None:
    host_ticks = calm_host()
    host_ticks.advance_device("vdb", in_flight=12)
    host_ticks.ticks(20)
    assert host_ticks.raised == []


def test_an_idle_device_with_nothing_in_flight_is_not_a_stop() -> None:
    host_ticks = calm_host()
    host_ticks.ticks(30)
    assert host_ticks.raised == []


def test_blocked_tasks_and_iowait_indicate_it_on_a_kernel_without_psi() -> None:
    host_ticks = HostTicks(io.RULES)
    host_ticks.io_stalled_us = None
    host_ticks.ticks(10)
    host_ticks.blocked = 14
    for _ in range(5):
        host_ticks.waited_ticks += 60
        host_ticks.idle_ticks += 40
        host_ticks.set_waiting_sessions(14)
        host_ticks.tick()
    found = host_ticks.one("io-stalled")
    assert found.severity == "warning"
    assert "14 tasks blocked for " in found.text


def test_blocked_tasks_without_iowait_do_not_indicate_it() -> None:
    host_ticks = HostTicks(io.RULES)
    host_ticks.io_stalled_us = None
    host_ticks.blocked = 14
    for _ in range(10):
        host_ticks.idle_ticks += 100
        host_ticks.set_waiting_sessions(14)
        host_ticks.tick()
    assert host_ticks.raised == []


def test_a_gap_and_a_first_tick_raise_nothing() -> None:
    host_ticks = HostTicks(io.RULES)
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
    host_ticks = HostTicks(io.RULES, Limits(io=IoLimits(waiting_sessions=50, critical_sessions=50)))
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
    host_ticks = HostTicks(io.RULES)
    assert host_ticks.seconds(400, vda=FULL) == []


def test_the_typical_value_is_unknown_in_the_first_minutes() -> None:
    host_ticks = calm_host(100)
    assert host_ticks.seconds(60, vda=QUEUED) == []


def test_the_other_disk_may_be_at_its_limit() -> None:
    host_ticks = calm_host(300)
    assert host_ticks.seconds(60, vda=WORK, vdb=QUEUED) == []


def test_a_device_that_takes_many_times_its_typical_time_is_slow() -> None:
    host_ticks = calm_host(300)
    slow = {"reads": 200, "read_ms": 200 * 26, "io_ms": 800, "weighted_ms": 5000}
    for _ in range(45):
        host_ticks.set_waiting_sessions(3, for_s=0.1)
        host_ticks.seconds(1, vda=slow)
    found = host_ticks.one("io-slow:vda")
    assert found.severity == "warning"
    assert found.text.startswith("vda (data, WAL) is slow: a read takes ")
    assert "(0.8 ms)" in found.text


def test_a_burst_of_slow_requests_is_not_a_finding() -> None:
    host_ticks = calm_host(300)
    for _ in range(20):
        host_ticks.set_waiting_sessions(3, for_s=0.1)
        host_ticks.seconds(1, vda={"reads": 200, "read_ms": 200 * 26, "io_ms": 800, "weighted_ms": 5000})
    host_ticks.seconds(30, vda=WORK)
    assert host_ticks.raised == []


def test_slow_requests_without_waiters_are_a_write_back() -> None:
    host_ticks = calm_host(300)
    host_ticks.seconds(60, vda={"writes": 900, "write_ms": 900 * 80, "io_ms": 900, "weighted_ms": 72_000})
    assert host_ticks.raised == []


def test_a_problem_of_the_last_minute_is_not_part_of_the_typical_value() -> None:
    host_ticks = calm_host(300)
    for _ in range(70):
        host_ticks.set_waiting_sessions(3, for_s=0.1)
        host_ticks.seconds(1, vda={"reads": 200, "read_ms": 200 * 26, "io_ms": 800, "weighted_ms": 5000})
    assert "io-slow:vda" in host_ticks.ids


def test_a_device_that_returns_with_new_counters_raises_nothing() -> None:
    host_ticks = calm_host()
    host_ticks.disks["vda"] = {}
    assert host_ticks.seconds(5, vda=WORK) == []
