"""Transaction ids that run out: reported with the remaining number, in the server's terms; running vacuums."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.safety.readings import DatabaseXid, Horizon, HorizonHolder, Xids
from dba_console.watch.samples import postgres
from dba_console.watch.samples.findings import FindingNow
from tests.readings import activity, of, sessions
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary

MILLION = 1_000_000
STOP = 2_144_483_647


def xids(age: int, *, next_xid: int | None = None, mxid_age: int = 0, name: str = "appdb") -> Xids:
    rows = [DatabaseXid("postgres", 1000, 0), DatabaseXid(name, age, mxid_age)]
    return of(Xids, next_xid=next_xid, databases=rows)


def aged(age: int, major: int = 16, **fields: Any) -> dict[str, FindingNow]:
    """The findings of a first tick on a cluster of that age."""
    ticks = ReadingTicks("xid-wraparound")
    return ticks.tick({"pg.server": primary(major, **fields), "pg.xids": xids(age)})


@pytest.mark.parametrize("age", [0, 200 * MILLION, 800 * MILLION])
def test_a_cluster_whose_vacuum_keeps_up_has_no_finding(age: int) -> None:
    assert aged(age) == {}


def test_an_age_at_two_fifths_of_the_stop_is_a_warning_with_the_remaining_ids() -> None:
    found = only(aged(900 * MILLION))
    assert found.severity == "warning"
    assert found.text == (
        "1,244 M transaction ids left until PostgreSQL 16 stops assigning them: database appdb is 900 M ids old"
    )


def test_past_the_failsafe_it_is_critical_at_the_first_reading() -> None:
    found = only(aged(1_700 * MILLION))
    assert found.severity == "critical"
    assert "failsafe" in found.text
    assert found.runbook == "xid-wraparound"


def test_a_late_autovacuum_is_waited_for_but_not_indefinitely() -> None:
    late = {"autovacuum_freeze_max_age": "2000000000"}
    assert aged(1_200 * MILLION, set=late) == {}
    assert only(aged(1_350 * MILLION, set=late)).severity == "warning"


@pytest.mark.parametrize(("major", "warn", "stop"), [(13, 11, 1), (16, 40, 3), (19, 100, 3)])
def test_each_version_has_its_own_thresholds(major: int, warn: int, stop: int) -> None:
    evidence = only(aged(1_700 * MILLION, major)).evidence
    assert evidence["xid_warn_age"] == 2_147_483_647 - warn * MILLION
    assert evidence["xid_stop_age"] == 2_147_483_647 - stop * MILLION


@pytest.mark.parametrize(
    ("major", "words"), [(13, "single-user mode"), (16, "Do not use single-user mode"), (17, "not FULL")]
)
def test_the_advice_is_that_of_the_version(major: int, words: str) -> None:
    advice = only(aged(1_700 * MILLION, major)).advice
    assert advice is not None and words in advice
    assert (major < 17) == ("single-user" in advice)


@pytest.mark.parametrize(
    ("major", "age", "says"),
    [
        (16, 2_000 * MILLION, None),
        (16, 2_120 * MILLION, 'database "appdb" must be vacuumed within 27483647 transactions'),
        (16, STOP + 1, 'database is not accepting commands to avoid wraparound data loss in database "appdb"'),
        (
            17,
            STOP + 1,
            "database is not accepting commands that assign new transaction IDs "
            'to avoid wraparound data loss in database "appdb"',
        ),
        (19, 2_060 * MILLION, 'database "appdb" must be vacuumed within 87483647 transactions'),
    ],
)
def test_server_messages_are_quoted_in_the_wording_of_their_version(major: int, age: int, says: str | None) -> None:
    assert only(aged(age, major)).evidence["server_says"] == says


def test_while_the_server_is_down_the_last_state_is_kept_for_ten_minutes() -> None:
    ticks = ReadingTicks("xid-wraparound")
    ticks.tick({"pg.server": primary(), "pg.xids": xids(900 * MILLION)})
    for _ in range(9):
        assert set(ticks.tick_without("pg.xids", after_s=60.0)) == {"xid-wraparound"}
    ticks.tick_without("pg.xids", after_s=120.0)
    assert ticks.tick_without("pg.xids", after_s=20.0) == {}


def test_if_the_server_has_stopped_accepting_commands_that_is_reported() -> None:
    assert only(aged(STOP + 10)).text.startswith("PostgreSQL 16 no longer assigns transaction ids")


def test_template0_counts_and_is_reported_as_closed() -> None:
    ticks = ReadingTicks("xid-wraparound")
    readings = {"pg.server": primary(closed=("template0",)), "pg.xids": xids(900 * MILLION, name="template0")}
    found = only(ticks.tick(readings))
    assert "database template0, which allows no connections," in found.text
    assert "Leave template0 to autovacuum" in (found.advice or "")
    assert "ALTER" not in (found.advice or "")


def test_the_xid_rate_gives_the_times() -> None:
    ticks = ReadingTicks("xid-wraparound")
    ticks.tick({"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)})
    for step in range(1, 3):
        used = step * 30_000
        readings = {"pg.xids": xids(900 * MILLION + used, next_xid=10**10 + used)}
        found = only(ticks.tick(readings, after_s=30.0))
    assert found.evidence["xids_per_s"] == pytest.approx(1000)
    assert found.evidence["stop_in_s"] == pytest.approx((STOP - 900 * MILLION) / 1000, rel=0.001)
    assert "in 14d" in found.text and "at 1,000 a second; it warns in 13d" in found.text


def test_ids_used_up_within_a_day_are_critical() -> None:
    ticks = ReadingTicks("xid-wraparound")
    ticks.tick({"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)})
    later = {"pg.xids": xids(901 * MILLION, next_xid=10**10 + MILLION)}
    assert only(ticks.tick(later, after_s=30.0)).severity == "critical"


def test_a_burst_on_a_young_cluster_is_not_a_finding_however_fast() -> None:
    ticks = ReadingTicks("xid-wraparound")
    ticks.tick({"pg.server": primary(), "pg.xids": xids(100 * MILLION, next_xid=10**10)})
    later = {"pg.xids": xids(103 * MILLION, next_xid=10**10 + 3 * MILLION)}
    assert ticks.tick(later, after_s=30.0) == {}


def test_an_idle_server_reaches_no_limit_within_a_year() -> None:
    ticks = ReadingTicks("xid-wraparound")
    for _ in range(3):
        readings = {"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)}
        found = only(ticks.tick(readings, after_s=30.0))
    assert "(not within a year at the current rate)" in found.text


def test_a_server_of_unknown_version_is_not_evaluated() -> None:
    assert ReadingTicks("xid-wraparound").tick({"pg.xids": xids(2_000 * MILLION)}) == {}


@pytest.mark.parametrize(
    ("kind", "open_s", "first"),
    [("backend", 7200, True), ("prepared", 7200, True), ("backend", 60, False), ("slot", 7200, False)],
)
def test_the_oldest_transaction_may_hold_multixact_ids_and_a_slot_does_not(
    kind: str, open_s: float, first: bool
) -> None:
    ticks = ReadingTicks("mxid-wraparound")
    held = HorizonHolder(kind, "x", 77, 5_000, ticks.ago(open_s), "appdb", "idle in transaction")
    readings = {"pg.horizon": Horizon([held]), "pg.xids": xids(0, mxid_age=1_700 * MILLION)}
    found = only(ticks.tick({"pg.server": primary(), "pg.activity": sessions(now_us=0), **readings}))
    assert ("First" in (found.advice or "")) is first
    assert "VACUUM as superuser in appdb" in (found.advice or "")


def test_on_a_standby_the_advice_refers_to_its_primary() -> None:
    assert (only(aged(900 * MILLION, in_recovery=True)).advice or "").startswith("On its primary")


def test_multixacts_have_a_finding_of_their_own() -> None:
    ticks = ReadingTicks("xid-wraparound", "mxid-wraparound")
    found = only(ticks.tick({"pg.server": primary(), "pg.xids": xids(10 * MILLION, mxid_age=1_000 * MILLION)}))
    assert found.id == "mxid-wraparound"
    assert "1,144 M multixact ids left" in found.text


# -- vacuums against wraparound --------------------------------------------------------------------------------------

QUERY = "autovacuum: VACUUM public.orders (to prevent wraparound)"


def vacuuming(ticks: ReadingTicks, query: str = QUERY, *, waits_s: float | None = None) -> dict[str, FindingNow]:
    """A vacuum that is at work for five seconds, with a session that has waited for its lock for so long."""
    for _ in range(5):
        worker = activity(
            900, "active", backend_type="autovacuum worker", query=query, xact_start=ticks.ago(60), user=None
        )
        waiter = activity(901, "active", wait_event_type="Lock" if waits_s is not None else None)
        waiting = postgres.LockWaiter(
            901, [900], "relation", "AccessExclusiveLock", "public.orders", ticks.ago(waits_s or 0)
        )
        findings = ticks.tick(
            {
                "pg.activity": sessions(worker, waiter, now_us=0),
                "pg.locks": postgres.Locks([waiting] if waits_s is not None else [], []),
                "pg.progress": Operations(
                    [Operation("vacuum", 900, "appdb", "public.orders", "scanning heap", 41, 100, "blocks", {})]
                ),
            }
        )
    return findings


def test_an_anti_wraparound_vacuum_is_reported_with_its_progress() -> None:
    found = only(vacuuming(ReadingTicks("wraparound-vacuum")))
    assert found.severity == "info"
    assert found.text == "Autovacuum prevents wraparound of public.orders (scanning heap 41%)"


def test_a_vacuum_that_blocks_others_is_a_warning() -> None:
    found = only(vacuuming(ReadingTicks("wraparound-vacuum"), waits_s=30.0))
    assert found.severity == "warning"
    assert "1 session waits for it" in found.text


def test_a_vacuum_that_only_just_blocks_others_is_not_a_warning() -> None:
    assert only(vacuuming(ReadingTicks("wraparound-vacuum"), waits_s=2.0)).severity == "info"


@pytest.mark.parametrize("query", ["autovacuum: VACUUM public.orders", "<insufficient privilege>"])
def test_any_other_vacuum_is_not_reported(query: str) -> None:
    assert vacuuming(ReadingTicks("wraparound-vacuum"), query) == {}
