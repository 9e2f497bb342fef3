"""When two readings may be subtracted, and when not."""

from __future__ import annotations

from dba_console.watch.frames.rates import delta, gap_s, pair, rate, share_pct
from dba_console.watch.replication.readings import Replication, Wal
from dba_console.watch.samples import console, host
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import cpu, of, server


def test_the_first_tick_has_no_rate() -> None:
    assert pair(series({"host.cpu": [cpu()]}), "host.cpu", host.Cpu) is None


def test_two_consecutive_readings_make_a_pair_with_their_interval() -> None:
    both = pair(series({"host.cpu": [cpu(user=1), cpu(user=9)]}, step_s=0.5), "host.cpu", host.Cpu)
    assert both is not None
    assert (both.new.user, both.old.user, both.seconds) == (9, 1, 0.5)


def test_a_counter_that_went_back_has_no_rate() -> None:
    assert rate(5, 100, 1.0) is None


def test_a_counter_that_was_missing_before_has_no_rate() -> None:
    assert rate(5, None, 1.0) is None


def test_a_32_bit_counter_wraps() -> None:
    assert delta(90, (1 << 32) - 10, wraps=True) == 100


def test_a_64_bit_counter_does_not_wrap_at_32_bits() -> None:
    assert delta(90, (1 << 32) - 10) is None


def test_a_32_bit_counter_that_falls_within_its_lower_half_was_reset() -> None:
    assert delta(90, 1_000_000, wraps=True) is None


def test_a_rate_does_not_average_over_a_gap() -> None:
    ticks = [sample(part("host.cpu", cpu(user=at), at_s=at), at_s=at) for at in (1, 2, 3, 60)]
    assert pair(picture(*ticks), "host.cpu", host.Cpu) is None
    assert pair(picture(*ticks[:3]), "host.cpu", host.Cpu) is not None


def test_a_slowly_ticking_agent_has_no_gaps() -> None:
    ticks = [sample(part("host.cpu", cpu(user=at), at_s=at), at_s=at) for at in (10, 20, 30)]
    assert gap_s(picture(*ticks), "host.cpu") == 30.0
    assert pair(picture(*ticks), "host.cpu", host.Cpu) is not None


def test_another_run_of_the_agent_has_no_previous_reading() -> None:
    first = sample(part("self", of(console.AgentHealth, cpu_us=5), at_s=1), at_s=1, boot="a")
    second = sample(part("self", of(console.AgentHealth, cpu_us=9), at_s=2), at_s=2, boot="b")
    assert pair(picture(first, second), "self", console.AgentHealth) is None


def test_readings_on_both_sides_of_a_server_start_are_not_subtracted() -> None:
    """The server is asked at 2.0 s and says it started 0.5 s ago."""
    restarted = server(start_us=NOW_US - 500_000, now_us=NOW_US)
    wal = of(Wal, bytes=10)
    before = sample(part("pg.wal", wal, at_s=1), at_s=1)
    after = sample(part("pg.server", restarted, at_s=2), part("pg.wal", wal, at_s=2), at_s=2)
    later = sample(part("pg.wal", wal, at_s=3), at_s=3)
    assert pair(picture(before, after), "pg.wal", Wal) is None
    assert pair(picture(before, after, later), "pg.wal", Wal) is not None


def test_a_server_restart_keeps_the_rates_of_the_host() -> None:
    restarted = server(start_us=NOW_US - 500_000, now_us=NOW_US)
    seen = series({"host.cpu": [cpu(), cpu()], "pg.server": [restarted, restarted]})
    assert pair(seen, "host.cpu", host.Cpu) is not None


def test_reset_statistics_are_not_subtracted() -> None:
    seen = series({"pg.wal": [of(Wal, bytes=1, stats_reset=1), of(Wal, bytes=9, stats_reset=2)]})
    assert pair(seen, "pg.wal", Wal) is None


def test_processes_of_another_postmaster_are_not_subtracted() -> None:
    seen = series({"host.processes": [host.Processes(7, [], {}, 0), host.Processes(8, [], {}, 0)]})
    assert pair(seen, "host.processes", host.Processes) is None


def test_positions_before_and_after_a_promotion_are_not_subtracted() -> None:
    standby, primary = of(Replication, in_recovery=True), of(Replication, in_recovery=False)
    seen = series({"pg.replication": [standby, primary]})
    assert pair(seen, "pg.replication", Replication) is None


def test_one_timeout_does_not_lose_the_following_rate() -> None:
    ticks = [
        sample(part("host.cpu", cpu(user=1), at_s=1), at_s=1),
        sample(part("host.cpu", None, at_s=2, status="timeout", note="hung"), at_s=2),
        sample(part("host.cpu", cpu(user=5), at_s=3), at_s=3),
    ]
    both = pair(picture(*ticks), "host.cpu", host.Cpu)
    assert both is not None
    assert both.seconds == 2.0


def test_a_percentage_of_zero_is_unknown() -> None:
    assert share_pct(0, 0) is None
    assert share_pct(None, 5) is None


def test_the_last_values_before_a_lost_connection_are_not_a_current_rate() -> None:
    wal = [of(Replication, lsn=lsn) for lsn in (100, 300)]
    read = [sample(part("pg.replication", one, at_s=at), at_s=at) for one, at in zip(wal, (2, 3), strict=True)]
    lost = [
        sample(part("pg.replication", None, at_s=at, status="error", note="no connection"), at_s=at)
        for at in range(4, 9)
    ]
    assert pair(picture(*read, *lost[:2]), "pg.replication", Replication) is not None
    assert pair(picture(*read, *lost), "pg.replication", Replication) is None
