"""Lag, slots and the archive, on a primary and on a standby."""

from __future__ import annotations

from typing import Any

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.model import chart_titles
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.replication.panel import ReplicationPanel, derive_replication, is_standby
from dba_console.watch.replication.readings import Archiver, Replication, Slot, Standby, Wal
from dba_console.watch.safety.readings import Horizon, HorizonHolder
from tests.build import MB, NOW_US, part, picture, sample, series
from tests.readings import of


def replication(latest: Picture) -> ReplicationPanel:
    return derive_replication(PictureFacts(latest, ChartHistory()))


def primary(**fields: Any) -> Replication:
    return of(Replication, **{"now_us": NOW_US, "lsn": 100 * MB, "timeline": 3, **fields})


def standby(**fields: Any) -> Replication:
    made = {
        "in_recovery": True,
        "receive_lsn": 100 * MB,
        "receiver_status": "streaming",
        "replay_at": NOW_US - 9_000_000,
    }
    return primary(**{**made, **fields})


def test_a_primary_shows_the_lag_of_its_furthest_standby() -> None:
    rows = [
        of(Standby, application="a", replay_lsn=99 * MB, replay_lag_s=0.5),
        of(Standby, application="b", replay_lsn=60 * MB, replay_lag_s=4.0),
    ]
    panel = replication(series({"pg.replication": [primary(standbys=rows)]}))
    assert (panel.role, panel.lag_bytes, panel.lag_s) == ("primary", 40 * MB, 4.0)


def test_the_lag_in_bytes_is_of_the_same_standby_as_the_lag_in_time() -> None:
    rows = [
        of(Standby, application="delayed", state="streaming", replay_lsn=90 * MB, replay_lag_s=600.0),
        of(Standby, application="slow", state="streaming", replay_lsn=60 * MB, replay_lag_s=4.0),
    ]
    panel = replication(series({"pg.replication": [primary(standbys=rows)]}))
    assert (panel.lag_bytes, panel.lag_s) == (40 * MB, 4.0)


def test_a_base_backup_is_not_a_lagging_standby() -> None:
    rows = [
        of(Standby, application="pg_basebackup", state="backup", replay_lsn=1 * MB),
        of(Standby, application="db3", state="streaming", replay_lsn=99 * MB, replay_lag_s=0.1),
    ]
    panel = replication(series({"pg.replication": [primary(standbys=rows)]}))
    assert (panel.lag_bytes, panel.lag_s) == (1 * MB, 0.1)
    assert [is_standby(row) for row in panel.standbys] == [False, True]


def test_a_standby_that_caught_up_on_an_idle_primary_is_not_behind() -> None:
    rows = [of(Standby, application="a", replay_lsn=100 * MB)]
    panel = replication(series({"pg.replication": [primary(standbys=rows)]}))
    assert (panel.standbys[0].lag_s, panel.lag_s) == (0.0, 0.0)


def test_a_primary_without_standbys_has_no_lag() -> None:
    panel = replication(series({"pg.replication": [primary()]}))
    assert (panel.lag_bytes, panel.lag_s) == (None, None)


def test_a_wal_receiver_that_never_replays_has_no_lag() -> None:
    rows = [of(Standby, application="pg_receivewal", sent_lsn=100 * MB)]
    panel = replication(series({"pg.replication": [primary(standbys=rows)]}))
    assert (panel.standbys[0].lag_bytes, panel.standbys[0].sent_lag_bytes, panel.lag_bytes) == (None, 0, None)


def test_on_a_local_standby_received_but_not_replayed_wal_is_the_lag() -> None:
    panel = replication(series({"pg.replication": [standby(lsn=90 * MB)]}))
    assert (panel.role, panel.lag_bytes, panel.lag_s) == ("standby", 10 * MB, 9.0)


def test_a_local_standby_that_replayed_everything_has_no_lag_however_old_the_last_commit() -> None:
    panel = replication(series({"pg.replication": [standby(replay_at=NOW_US - 3_600_000_000)]}))
    assert (panel.lag_bytes, panel.lag_s) == (0, 0.0)


def test_a_standby_with_a_lost_stream_lags_by_the_age_of_its_last_commit() -> None:
    panel = replication(series({"pg.replication": [standby(receiver_status=None)]}))
    assert panel.lag_s == 9.0


def test_a_receiver_with_hidden_status_still_shows_its_position() -> None:
    hidden = standby(receiver_status=None, receiver_pid=7, lsn=90 * MB)
    assert replication(series({"pg.replication": [hidden]})).lag_bytes == 10 * MB
    assert replication(series({"pg.replication": [standby(receiver_status=None, lsn=90 * MB)]})).lag_bytes is None


def test_the_wal_rate_is_that_of_written_wal() -> None:
    panel = replication(series({"pg.replication": [primary(), primary(lsn=106 * MB)]}, step_s=2))
    assert panel.wal_bytes_per_s == 3.0 * MB


def test_a_promotion_leaves_one_tick_without_a_rate() -> None:
    readings = [standby(), primary(lsn=103 * MB, timeline=4), primary(lsn=106 * MB, timeline=4)]
    assert replication(series({"pg.replication": readings[:2]})).wal_bytes_per_s is None
    assert replication(series({"pg.replication": readings})).wal_bytes_per_s == 3.0 * MB


def test_a_slot_retains_the_wal_before_the_write_position() -> None:
    slots = [
        of(Slot, name="old", kind="logical", restart_lsn=10 * MB, wal_status="extended"),
        of(Slot, name="lost", kind="physical", wal_status="lost"),
    ]
    horizon = Horizon([of(HorizonHolder, kind="slot", who="old", xid_age=81)])
    panel = replication(series({"pg.replication": [primary(slots=slots)], "pg.horizon": [horizon]}))
    old, lost = panel.slots
    assert (old.retained_bytes, old.active, old.xid_age) == (90 * MB, False, 81)
    assert (lost.retained_bytes, lost.xid_age) == (None, None)


def archiver(**fields: Any) -> Archiver:
    return of(Archiver, **{"enabled": True, "now_us": NOW_US, **fields})


def test_the_age_of_the_archive_continues_between_its_readings() -> None:
    latest = picture(
        sample(part("pg.archiver", archiver(last_archived_at=NOW_US - 14_000_000), at_s=1), at_s=1),
        sample(at_s=4, seq=4),
    )
    assert replication(latest).archive_age_s == 17.0


def test_a_server_without_archiving_has_no_archive_age() -> None:
    panel = replication(series({"pg.archiver": [archiver(enabled=False, last_archived_at=1, failed_count=3)]}))
    assert (panel.archive_enabled, panel.archive_age_s, panel.archive_failed_count) == (False, None, None)


def test_files_that_could_not_be_counted_are_unknown() -> None:
    assert replication(series({"pg.archiver": [archiver()]})).archive_ready_count is None


def test_requested_checkpoints_are_charted_per_reading_and_shown_as_a_rate() -> None:
    wal = [of(Wal, checkpoints_timed=5, checkpoints_requested=10)]
    latest = series({"pg.replication": [primary(), primary()], "pg.wal": wal})
    assert "replication.checkpoints_requested" not in point_of(latest), "pg.wal was not read in this tick"
    latest = series({"pg.replication": [primary()], "pg.wal": wal})
    point = point_of(latest)
    assert (point["replication.checkpoints_timed"], point["replication.checkpoints_requested"]) == (5.0, 10.0)
    assert replication(latest).checkpoints_requested_per_min is None, "of one reading there is no rate"
    history = ChartHistory()
    history.extend(
        (NOW_US + minute * 60_000_000, {"replication.checkpoints_requested": 10.0 + minute // 2})
        for minute in range(-9, 1)
    )
    panel = derive_replication(PictureFacts(latest, history))
    assert panel.checkpoints_requested_per_min is not None and round(panel.checkpoints_requested_per_min, 1) == 0.6
    assert chart_titles()["replication.checkpoints_requested"] == "requested checkpoints"
