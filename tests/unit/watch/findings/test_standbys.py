"""Standbys and subscribers: how far behind, and whether they are there; what is not known says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.replication.readings import Replication, Standby
from dba_console.watch.replication.standby_rules import StandbyLimits
from tests.build import GB, MB
from tests.readings import activity, of, sessions
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary, standby

HOUR = 3600.0


def lagging(count: int, *, ticks: ReadingTicks | None = None, in_recovery: bool = False, **fields: Any) -> Any:
    ticks = ticks or ReadingTicks("replication-lag")
    for _ in range(count):
        made: dict[str, Any] = {"lsn": 10 * GB, "timeline": 1, "in_recovery": in_recovery}
        replication = of(Replication, **{**made, **fields})
        findings = ticks.tick({"pg.server": primary(), "pg.replication": replication}, after_s=2.0)
    return findings


def test_a_lag_of_a_minute_is_a_warning_at_the_first_reading_with_where_it_is_stuck() -> None:
    row = standby(sent_lsn=10 * GB, flush_lsn=10 * GB - MB, replay_lsn=10 * GB - 300 * MB, replay_lag_s=75.0)
    found = only(lagging(1, standbys=[row]))
    assert (found.id, found.severity) == ("replication-lag:db3", "warning")
    assert found.text == "Standby db3 is behind by 1m15s, 300 MB of WAL, most of it not replayed"


def test_a_lag_of_ten_minutes_is_critical() -> None:
    row = standby(sent_lsn=10 * GB - 300 * MB, flush_lsn=9 * GB, replay_lsn=9 * GB, replay_lag_s=700.0)
    assert only(lagging(7, standbys=[row])).severity == "critical"


def test_a_lag_of_a_gigabyte_is_reported_after_half_a_minute() -> None:
    far: dict[str, Any] = {"sent_lsn": 8 * GB, "flush_lsn": 8 * GB, "replay_lsn": 8 * GB}
    assert lagging(20, standbys=[standby(**far, replay_lag_s=29.0)]) == {}, "a burst on a busy server"
    assert "most of it not sent" in only(lagging(4, standbys=[standby(**far, replay_lag_s=31.0)])).text


def test_a_gigabyte_of_lag_of_unknown_age_is_reported_with_its_location() -> None:
    row = standby(sent_lsn=8 * GB, flush_lsn=8 * GB, replay_lsn=8 * GB)
    assert lagging(3, standbys=[row]) == {}
    assert "most of it not sent" in only(lagging(4, standbys=[row])).text


def test_a_standby_that_catches_up_is_not_a_finding_however_large_its_lag() -> None:
    ticks = ReadingTicks("replication-lag")
    for turn in range(60):
        at = 1 * GB + turn * 50 * MB
        row = standby(sent_lsn=at, flush_lsn=at, replay_lsn=at)
        assert lagging(1, ticks=ticks, standbys=[row]) == {}


def test_a_standby_delayed_by_design_is_reported_as_such_without_a_warning() -> None:
    limits = Limits(StandbyLimits(delayed_standbys=["db3"]))
    ticks = ReadingTicks("replication-lag", "standby-delayed", limits=limits)
    row = standby(sent_lsn=10 * GB, flush_lsn=10 * GB, replay_lsn=1 * GB, replay_lag_s=3600.0)
    found = only(lagging(20, ticks=ticks, standbys=[row]))
    assert (found.id, found.severity) == ("standby-delayed:db3", "info")
    other = standby("db4", sent_lsn=10 * GB, flush_lsn=10 * GB, replay_lsn=1 * GB, replay_lag_s=3600.0)
    assert "replication-lag:db4" in lagging(1, ticks=ticks, standbys=[row, other])


def test_a_standby_that_has_caught_up_has_no_lag_whatever_it_last_reported() -> None:
    row = standby(sent_lsn=10 * GB, flush_lsn=10 * GB, replay_lsn=10 * GB, replay_lag_s=700.0)
    assert lagging(7, standbys=[row]) == {}


def test_standbys_hidden_from_the_role_raise_nothing() -> None:
    assert lagging(7, standbys=[standby(state=None, replay_lsn=None)]) == {}


def test_a_standby_that_replays_what_it_receives_has_no_lag_on_an_idle_primary() -> None:
    ticks = ReadingTicks("replication-lag")
    stream = {"receive_lsn": 10 * GB, "receiver_status": "streaming", "replay_at": ticks.ago(HOUR)}
    assert lagging(10, ticks=ticks, in_recovery=True, **stream) == {}


def test_a_lag_caused_by_a_pause_names_it_and_how_to_resume() -> None:
    ticks = ReadingTicks("replication-lag", "replay-paused")
    stream = {"receive_lsn": 10 * GB + 50 * MB, "receiver_status": "streaming", "replay_paused": True}
    found = only(lagging(7, ticks=ticks, in_recovery=True, replay_at=ticks.ago(120), **stream))
    assert "50.0 MB received and not replayed because replay is paused" in found.text
    assert "pg_wal_replay_resume" in (found.advice or "")


def test_a_standby_without_a_stream_is_reported_with_a_warning_only_if_it_had_one() -> None:
    ticks = ReadingTicks("replication-lag")
    assert only(lagging(7, ticks=ticks, in_recovery=True, replay_at=ticks.ago(HOUR))).severity == "info"
    lagging(10, ticks=ticks, in_recovery=True, receive_lsn=10 * GB, receiver_status="streaming")
    later = lagging(7, ticks=ticks, in_recovery=True, replay_at=ticks.ago(HOUR))
    assert only(later).severity == "warning"
    assert "no WAL is streaming in" in only(later).text


# -- standbys that are gone ------------------------------------------------------------------------------------------


class StandbysTicks:
    def __init__(self, **settings: str) -> None:
        self.watching = ReadingTicks("standby-gone")
        self.watching.tick({"pg.server": primary(set=settings)})

    def tick(self, *rows: Standby, ticks: int = 1, note: str | None = None, waiting: int = 0) -> Any:
        for _ in range(ticks):
            commits = [activity(50 + number, "active", wait_event="SyncRep") for number in range(waiting)]
            replication = of(Replication, lsn=10 * GB, timeline=1, standbys=list(rows))
            self.watching.tick({"pg.activity": sessions(*commits, now_us=0)}, after_s=1.0)
            findings = self.watching.tick({"pg.replication": replication}, after_s=1.0, note=note)
        return findings

    def old(self, name: str = "db3", **fields: Any) -> Standby:
        return standby(name, backend_start=self.watching.ago(HOUR), **fields)


def test_a_standby_that_streamed_for_an_hour_is_missed_after_ten_seconds() -> None:
    standbys = StandbysTicks()
    standbys.tick(standbys.old())
    assert standbys.tick(ticks=4) == {}
    found = only(standbys.tick())
    assert (found.id, found.severity) == ("standby-gone:db3", "warning")
    assert "after streaming for 1h00" in found.text


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "pg_receivewal", "replay_lsn": None},
        {"name": "pg_basebackup", "state": "backup", "replay_lsn": None},
        {"name": "pg_16399_sync_16391_7431204485839012345"},
    ],
)
def test_backups_receivers_and_table_copies_are_not_missed(fields: dict[str, Any]) -> None:
    standbys = StandbysTicks()
    standbys.tick(standbys.old(**fields))
    assert standbys.tick(ticks=10) == {}


def test_a_standby_present_for_seconds_is_not_missed() -> None:
    standbys = StandbysTicks()
    standbys.tick(standby(backend_start=standbys.watching.ago(5)), ticks=3)
    assert standbys.tick(ticks=10) == {}


def test_unread_standbys_are_not_lost() -> None:
    standbys = StandbysTicks()
    standbys.tick(standbys.old())
    assert standbys.tick(ticks=10, note="standbys not known: canceling statement due to timeout") == {}


def test_unobserved_time_does_not_count_as_absence_of_a_standby() -> None:
    standbys = StandbysTicks()
    standbys.tick(standbys.old())
    standbys.watching.tick_without("pg.replication", after_s=90.0)
    assert standbys.tick(ticks=4) == {}, "it has ten seconds from when somebody looks again"
    assert set(standbys.tick(ticks=3)) == {"standby-gone:db3"}


def test_of_two_standbys_with_one_name_one_is_missed() -> None:
    standbys = StandbysTicks()
    standbys.tick(standbys.old("walreceiver"), standbys.old("walreceiver", pid=9))
    assert set(standbys.tick(standbys.old("walreceiver"), ticks=7)) == {"standby-gone:walreceiver at 10.0.0.3 (2)"}


def test_if_another_standby_replaces_it_it_is_not_critical() -> None:
    standbys = StandbysTicks(synchronous_standby_names="FIRST 1 (db3, db4)")
    standbys.tick(standbys.old(sync_state="sync"), standbys.old("db4", pid=9, sync_state="potential"))
    found = only(standbys.tick(standbys.old("db4", pid=9, sync_state="sync"), ticks=7))
    assert found.severity == "warning"


def test_commits_waiting_for_a_standby_never_seen_are_reported() -> None:
    standbys = StandbysTicks(synchronous_standby_names="db9")
    found = only(standbys.tick(ticks=7, waiting=2))
    assert (found.id, found.severity) == ("standby-gone", "critical")
    assert (
        found.text == "2 sessions wait for a standby to commit: synchronous_standby_names requires 1 more than stream"
    )
