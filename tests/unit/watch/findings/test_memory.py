"""Memory: page cache that goes is named with its cause; what only looks like it is not."""

from __future__ import annotations

import pytest

from dba_console.watch import subjects
from dba_console.watch.connections.rules import FAMILY as CONNECTIONS
from dba_console.watch.findings.finding_groups import (
    SignalTracker,
    conjunction_between,
    find_causes,
    group_by_cause,
    group_text,
)
from dba_console.watch.findings.rule import Signal
from dba_console.watch.samples.findings import FindingNow
from tests.readings import server
from tests.unit.watch.findings.host_ticks import GB, MB, HostTicks

BOTH = [*subjects.families()["memory"].rules, *subjects.families()["io"].rules]


@pytest.fixture
def host_ticks() -> HostTicks:
    """Half a minute of an ordinary host, 100 MB/s read."""
    host_ticks = HostTicks(*BOTH)
    host_ticks.seconds(30, vda={"reads": 200, "read_sectors": 200 * 1024, "read_ms": 100, "io_ms": 300})
    assert host_ticks.open == []
    return host_ticks


def reclaimed(host_ticks: HostTicks, bytes_: int, actor: str = "pgsteal_kswapd") -> list[FindingNow]:
    """A second in which so much is reclaimed by one actor, and the six after it."""
    host_ticks.drop_cache(bytes_, pgsteal_file=bytes_, **{actor: bytes_})
    return host_ticks.ticks(7)


def test_cache_reclaimed_without_a_shortage_is_reported_with_its_reclaimer_until_the_cache_is_stable(
    host_ticks: HostTicks,
) -> None:
    reclaimed(host_ticks, 5 * GB)
    found = host_ticks.one("memory-reclaim")
    assert found.severity == "info"
    assert found.text == ("Page cache fell 5.0 GB and free memory rose 5.0 GB: memory reclaim (kswapd, no shortage)")
    assert found.evidence["reclaim_kswapd_bytes"] == 5 * GB
    assert found.advice and "watermark_boost_factor" in found.advice
    assert host_ticks.ticks(60) == []


def test_a_tenth_of_memory_within_half_a_minute_is_a_warning(host_ticks: HostTicks) -> None:
    for _ in range(10):
        host_ticks.drop_cache(2 * GB, pgsteal_file=2 * GB, pgsteal_kswapd=2 * GB)
        host_ticks.tick()
    assert host_ticks.one("memory-reclaim").severity == "warning"
    fell = host_ticks.one("memory-reclaim").evidence["cached_fell_bytes"]
    assert isinstance(fell, int) and 12 * GB < fell <= 20 * GB, "the sentence is renewed every five seconds"


def test_a_growing_pool_of_huge_pages_is_reported_as_such() -> None:
    """Its pages are neither cached nor free, and no program has them."""
    host_ticks = HostTicks(*BOTH)
    host_ticks.memory |= {"huge_total": 4096, "huge_page_size": 2 * MB}
    host_ticks.ticks(10)
    host_ticks.memory["huge_total"] += 10 * 1024
    host_ticks.drop_cache(20 * GB, free=0, pgsteal_file=20 * GB, pgsteal_direct=20 * GB)
    host_ticks.ticks(7)
    assert host_ticks.one("memory-reclaim").text.endswith("memory reclaim (the pool of huge pages grew)")


def test_reclaim_with_stalled_io_is_one_critical_finding_with_its_runbook(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(4 * GB, pgsteal_file=4 * GB, pgsteal_kswapd=4 * GB)
    for _ in range(6):
        host_ticks.set_waiting_sessions(30)
        host_ticks.seconds(1, stalled_pct=90)
    [found] = host_ticks.open
    assert (found.id, found.severity, found.runbook) == ("reclaim-stall", "critical", "cache-drop")
    assert found.chain[0] == "io-stalled"
    assert found.text.startswith("I/O is stalled: ")
    assert found.text.endswith(
        ", while page cache fell 4.0 GB and free memory rose 4.0 GB: memory reclaim (kswapd, no shortage)"
    )


def test_reclaim_and_stall_are_reported_within_five_seconds(host_ticks: HostTicks) -> None:
    begun = host_ticks.at_s
    host_ticks.drop_cache(4 * GB, pgsteal_file=4 * GB, pgsteal_kswapd=4 * GB)
    while "reclaim-stall" not in host_ticks.ids:
        assert host_ticks.at_s - begun < 5
        host_ticks.set_waiting_sessions(30, for_s=host_ticks.at_s - begun + 1)
        host_ticks.seconds(1, stalled_pct=100)


def test_the_freeze_cycles_of_a_recurring_stall_are_one_finding(host_ticks: HostTicks) -> None:
    for _ in range(3):
        host_ticks.drop_cache(4 * GB, pgsteal_file=4 * GB, pgsteal_kswapd=4 * GB)
        for _ in range(9):
            host_ticks.set_waiting_sessions(30)
            host_ticks.seconds(1, stalled_pct=95)
        host_ticks.rows = []
        host_ticks.drop_cache(-4 * GB)
        host_ticks.seconds(11)
    assert host_ticks.raised.count("reclaim-stall") == 1
    assert "reclaim-stall" in host_ticks.ids


def test_the_sentence_of_the_whole_group_reads_as_one() -> None:
    """Connections, I/O and memory, as four days of story S1 found out."""
    signals = {
        "connections-filling": Signal(severity="critical", text="", effect="Connections fill (244 of 247, +38/min)"),
        "io-stalled": Signal(
            severity="critical", text="", cause="queries wait for I/O: 61 % of the last 10 s fully stalled"
        ),
        "reclaim-stall": Signal(
            severity="critical", text="", runbook="cache-drop",
            cause="page cache fell 4.1 GB and free memory rose 4.0 GB: memory reclaim (kswapd, no shortage)",
        ),
        "cache-dropped": Signal(severity="info", text="Page cache dropped", effect="the page cache was dropped"),
    }  # fmt: skip
    rules = {rule.name: rule for rule in [*BOTH, *CONNECTIONS.rules]}
    tracks = SignalTracker()
    for name in ("connections-filling", "io-stalled", "reclaim-stall"):
        tracks.update(rules[name], [signals[name]], 1, 1)
        tracks.update(rules[name], [signals[name]], 10**8, 10**8)
    [joined] = group_by_cause(tracks.raised, find_causes(tracks.raised))
    assert group_text(joined, conjunction_between) == (
        "Connections fill (244 of 247, +38/min) because queries wait for I/O: 61 % of the last 10 s fully stalled, "
        "while page cache fell 4.1 GB and free memory rose 4.0 GB: memory reclaim (kswapd, no shortage)"
    )
    tracks.update(rules["cache-dropped"], [signals["cache-dropped"]], 10**8, 10**8)
    [joined] = group_by_cause(tracks.raised, find_causes(tracks.raised))
    assert joined.root.rule.name == "reclaim-stall"
    assert group_text(joined, conjunction_between).endswith("(kswapd, no shortage); the page cache was dropped")


def test_a_stall_is_detected_on_a_kernel_without_psi() -> None:
    """2.6.32 as in story S1: blocked tasks and bytes read and written is all there is."""
    host_ticks = HostTicks(*BOTH)
    host_ticks.io_stalled_us = None
    host_ticks.vmstat["pgsteal_file"] = None
    host_ticks.seconds(60, vda={"reads": 200, "read_sectors": 200 * 1024, "read_ms": 100, "io_ms": 300})
    host_ticks.blocked = 12
    host_ticks.drop_cache(5 * GB, pgsteal_kswapd=5 * GB)
    host_ticks.seconds(4)
    assert host_ticks.one("reclaim-stall").severity == "critical"
    assert "almost nothing read or written" in host_ticks.one("reclaim-stall").text


def test_a_file_freed_during_an_io_stall_is_not_named_as_its_cause(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(5 * GB)
    for _ in range(8):
        host_ticks.set_waiting_sessions(3)
        host_ticks.seconds(1, stalled_pct=60)
    assert [(row.id, row.severity) for row in host_ticks.open] == [("io-stalled", "warning")]


def test_a_cache_fall_long_after_the_start_of_an_io_stall_is_not_its_cause(host_ticks: HostTicks) -> None:
    for second in range(20):
        if second == 12:
            host_ticks.drop_cache(5 * GB, pgsteal_file=5 * GB)
        host_ticks.set_waiting_sessions(30)
        host_ticks.seconds(1, stalled_pct=90)
    assert "io-stalled" in host_ticks.ids
    host_ticks.rows = []
    host_ticks.seconds(6, stalled_pct=30)
    host_ticks.drop_cache(5 * GB, pgsteal_file=5 * GB)
    host_ticks.seconds(8, stalled_pct=30)
    assert "reclaim-stall" not in host_ticks.raised


def test_all_processes_waiting_for_memory_is_a_stall_too(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(5 * GB, pgsteal_file=5 * GB, pgsteal_direct=5 * GB, allocstall=4000)
    for _ in range(5):
        host_ticks.memory_stalled_us += 600_000
        host_ticks.tick()
    assert "direct reclaim" in host_ticks.one("reclaim-stall").text


@pytest.mark.parametrize(("dropped", "severity", "cost"), [(4, "info", "41s"), (20, "warning", "3m25s")])
def test_dropped_caches_are_reported_with_the_cost_of_rereading(
    dropped: int, severity: str, cost: str, host_ticks: HostTicks
) -> None:
    """A tenth of memory is a warning."""
    host_ticks.drop_cache(dropped * GB, drop_pagecache=1)
    host_ticks.ticks(3)
    found = host_ticks.only_one("cache-dropped")
    assert found.severity == severity
    assert found.text == (
        f"Page cache dropped: a process wrote drop_caches (drop_pagecache +1), {dropped}.0 GB of cache dropped; "
        f"reading it again takes {cost} at the 100 MB/s seen here"
    )


def test_a_drop_counted_one_reading_after_the_fall_is_not_reported_as_a_freed_file(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(20 * GB)
    host_ticks.tick()
    host_ticks.drop_cache(-64 * MB, drop_pagecache=1)
    host_ticks.ticks(5)
    assert host_ticks.raised == ["cache-dropped"]


def test_cache_dropped_while_io_stalls_is_part_of_the_stall(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(20 * GB, drop_pagecache=1)
    for _ in range(6):
        host_ticks.set_waiting_sessions(30)
        host_ticks.seconds(1, stalled_pct=90)
    [found] = host_ticks.open
    assert found.id == "reclaim-stall"
    assert "cache-dropped" in found.chain
    assert "memory reclaim (a process wrote drop_caches)" in found.text


def test_reread_bytes_are_counted_afterwards(host_ticks: HostTicks) -> None:
    reclaimed(host_ticks, 20 * GB)
    host_ticks.seconds(12, vda={**REREAD, "io_ms": 900}, counted=REFAULTS)
    found = host_ticks.one("memory-reclaim")
    assert "cache-reread" in found.chain
    assert "of page cache read again so far, at " in found.text
    assert " after page cache fell 20.0 GB" in found.text
    assert found.evidence["reread_bytes"] == pytest.approx(900 * MB, rel=0.35)


REFAULTS = {"refault_file": 100 * MB // 4096}
REREAD = {"reads": 900, "read_sectors": 120 * MB // 512, "read_ms": 900}


@pytest.mark.parametrize(
    "vda",
    [
        pytest.param({**REREAD, "io_ms": 120}, id="100 MB/s keep this device busy for a tenth of its time"),
        pytest.param({}, id="pages of a sparse file without disk reads"),
    ],
)
def test_rereading_at_little_device_load_is_not_reported(vda: dict[str, int], host_ticks: HostTicks) -> None:
    reclaimed(host_ticks, 20 * GB)
    host_ticks.seconds(15, vda=vda, counted=REFAULTS)
    assert "cache-reread" not in [name for row in host_ticks.open for name in row.chain]


def test_after_dropped_caches_reads_beyond_the_typical_rate_count(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(20 * GB, drop_pagecache=1)
    host_ticks.seconds(12, vda={"reads": 900, "read_sectors": 400 * MB // 512, "read_ms": 900, "io_ms": 900})
    assert host_ticks.one("cache-dropped").evidence["reread_bytes_per_s"] == pytest.approx(300 * MB, rel=0.01)


def test_refaults_without_a_preceding_fall_are_ordinary_reads(host_ticks: HostTicks) -> None:
    host_ticks.seconds(
        30, counted={"refault_file": 200 * MB // 4096}, vda={"reads": 900, "read_sectors": 400 * MB // 512}
    )
    assert host_ticks.raised == []


# What must stay quiet


@pytest.mark.parametrize(
    ("fall", "reclaimed"),
    [
        pytest.param(600 * MB, 300 * MB, id="a compile that churns the cache"),
        pytest.param(0, 500 * MB, id="a big file copied through a full cache"),
    ],
)
def test_cache_that_comes_and_goes_is_not_reclaim(fall: int, reclaimed: int, host_ticks: HostTicks) -> None:
    for tick in range(60):
        host_ticks.drop_cache(fall if tick % 2 else -fall, pgsteal_file=reclaimed, pgsteal_kswapd=reclaimed)
        host_ticks.tick()
    assert host_ticks.raised == []


def test_a_process_of_4_gb_that_starts_and_ends_is_not_reclaim(host_ticks: HostTicks) -> None:
    for _ in range(8):
        host_ticks.memory["anon"] += 4 * GB // 8
        host_ticks.drop_cache(4 * GB // 8, free=0, pgsteal_file=4 * GB // 8, pgsteal_kswapd=4 * GB // 8)
        host_ticks.tick()
    host_ticks.memory["anon"] -= 4 * GB
    host_ticks.memory["free"] += 4 * GB
    host_ticks.ticks(5)
    assert [name for name in host_ticks.raised if name != "memory-reclaim"] == []
    assert all(row.severity != "critical" for row in host_ticks.open)


def test_a_server_restart_frees_shared_memory_and_is_not_a_cache_fall(host_ticks: HostTicks) -> None:
    host_ticks.memory["shmem"] = 0
    host_ticks.drop_cache(8 * GB)
    host_ticks.ticks(5)
    assert host_ticks.raised == []


def test_a_dropped_table_is_not_a_finding_below_a_tenth_of_memory(host_ticks: HostTicks) -> None:
    host_ticks.drop_cache(5 * GB)
    host_ticks.ticks(5)
    assert host_ticks.raised == []
    host_ticks.drop_cache(20 * GB)
    host_ticks.ticks(7)
    assert [(row.id, row.severity) for row in host_ticks.open] == [("memory-reclaim", "info")]
    assert host_ticks.open[0].text.endswith(": a file was freed")


def test_the_first_ticks_raise_nothing() -> None:
    host_ticks = HostTicks(*BOTH)
    host_ticks.vmstat["drop_pagecache"] = 17
    host_ticks.io_stalled_us = 900_000_000_000
    assert host_ticks.ticks(3) == []


@pytest.mark.parametrize("boot", ["b1", "b2"], ids=["during a gap", "before another run of the agent"])
def test_an_unobserved_fall_raises_nothing(boot: str, host_ticks: HostTicks) -> None:
    host_ticks.boot = boot
    host_ticks.drop_cache(40 * GB, pgsteal_file=40 * GB, pgsteal_kswapd=40 * GB, drop_pagecache=1)
    host_ticks.tick(60 if boot == "b1" else 1)
    assert host_ticks.ticks(5) == []


def test_restarted_counters_raise_nothing(host_ticks: HostTicks) -> None:
    host_ticks.vmstat["drop_pagecache"] = 5
    host_ticks.ticks(70)
    host_ticks.changes.clear()
    for name in host_ticks.vmstat:
        host_ticks.vmstat[name] = 0
    host_ticks.io_stalled_us = 0
    assert host_ticks.ticks(5) == []
    assert host_ticks.raised == []


def test_an_unknown_counter_is_not_read_as_zero(host_ticks: HostTicks) -> None:
    for name in host_ticks.vmstat:
        host_ticks.vmstat[name] = None
    host_ticks.memory["cached"] -= 20 * GB
    host_ticks.memory["free"] += 20 * GB
    host_ticks.ticks(7)
    assert host_ticks.one("memory-reclaim").text.endswith("memory reclaim (cause not known)")


def test_numbers_of_another_host_raise_nothing(host_ticks: HostTicks) -> None:
    host_ticks.server = server(local=False)
    host_ticks.drop_cache(20 * GB, drop_pagecache=1)
    assert host_ticks.ticks(5) == []


def test_oom_killed_processes_are_reported_for_a_quarter_of_an_hour() -> None:
    host_ticks = HostTicks("oom-kill")
    host_ticks.vmstat["oom_kill"] = 4
    assert host_ticks.ticks(3) == [], "that was before the console began"
    host_ticks.vmstat["oom_kill"] = 5
    assert host_ticks.tick()[0].text.startswith("The kernel killed a process for lack of memory, at ")
    host_ticks.vmstat["oom_kill"] = 7
    host_ticks.ticks(6)
    assert host_ticks.one("oom-kill").evidence["oom_kills"] == 3
    assert host_ticks.ticks(900) == []
