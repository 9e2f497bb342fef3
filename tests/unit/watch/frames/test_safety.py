"""Checksums and the distance to wraparound."""

from __future__ import annotations

import pytest

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.safety.panel import WRAP_AGE, SafetyPanel, derive_safety, thresholds
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats, DatabaseXid, Horizon, HorizonHolder, Xids
from dba_console.watch.samples import host
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import of, server


def safety(latest: Picture, history: ChartHistory | None = None) -> SafetyPanel:
    return derive_safety(PictureFacts(latest, history or ChartHistory()))


def xids(*databases: tuple[str, int, int], next_xid: int | None = None) -> Xids:
    rows = [DatabaseXid(*row) for row in databases]
    return of(Xids, now_us=NOW_US, databases=rows, next_xid=next_xid)


@pytest.mark.parametrize(
    ("major", "warn", "stop"),
    [
        (13, 2_136_483_647, 2_146_483_647),
        (14, 2_107_483_647, 2_144_483_647),
        (18, 2_107_483_647, 2_144_483_647),
        (19, 2_047_483_647, 2_144_483_647),
    ],
)
def test_warning_and_stop_limits_are_those_of_the_version(major: int, warn: int, stop: int) -> None:
    assert thresholds(major)[:2] == (warn, stop)


def test_multixacts_of_13_stop_a_hundred_before_the_wrap() -> None:
    assert thresholds(13)[2:] == (WRAP_AGE - 10_000_000, WRAP_AGE - 100)


def test_the_oldest_database_counts_even_if_it_is_template0() -> None:
    panel = safety(series({"pg.server": [server()], "pg.xids": [xids(("appdb", 5, 9), ("template0", 70, 3))]}))
    assert (panel.xid_database, panel.xid_age, panel.mxid_age) == ("template0", 70, 9)


def test_the_percentage_is_of_the_age_at_which_the_server_stops() -> None:
    panel = safety(series({"pg.server": [server()], "pg.xids": [xids(("appdb", 1_072_241_823, 0))]}))
    assert panel.xid_pct == pytest.approx(50.0, abs=0.001)


def test_fill_times_follow_from_the_xid_rate() -> None:
    readings = [xids(("appdb", 100_000_000, 0), next_xid=next_xid) for next_xid in (0, 30_000)]
    panel = safety(series({"pg.server": [server()], "pg.xids": readings}, step_s=30))
    assert panel.xids_per_s == 1000.0
    assert panel.autovacuum_freeze_in_s == pytest.approx(100_000.0)
    assert panel.stop_in_s == pytest.approx((2_144_483_647 - 100_000_000) / 1000)


def test_the_xid_rate_uses_the_longest_window() -> None:
    history = ChartHistory()
    for step in range(20):
        burned = step * 3000 + (600_000 if step == 19 else 0)
        history.add(NOW_US + step * 30_000_000, {"safety:7431204485839012345.next_xid": float(burned)})
    readings = [xids(("appdb", 1, 0), next_xid=next_xid) for next_xid in (54_000, 657_000)]
    panel = safety(series({"pg.server": [server()], "pg.xids": readings}, step_s=30), history)
    assert panel.xids_per_s == pytest.approx(657_000 / 570)


def test_ids_of_another_cluster_are_not_an_xid_rate() -> None:
    history = ChartHistory()
    for step, system in enumerate(("1", "1", "7431204485839012345")):
        history.add(NOW_US + step * 30_000_000, {f"safety:{system}.next_xid": 1000.0 ** (step + 1)})
    panel = safety(series({"pg.server": [server()], "pg.xids": [xids(("appdb", 1, 0), next_xid=7)]}), history)
    assert (panel.xids_per_s, panel.stop_in_s) == (None, None)


def test_an_age_past_the_threshold_has_reached_it_now() -> None:
    panel = safety(series({"pg.server": [server()], "pg.xids": [xids(("appdb", 300_000_000, 0))]}))
    assert (panel.autovacuum_freeze_in_s, panel.warn_in_s) == (0.0, None)


def test_a_server_that_uses_no_ids_has_no_fill_time() -> None:
    readings = [xids(("appdb", 100, 0), next_xid=7)] * 2
    panel = safety(series({"pg.server": [server()], "pg.xids": readings}, step_s=30))
    assert (panel.xids_per_s, panel.stop_in_s) == (0.0, None)


def test_the_failsafe_never_starts_below_its_minimum() -> None:
    settings = {"autovacuum_freeze_max_age": "1800000000", "vacuum_failsafe_age": "1600000000"}
    panel = safety(series({"pg.server": [server(with_settings=settings)]}))
    assert panel.failsafe_age == 1_890_000_000


def test_disabled_checksums_have_no_failures_to_count() -> None:
    stats = DatabaseStats([of(DatabaseStat, name="appdb", checksum_failures=None)])
    panel = safety(series({"pg.server": [server(with_settings={"data_checksums": "off"})], "pg.databases": [stats]}))
    assert (panel.data_checksums, panel.checksum_failures) == ("off", None)


def test_failures_of_databases_and_shared_objects_are_added() -> None:
    stats = DatabaseStats(
        [
            of(DatabaseStat, name=None, checksum_failures=1, checksum_last_failure=NOW_US),
            of(DatabaseStat, name="appdb", checksum_failures=2, checksum_last_failure=NOW_US - 5_000_000),
        ]
    )
    panel = safety(series({"pg.databases": [stats]}))
    assert (panel.checksum_failures, panel.checksum_last_failure) == (3, "2026-11-20T14:57:29Z")
    assert [row.database for row in panel.checksum_databases] == ["appdb", None]


def test_without_a_connection_the_control_file_shows_the_checksum_state() -> None:
    assert safety(series({"host.control": [of(host.ControlFile, data_checksums=True)]})).data_checksums == "on"


def test_no_horizon_holder_is_distinguished_from_an_unknown_one() -> None:
    assert safety(series({"pg.horizon": [Horizon([])]})).horizon_unknown is False
    assert safety(series({"pg.server": [server()]})).horizon_unknown is True


def test_of_equally_old_horizon_holders_the_first_started_is_named() -> None:
    rows = [
        of(HorizonHolder, kind="backend", who="victim", xid_age=7, since=NOW_US - 1_000_000),
        of(HorizonHolder, kind="slot", who="undated", xid_age=7),
        of(HorizonHolder, kind="backend", who="culprit", xid_age=7, since=NOW_US - 9_000_000),
        of(HorizonHolder, kind="backend", who="unknown", since=NOW_US - 99_000_000),
    ]
    panel = safety(series({"pg.horizon": [Horizon(rows)]}))
    assert [row.who for row in panel.horizon] == ["culprit", "victim", "undated", "unknown"]


def test_horizon_holders_are_listed_oldest_first_with_their_age_by_the_server_clock() -> None:
    horizon = Horizon(
        [
            of(HorizonHolder, kind="backend", who="app", xid_age=5, since=NOW_US - 10_000_000),
            of(HorizonHolder, kind="slot", who="old", xid_age=900),
        ]
    )
    panel = safety(
        picture(
            sample(part("pg.server", server()), part("pg.horizon", horizon), at_s=1, wall_us=NOW_US + 3_600_000_000)
        )
    )
    assert [(row.who, row.since_age_s) for row in panel.horizon] == [("old", None), ("app", 10.0)]
