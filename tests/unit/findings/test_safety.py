"""Pages and transaction ids: told when they are in danger, in the words of the server's version, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.findings import connections, safety
from dba_console.findings.rule import Rule
from dba_console.samples import postgres
from dba_console.samples.findings import Conclusion
from tests.readings import activity, of, sessions
from tests.unit.findings.watching import Watching, database, only, primary

HOUR = 3600.0
DAY = 86_400.0
MILLION = 1_000_000
STOP = 2_144_483_647


def rule(name: str) -> Rule:
    return next(one for one in safety.RULES if one.name == name)


# -- checksums -------------------------------------------------------------------------------------------------------


def checksums() -> Watching:
    watching = Watching(rule("checksum-failure"))
    watching.sees({"pg.server": primary()})
    return watching


def test_a_page_that_fails_while_watched_is_critical_and_its_database_named() -> None:
    watching = checksums()
    assert watching.sees({"pg.databases": database(checksum_failures=0)}) == {}
    found = only(watching.sees({"pg.databases": database(checksum_failures=1, checksum_last_failure=watching.ago(1))}))
    assert found.severity == "critical"
    assert "database appdb" in found.text
    assert found.evidence["checksum_failures_since_start"] == 1


def test_failures_of_long_before_the_agent_are_a_warning() -> None:
    watching = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=watching.ago(3 * DAY))
    found = only(watching.sees({"pg.databases": stats}))
    assert (found.severity, found.evidence["checksum_failures_since_start"]) == ("warning", 0)
    assert "3 reads" in found.text


def test_a_failure_of_an_hour_before_the_agent_is_critical_all_the_same() -> None:
    watching = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=watching.ago(HOUR))
    assert only(watching.sees({"pg.databases": stats})).severity == "critical"


def test_resetting_the_statistics_takes_no_failure_back() -> None:
    watching = checksums()
    failed = database(checksum_failures=2, checksum_last_failure=watching.ago(1))
    watching.sees({"pg.databases": failed})
    for _ in range(20):
        findings = watching.sees({"pg.databases": database(checksum_failures=0)})
    assert only(findings).evidence["checksum_failures"] == 2
    again = database(checksum_failures=1, checksum_last_failure=watching.ago(1))
    for _ in range(6):
        findings = watching.sees({"pg.databases": again})
    assert only(findings).evidence["checksum_failures"] == 3


def test_a_day_after_the_last_failure_it_is_a_warning_still() -> None:
    watching = checksums()
    failed_at = watching.ago(1)
    watching.sees({"pg.databases": database(checksum_failures=1, checksum_last_failure=failed_at)})
    later = database(checksum_failures=1, checksum_last_failure=failed_at)
    assert only(watching.sees({"pg.databases": later}, after_s=25 * HOUR)).severity == "warning"


def test_shared_catalogs_are_named_as_such() -> None:
    watching = checksums()
    stats = database(None, 0, checksum_failures=1, checksum_last_failure=watching.ago(1))
    assert "the shared catalogs" in only(watching.sees({"pg.databases": stats})).text


def test_counters_that_are_not_there_because_checksums_are_off_say_nothing() -> None:
    assert checksums().sees({"pg.databases": database(checksum_failures=None)}) == {}


def test_a_name_of_a_database_drives_no_terminal() -> None:
    watching = checksums()
    stats = database("\x1b[2Jx", checksum_failures=1, checksum_last_failure=watching.ago(1))
    assert "\x1b" not in only(watching.sees({"pg.databases": stats})).text


@pytest.mark.parametrize(("major", "how"), [(16, "pg_checksums --enable"), (19, "pg_enable_data_checksums()")])
def test_checksums_that_are_off_are_told_with_the_way_of_that_version(major: int, how: str) -> None:
    watching = Watching(rule("checksums-off"))
    found = only(watching.sees({"pg.server": primary(major, set={"data_checksums": "off"})}))
    assert found.severity == "info"
    assert how in found.text


@pytest.mark.parametrize("state", ["on", "inprogress-on"])
def test_checksums_that_are_on_or_on_their_way_are_not_told(state: str) -> None:
    assert Watching(rule("checksums-off")).sees({"pg.server": primary(19, set={"data_checksums": state})}) == {}


# -- transaction ids -------------------------------------------------------------------------------------------------


def xids(age: int, *, next_xid: int | None = None, mxid_age: int = 0, name: str = "appdb") -> postgres.Xids:
    rows = [postgres.DatabaseXid("postgres", 1000, 0), postgres.DatabaseXid(name, age, mxid_age)]
    return of(postgres.Xids, next_xid=next_xid, databases=rows)


def aged(age: int, major: int = 16, **fields: Any) -> dict[str, Conclusion]:
    """The findings of a first look at a cluster of that age."""
    watching = Watching(rule("xid-wraparound"))
    return watching.sees({"pg.server": primary(major, **fields), "pg.xids": xids(age)})


@pytest.mark.parametrize("age", [0, 200 * MILLION, 800 * MILLION])
def test_a_cluster_whose_vacuum_keeps_up_has_no_finding(age: int) -> None:
    assert aged(age) == {}


def test_an_age_at_two_fifths_of_the_stop_is_a_warning_with_what_is_left() -> None:
    found = only(aged(900 * MILLION))
    assert found.severity == "warning"
    assert found.text == (
        "1,244 M transaction ids are left before PostgreSQL 16 gives out no more: database appdb is 900 M ids old"
    )


def test_past_the_failsafe_it_is_critical_at_first_sight() -> None:
    found = only(aged(1_700 * MILLION))
    assert found.severity == "critical"
    assert "failsafe" in found.text
    assert found.runbook == "xid-wraparound"


def test_a_late_autovacuum_is_waited_for_but_not_for_ever() -> None:
    late = {"autovacuum_freeze_max_age": "2000000000"}
    assert aged(1_200 * MILLION, set=late) == {}
    assert only(aged(1_350 * MILLION, set=late)).severity == "warning"


@pytest.mark.parametrize(("major", "warn", "stop"), [(13, 11, 1), (16, 40, 3), (19, 100, 3)])
def test_each_version_has_its_own_thresholds(major: int, warn: int, stop: int) -> None:
    evidence = only(aged(1_700 * MILLION, major)).evidence
    assert evidence["xid_warn_age"] == 2_147_483_647 - warn * MILLION
    assert evidence["xid_stop_age"] == 2_147_483_647 - stop * MILLION


@pytest.mark.parametrize(("major", "words"), [(13, "single-user mode"), (16, "No single-user mode"), (17, "not FULL")])
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
def test_what_the_server_says_is_told_in_the_words_of_its_version(major: int, age: int, says: str | None) -> None:
    assert only(aged(age, major)).evidence["server_says"] == says


def test_while_the_server_is_away_what_was_seen_stays_for_ten_minutes() -> None:
    watching = Watching(rule("xid-wraparound"))
    watching.sees({"pg.server": primary(), "pg.xids": xids(900 * MILLION)})
    for _ in range(9):
        assert set(watching.loses("pg.xids", after_s=60.0)) == {"xid-wraparound"}
    watching.loses("pg.xids", after_s=120.0)
    assert watching.loses("pg.xids", after_s=20.0) == {}


def test_where_the_server_has_stopped_that_is_what_is_said() -> None:
    assert only(aged(STOP + 10)).text.startswith("PostgreSQL 16 gives out no transaction ids any more")


def test_template0_counts_and_is_said_to_be_closed() -> None:
    watching = Watching(rule("xid-wraparound"))
    readings = {"pg.server": primary(closed=("template0",)), "pg.xids": xids(900 * MILLION, name="template0")}
    found = only(watching.sees(readings))
    assert "database template0, which allows no connections," in found.text
    assert "ALLOW_CONNECTIONS" in (found.advice or "")


def test_the_burn_rate_gives_the_dates() -> None:
    watching = Watching(rule("xid-wraparound"))
    watching.sees({"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)})
    for step in range(1, 3):
        used = step * 30_000
        readings = {"pg.xids": xids(900 * MILLION + used, next_xid=10**10 + used)}
        found = only(watching.sees(readings, after_s=30.0))
    assert found.evidence["xids_per_s"] == pytest.approx(1000)
    assert found.evidence["stop_in_s"] == pytest.approx((STOP - 900 * MILLION) / 1000, rel=0.001)
    assert "in 14d" in found.text and "at 1,000 a second; it warns in 13d" in found.text


def test_what_is_used_up_within_a_day_is_critical() -> None:
    watching = Watching(rule("xid-wraparound"))
    watching.sees({"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)})
    later = {"pg.xids": xids(901 * MILLION, next_xid=10**10 + MILLION)}
    assert only(watching.sees(later, after_s=30.0)).severity == "critical"


def test_a_burst_on_a_young_cluster_is_no_finding_however_fast() -> None:
    watching = Watching(rule("xid-wraparound"))
    watching.sees({"pg.server": primary(), "pg.xids": xids(100 * MILLION, next_xid=10**10)})
    later = {"pg.xids": xids(103 * MILLION, next_xid=10**10 + 3 * MILLION)}
    assert watching.sees(later, after_s=30.0) == {}


def test_an_idle_server_reaches_nothing_within_a_year() -> None:
    watching = Watching(rule("xid-wraparound"))
    for _ in range(3):
        readings = {"pg.server": primary(), "pg.xids": xids(900 * MILLION, next_xid=10**10)}
        found = only(watching.sees(readings, after_s=30.0))
    assert "(at the present rate not within a year)" in found.text


def test_a_server_of_unknown_version_is_not_judged() -> None:
    assert Watching(rule("xid-wraparound")).sees({"pg.xids": xids(2_000 * MILLION)}) == {}


def test_on_a_standby_the_advice_is_for_its_primary() -> None:
    assert (only(aged(900 * MILLION, in_recovery=True)).advice or "").startswith("On its primary")


def test_multixacts_have_a_finding_of_their_own() -> None:
    watching = Watching(rule("xid-wraparound"), rule("mxid-wraparound"))
    found = only(watching.sees({"pg.server": primary(), "pg.xids": xids(10 * MILLION, mxid_age=1_000 * MILLION)}))
    assert found.id == "mxid-wraparound"
    assert "1,144 M multixact ids are left" in found.text


# -- horizon ---------------------------------------------------------------------------------------------------------


def held(*rows: postgres.Holder) -> postgres.Horizon:
    return postgres.Horizon(list(rows))


def horizon(watching: Watching, *rows: postgres.Holder, **fields: Any) -> dict[str, Conclusion]:
    activities = sessions(now_us=0)
    return watching.sees({"pg.server": primary(**fields), "pg.activity": activities, "pg.horizon": held(*rows)})


def watching_horizon() -> Watching:
    return Watching(rule("horizon-held"), rule("xid-wraparound"))


@pytest.mark.parametrize(
    ("kind", "state", "named", "advice"),
    [
        ("backend", "idle in transaction", "session 77 (x, idle in transaction)", "pg_terminate_backend(77)"),
        ("prepared", None, "prepared transaction 'x'", "ROLLBACK PREPARED"),
        ("slot", "inactive", "inactive replication slot x", "Drop the slot"),
        ("slot", "active", "active replication slot x", "reader of this slot"),
        ("standby", "streaming", "standby x (hot_standby_feedback)", "hot_standby_feedback"),
    ],
)
def test_each_kind_of_holder_is_named_with_what_to_do(kind: str, state: str | None, named: str, advice: str) -> None:
    watching = watching_horizon()
    row = postgres.Holder(kind, "x", 77, 81 * MILLION, watching.ago(HOUR), "appdb", state)
    found = only(horizon(watching, row))
    assert named in found.text
    assert advice in (found.advice or "")
    assert "81 M ids" in found.text


def test_the_one_that_holds_most_is_named_first() -> None:
    watching = watching_horizon()
    small = postgres.Holder("backend", "app", 5, 60 * MILLION, watching.ago(DAY), "appdb", "active")
    large = postgres.Holder("slot", "old_sub", None, 90 * MILLION, None, "appdb", "inactive")
    found = only(horizon(watching, small, large))
    assert found.evidence["holder"] == "old_sub"
    assert "and 1 more with it" in found.text


def test_a_long_transaction_is_told_only_where_many_ids_were_used_meanwhile() -> None:
    watching = watching_horizon()
    idle = postgres.Holder("backend", "app", 5, 3_000, watching.ago(2 * HOUR), "appdb", "active")
    assert horizon(watching, idle) == {}
    busy = postgres.Holder("backend", "app", 5, 3 * MILLION, watching.ago(2 * HOUR), "appdb", "active")
    assert only(horizon(watching, busy)).severity == "warning"


def test_a_prepared_transaction_that_was_forgotten_is_told_whatever_its_age_in_ids() -> None:
    watching = watching_horizon()
    row = postgres.Holder("prepared", "tx-17", None, 3, watching.ago(2 * HOUR), "appdb", "app")
    found = only(horizon(watching, row))
    assert found.since_us == watching.server_us - int(2 * HOUR * 1e6)


def test_a_dump_in_its_usual_time_is_told_and_not_warned_of() -> None:
    watching = watching_horizon()
    row = postgres.Holder("backend", "pg_dump", 5, 3 * MILLION, watching.ago(2 * HOUR), "appdb", "active")
    assert only(horizon(watching, row)).severity == "info"


def test_ages_this_role_may_not_see_say_nothing() -> None:
    watching = watching_horizon()
    assert horizon(watching, postgres.Holder("backend", "app", 5, None, None, None, None)) == {}


def test_what_a_standby_holds_is_its_primarys_to_tell() -> None:
    watching = watching_horizon()
    row = postgres.Holder("backend", "app", 5, 81 * MILLION, watching.ago(HOUR), "appdb", "active")
    assert horizon(watching, row, in_recovery=True) == {}


def test_ids_that_run_out_because_something_holds_the_horizon_are_one_finding() -> None:
    watching = watching_horizon()
    row = postgres.Holder("slot", "old_sub", None, 1_690 * MILLION, None, "appdb", "inactive")
    readings = {"pg.server": primary(), "pg.horizon": held(row), "pg.xids": xids(1_700 * MILLION)}
    found = only(watching.sees(readings))
    assert (found.id, found.chain) == ("xid-wraparound", ["xid-wraparound", "horizon-held"])
    assert found.severity == "critical"
    assert "is 1,700 M ids old because inactive replication slot old_sub holds" in found.text
    assert found.runbook == "xid-wraparound"
    watching.sees(readings)
    assert (found.advice or "").startswith("First inactive replication slot old_sub. Drop the slot")
    assert "Then VACUUM as superuser in appdb" in (found.advice or "")


def test_a_session_that_holds_it_idle_in_transaction_is_one_finding_and_not_two() -> None:
    idle = next(one for one in connections.RULES if one.name == "idle-in-transaction")
    watching = Watching(rule("horizon-held"), idle)
    row = postgres.Holder("backend", "app", 77, 3 * MILLION, watching.ago(2 * HOUR), "appdb", "idle in transaction")
    left = activity(
        77, "idle in transaction", xact_start=watching.ago(2 * HOUR), state_change=watching.ago(HOUR), backend_xmin=5
    )
    readings = {"pg.server": primary(), "pg.activity": sessions(left, now_us=0), "pg.horizon": held(row)}
    for _ in range(3):
        findings = watching.sees(readings)
    found = only(findings)
    assert found.chain[0] == "horizon-held" and found.chain[1].startswith("idle-in-transaction")
    assert "held back by 3.0 M ids because orders-api (app, pid 77) is idle in transaction" in found.text


def test_a_holder_that_is_young_beside_the_age_is_not_its_cause() -> None:
    watching = watching_horizon()
    row = postgres.Holder("slot", "old_sub", None, 81 * MILLION, None, "appdb", "inactive")
    readings = {"pg.server": primary(), "pg.horizon": held(row), "pg.xids": xids(1_700 * MILLION)}
    assert set(watching.sees(readings)) == {"horizon-held", "xid-wraparound"}


# -- vacuums against wraparound --------------------------------------------------------------------------------------

QUERY = "autovacuum: VACUUM public.orders (to prevent wraparound)"


def vacuuming(watching: Watching, query: str = QUERY, *, waits_s: float | None = None) -> dict[str, Conclusion]:
    """A vacuum that is at work for five seconds, with a session that has waited for its lock for so long."""
    for _ in range(5):
        worker = activity(
            900, "active", backend_type="autovacuum worker", query=query, xact_start=watching.ago(60), user=None
        )
        waiter = activity(901, "active", wait_event_type="Lock" if waits_s is not None else None)
        waiting = postgres.Lock(
            901, [900], "relation", "AccessExclusiveLock", "public.orders", watching.ago(waits_s or 0)
        )
        findings = watching.sees(
            {
                "pg.activity": sessions(worker, waiter, now_us=0),
                "pg.locks": postgres.Locks([waiting] if waits_s is not None else [], []),
                "pg.progress": postgres.Operations(
                    [
                        postgres.Operation(
                            "vacuum", 900, "appdb", "public.orders", "scanning heap", 41, 100, "blocks", {}
                        )
                    ]
                ),
            }
        )
    return findings


def test_a_vacuum_against_wraparound_is_told_with_how_far_it_is() -> None:
    found = only(vacuuming(Watching(rule("wraparound-vacuum"))))
    assert found.severity == "info"
    assert found.text == "Autovacuum prevents wraparound of public.orders (scanning heap 41%)"


def test_one_that_others_wait_behind_is_a_warning() -> None:
    found = only(vacuuming(Watching(rule("wraparound-vacuum")), waits_s=30.0))
    assert found.severity == "warning"
    assert "1 session waits behind it" in found.text


def test_one_that_others_have_only_begun_to_wait_behind_is_not() -> None:
    assert only(vacuuming(Watching(rule("wraparound-vacuum")), waits_s=2.0)).severity == "info"


@pytest.mark.parametrize("query", ["autovacuum: VACUUM public.orders", "<insufficient privilege>"])
def test_any_other_vacuum_is_not_told(query: str) -> None:
    assert vacuuming(Watching(rule("wraparound-vacuum")), query) == {}
