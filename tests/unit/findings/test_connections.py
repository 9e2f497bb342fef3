"""Connections: near the limit, full by a date, stormed by one application, near a limit of their own."""

from __future__ import annotations

from typing import Any

from dba_console.findings.connections import RULES
from dba_console.limits import Limits
from dba_console.limits.connections import ConnectionLimits
from dba_console.samples import host, postgres
from tests.readings import of
from tests.unit.findings.serving import Serving


def serving(used: int, limits: Limits | None = None, **fields: Any) -> Serving:
    """A server with so many idle sessions of one pool, watched for two quiet seconds."""
    made = Serving(RULES, limits, **fields)
    made.rows = made.pool(used, application="shop-web-pool")
    made.ticks(2)
    return made


def storm(server: Serving, per_s: int, seconds: int, **fields: Any) -> None:
    """So many new sessions a second of one application, each second a tick."""
    for second in range(seconds):
        made = {"application": "invoice-export", "user": "shop_jobs", "client": "[local]", **fields}
        pids = 10_000 + len(server.rows) + second
        new = server.pool(per_s, pids, backend_start=server.ago(0.5), state_change=server.ago(0.2), **made)
        server.rows = server.rows + new
        server.tick()


# -- near the limit


def test_connections_near_the_usable_limit_are_told_with_who_holds_them() -> None:
    row = serving(215).only_one("connections-filling")
    assert row.severity == "warning"
    assert row.text == (
        "Connections fill (215 of 247 usable, 87%); 215 are idle sessions of shop-web-pool, oldest idle 10m"
    )
    assert (row.evidence["used"], row.evidence["usable"], row.evidence["holder_count"]) == (215, 247, 215)
    assert row.runbook == "connection-storm"


def test_the_practice_load_of_four_fifths_is_no_finding() -> None:
    server = serving(201)
    server.ticks(60)
    assert server.raised == []


def test_nearly_all_connections_taken_are_critical() -> None:
    assert serving(236).only_one("connections-filling").severity == "critical"


def test_all_connections_taken_says_so() -> None:
    assert serving(247).only_one("connections-filling").text.startswith("Connections are used up (247 of 247 usable")


def test_reserved_connections_are_not_usable() -> None:
    server = serving(205, with_settings={"reserved_connections": "20"}, version_num=160004)
    assert "205 of 227 usable" in server.only_one("connections-filling").text


def test_filling_clears_only_well_below_the_limit_that_raised_it() -> None:
    server = serving(215)
    server.rows = server.rows[:203]
    server.ticks(60)
    server.only_one("connections-filling")
    server.rows = server.rows[:190]
    assert server.ticks(30) == []


def test_a_count_that_swings_around_a_limit_changes_its_severity_once() -> None:
    server = serving(230)
    for _ in range(20):
        server.rows = server.pool(236)
        server.tick()
        server.rows = server.pool(232)
        server.tick()
    assert [change.kind for change in server.changes] == ["raised", "changed"]


def test_sessions_that_could_not_be_read_do_not_clear_what_is_open() -> None:
    server = serving(240)
    for _ in range(50):
        server.unread()
    server.only_one("connections-filling")


def test_what_was_not_read_for_minutes_is_not_claimed_any_more() -> None:
    server = serving(240)
    for _ in range(100):
        server.unread()
    assert server.open == []


def test_without_the_settings_nothing_is_concluded() -> None:
    server = Serving(RULES)
    server.extra = {}
    server.rows = server.pool(240)
    server.ticks(5)
    assert server.raised == []


def test_a_lost_connection_is_not_claimed_to_be_full_for_long() -> None:
    server = serving(240)
    for _ in range(40):
        server.unread(status="error")
    assert server.open == []


def test_states_that_are_hidden_are_not_claimed_to_be_idle() -> None:
    server = Serving(RULES)
    server.rows = server.pool(215, state=None, state_change=None, backend_start=None, query="<insufficient privilege>")
    server.ticks(3)
    assert server.only_one("connections-filling").text.endswith("; 215 are sessions of orders-api")


# -- by date


def grow(server: Serving, per_s: float, seconds: int) -> None:
    start = len(server.rows)
    for second in range(1, seconds + 1):
        more = int(per_s * second)
        server.rows = [*server.rows[:start], *server.pool(more, 5000, backend_start=server.ago(60), application="api")]
        server.tick()


def test_a_steady_growth_is_told_with_its_rate_and_its_date() -> None:
    server = serving(120)
    grow(server, 0.5, 60)
    row = server.only_one("connections-filling")
    assert row.severity == "warning"
    assert "+30/min, full in " in row.text
    assert 20 <= row.evidence["growth_per_min"] <= 40
    assert 150 <= row.evidence["full_in_s"] <= 300


def test_a_growth_that_fills_the_server_within_the_minute_is_critical_below_nine_tenths() -> None:
    server = serving(120)
    grow(server, 1.3, 68)
    row = server.only_one("connections-filling")
    assert row.severity == "critical"
    assert row.evidence["used_pct"] < 90


def test_growth_on_a_server_that_is_mostly_empty_tells_no_date() -> None:
    server = serving(20)
    grow(server, 0.6, 90)
    assert server.raised == []


def test_a_pool_that_grew_once_and_stays_tells_no_date() -> None:
    server = serving(120)
    server.rows = [*server.rows, *server.pool(25, 5000, backend_start=server.ago(1), application="api")]
    server.ticks(120)
    assert server.raised == []


def test_a_pool_that_fills_half_the_server_within_half_a_minute_is_never_critical() -> None:
    server = serving(20)
    grow(server, 5, 34)
    server.ticks(200)
    assert "critical" not in {change.finding.severity for change in server.changes}


def test_two_steps_are_no_growth_with_a_date() -> None:
    server = serving(13)
    server.ticks(20)
    for used in (109, 193):
        server.rows = server.pool(used, application="shop-pool")
        server.tick()
    server.ticks(120)
    assert server.raised == []


def test_a_growth_that_stopped_tells_no_date_any_more() -> None:
    server = serving(120)
    grow(server, 0.5, 60)
    server.only_one("connections-filling")
    server.ticks(60)
    assert server.open == []


# -- blind


def titles(count: int) -> host.Titles:
    rows = [
        of(host.Title, pid=1000 + at, kind="client backend", user="shop_web", database="shop", state="idle")
        for at in range(count)
    ]
    return of(host.Titles, postmaster=900, rows=rows, update_process_title=True)


def test_blind_the_house_is_full_by_process_titles_and_says_by_which_user() -> None:
    server = Serving(RULES)
    server.tick()
    for _ in range(4):
        server.only(**{"host.titles": titles(247)})
    row = server.only_one("connections-filling")
    assert row.severity == "critical"
    assert "247 are idle sessions of user shop_web" in row.text
    assert row.evidence["source"] == "process_titles"


def test_blind_because_nobody_is_let_in_is_critical_whatever_the_titles_say() -> None:
    server = Serving(RULES)
    server.tick()
    refused = "connection to server failed: FATAL: sorry, too many clients already"
    for _ in range(3):
        server.only(**{"host.titles": titles(220)})
    assert server.only_one("connections-filling").severity == "warning"
    for _ in range(3):
        server.refused(refused, **{"host.titles": titles(220)})
    assert server.only_one("connections-filling").severity == "critical"


def test_going_blind_is_no_storm() -> None:
    server = serving(100)
    for _ in range(4):
        server.only(**{"host.titles": titles(190)})
    assert server.raised == []


# -- storms


def test_a_storm_is_told_in_its_third_second_with_who_and_from_where() -> None:
    server = serving(80)
    storm(server, 40, 2)
    row = server.only_one("connection-storm")
    assert row.severity == "warning"
    assert row.text.startswith("invoice-export (user shop_jobs) opened 80 connections in 1.0s from [local], 80 idle")
    assert row.evidence["opened"] == 80
    assert row.evidence["clients"] == ["[local]"]
    assert row.evidence["application"] == "invoice-export"


def test_a_storm_that_fills_the_house_is_one_finding_named_after_the_storm() -> None:
    server = serving(80)
    storm(server, 40, 4)
    server.ticks(1)
    row = server.only_one("connection-storm")
    assert row.severity == "critical"
    assert row.chain == ["connections-filling", "connection-storm"]
    assert row.text.startswith("Connections fill (240 of 247 usable, 97%): invoice-export (user shop_jobs) opened 160")


def test_a_storm_is_since_its_first_connection() -> None:
    server = serving(80)
    began = server.ago(0.5)
    storm(server, 40, 3)
    assert abs(server.only_one("connection-storm").since_us - began) < 1_000_000


def test_a_storm_stays_while_it_holds_what_it_opened_and_the_house_is_full() -> None:
    server = serving(80)
    storm(server, 40, 4)
    server.ticks(300)
    assert server.only_one("connection-storm").chain == ["connections-filling", "connection-storm"]
    server.rows = server.rows[:100]
    assert server.ticks(60) == []


def test_a_storm_is_over_when_others_took_the_places_it_left() -> None:
    server = serving(80)
    storm(server, 40, 4)
    server.ticks(20)
    server.rows = [*server.pool(80), *server.pool(160, 5000, application="shop-web")]
    server.ticks(40)
    server.only_one("connections-filling")


def test_a_storm_of_many_names_and_one_user_is_told_by_the_user() -> None:
    server = serving(80)
    for second in range(3):
        for number in range(30):
            name = f"worker-{second}-{number}"
            pid = 20_000 + second * 100 + number
            server.rows += server.pool(1, pid, backend_start=server.ago(0.5), application=name, user="batch")
        server.tick()
    assert server.only_one("connection-storm").text.startswith("user batch opened 60 connections")


def test_a_pool_of_twenty_is_no_storm() -> None:
    server = serving(80)
    storm(server, 20, 1)
    server.ticks(20)
    assert server.raised == []


def test_growth_of_many_applications_at_once_is_no_storm_of_one() -> None:
    server = serving(80)
    for number in range(12):
        pid = 20_000 + number * 10
        name = f"app-{number}"
        server.rows += server.pool(5, pid, backend_start=server.ago(0.5), application=name, user=name)
    server.ticks(3)
    assert server.raised == []


def test_sessions_that_come_and_go_are_no_storm() -> None:
    server = serving(80)
    for second in range(20):
        new = server.pool(40, 20_000 + 40 * second, backend_start=server.ago(0.5), application="cgi")
        server.rows = [*server.rows[:80], *new]
        server.tick()
        if second == 0:
            assert server.raised == []
    assert server.raised == []


def test_the_first_reading_of_a_full_pool_is_no_storm() -> None:
    server = Serving(RULES)
    server.rows = server.pool(180, backend_start=server.ago(3), application="shop-web")
    server.ticks(20)
    assert server.raised == []


def test_a_pool_that_comes_back_after_a_restart_is_told_and_alarms_nobody() -> None:
    server = serving(180)
    started = server.ago(1)
    server.extra = dict(Serving(RULES, start_us=started).extra)
    server.rows = []
    server.tick()
    storm(server, 60, 3, application="shop-web")
    row = server.only_one("connection-storm")
    assert row.severity == "info"
    assert "after the server was started again" in row.text


def test_the_figures_of_a_storm_are_configured() -> None:
    limits = Limits(connections=ConnectionLimits(storm_least=10, storm_pct=4.0))
    server = serving(80, limits)
    storm(server, 12, 1)
    server.only_one("connection-storm")


# -- limits of roles and databases


def roles(limit: int, *, superuser: bool = False) -> list[postgres.Role]:
    return [postgres.Role("app", limit, superuser)]


def test_a_role_near_its_connection_limit_is_told_by_name() -> None:
    server = serving(55, roles=roles(60))
    server.ticks(3)
    row = server.only_one("connection-limit:role app")
    assert row.text == "Connections of role app are near its CONNECTION LIMIT (55 of 60)"


def test_a_database_at_its_connection_limit_says_what_that_means() -> None:
    database = of(postgres.Database, oid=5, name="appdb", connection_limit=55)
    server = serving(55, databases=[database])
    server.ticks(3)
    row = server.only_one("connection-limit:database appdb")
    assert row.text.endswith("(55 of 55); further ones are refused")
    assert row.severity == "warning"


def test_limits_that_bind_nobody_are_not_told() -> None:
    assert serving(55, roles=roles(-1)).ticks(4) == []
    assert serving(55, roles=roles(0)).ticks(4) == []
    assert serving(55, roles=roles(55, superuser=True)).ticks(4) == []
    assert serving(2, roles=roles(2)).ticks(4) == [], "a limit that small is meant to be reached"


def test_walsenders_have_a_limit_of_their_own() -> None:
    server = serving(20, with_settings={"max_wal_senders": "10"})
    server.rows += server.pool(10, 7000, backend_type="walsender", user="replicator", database=None)
    server.ticks(4)
    assert server.only_one("connection-limit:server walsenders").evidence["used"] == 10


# -- transactions left open


def left_open(server: Serving, idle_s: float, **fields: Any) -> None:
    """One session that went idle in a transaction so long ago."""
    made = {
        "application": "price-correction", "user": "ann", "xact_start": server.ago(idle_s),
        "state_change": server.ago(idle_s), "query": "update prices\n set net = 1;", "backend_xid": 900, **fields,
    }  # fmt: skip
    server.rows += server.pool(1, 77, "idle in transaction", **made)


def test_a_transaction_left_open_is_told_after_a_minute_and_a_warning_after_five() -> None:
    server = serving(20)
    left_open(server, 50)
    assert server.ticks(5) == []
    server.ticks(10)
    row = server.only_one("idle-in-transaction")
    assert row.severity == "info"
    assert row.text.startswith("price-correction (ann, pid 77) is idle in transaction for 1m")
    assert row.text.endswith("last statement: update prices set net = 1")
    server.ticks(260)
    assert server.only_one("idle-in-transaction").severity == "warning"
    server.ticks(4000)
    assert server.only_one("idle-in-transaction").severity == "warning", "it holds nobody up"


def test_a_transaction_left_open_that_only_read_is_told_late() -> None:
    server = serving(20)
    left_open(server, 300, backend_xid=None)
    assert server.ticks(5) == []
    server.ticks(610)
    assert server.only_one("idle-in-transaction").severity == "info"


def test_a_transaction_left_open_is_since_it_began() -> None:
    server = serving(20)
    began = server.ago(120)
    left_open(server, 90, xact_start=began)
    server.tick()
    assert abs(server.only_one("idle-in-transaction").since_us - began) < 1_000_000


def test_a_transaction_that_keeps_vacuum_from_freezing_is_critical() -> None:
    server = serving(20)
    left_open(server, 90, backend_xmin=1000)
    xids = of(postgres.Xids, now_us=server.now_us, next_xid=200_001_000)
    server.extra = {"pg.xids": xids}
    server.tick()
    assert server.only_one("idle-in-transaction").severity == "critical"


def test_many_transactions_left_open_are_one_finding() -> None:
    server = serving(20)
    made = {"xact_start": server.ago(100), "backend_xid": 900, "state_change": server.ago(100)}
    server.rows += server.pool(50, 3000, "idle in transaction", **made)
    server.tick()
    assert server.only_one("idle-in-transaction").text.endswith("; 49 more like it")


def test_what_a_client_calls_itself_cannot_drive_a_terminal() -> None:
    server = serving(20)
    left_open(server, 90, application="evil\x1b[2J", query="select '\x1b]0;x\x07'")
    server.tick()
    assert server.only_one("idle-in-transaction").text.isprintable()
