"""What holds the xid horizon: named, ranked, with what to do about each kind; joined with what it leads to."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.connections.idle_transaction_rules import IDLE_IN_TRANSACTION
from dba_console.watch.safety.readings import Horizon, HorizonHolder
from dba_console.watch.samples.findings import FindingNow
from tests.readings import activity, sessions
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary
from tests.unit.watch.findings.test_wraparound import xids

HOUR = 3600.0
DAY = 86_400.0
MILLION = 1_000_000


def held(*rows: HorizonHolder) -> Horizon:
    return Horizon(list(rows))


def horizon(ticks: ReadingTicks, *rows: HorizonHolder, **fields: Any) -> dict[str, FindingNow]:
    activities = sessions(now_us=0)
    return ticks.tick({"pg.server": primary(**fields), "pg.activity": activities, "pg.horizon": held(*rows)})


@pytest.fixture
def ticks() -> ReadingTicks:
    return ReadingTicks("horizon-held", "xid-wraparound")


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
def test_each_kind_of_horizon_holder_is_named_with_advice(
    kind: str,
    state: str | None,
    named: str,
    advice: str,
    ticks: ReadingTicks,
) -> None:
    row = HorizonHolder(kind, "x", 77, 81 * MILLION, ticks.ago(HOUR), "appdb", state)
    found = only(horizon(ticks, row))
    assert named in found.text
    assert advice in (found.advice or "")
    assert "81 M ids" in found.text


def test_the_oldest_horizon_holder_is_named_first(ticks: ReadingTicks) -> None:
    small = HorizonHolder("backend", "app", 5, 60 * MILLION, ticks.ago(DAY), "appdb", "active")
    large = HorizonHolder("slot", "old_sub", None, 90 * MILLION, None, "appdb", "inactive")
    found = only(horizon(ticks, small, large))
    assert found.evidence["holder"] == "old_sub"
    assert "and 1 more" in found.text


def test_a_long_transaction_is_reported_only_if_many_ids_were_used_meanwhile(ticks: ReadingTicks) -> None:
    idle = HorizonHolder("backend", "app", 5, 3_000, ticks.ago(2 * HOUR), "appdb", "active")
    assert horizon(ticks, idle) == {}
    busy = HorizonHolder("backend", "app", 5, 3 * MILLION, ticks.ago(2 * HOUR), "appdb", "active")
    assert only(horizon(ticks, busy)).severity == "warning"


def test_a_forgotten_prepared_transaction_is_reported_whatever_its_age_in_ids(ticks: ReadingTicks) -> None:
    row = HorizonHolder("prepared", "tx-17", None, 3, ticks.ago(2 * HOUR), "appdb", "app")
    found = only(horizon(ticks, row))
    assert found.since_us == ticks.server_us - int(2 * HOUR * 1e6)


def test_a_dump_within_its_typical_duration_is_reported_without_a_warning(ticks: ReadingTicks) -> None:
    row = HorizonHolder("backend", "pg_dump", 5, 3 * MILLION, ticks.ago(2 * HOUR), "appdb", "active")
    assert only(horizon(ticks, row)).severity == "info"


def test_ages_hidden_from_this_role_report_nothing(ticks: ReadingTicks) -> None:
    assert horizon(ticks, HorizonHolder("backend", "app", 5, None, None, None, None)) == {}


def test_what_a_standby_holds_back_is_reported_by_its_primary(ticks: ReadingTicks) -> None:
    row = HorizonHolder("backend", "app", 5, 81 * MILLION, ticks.ago(HOUR), "appdb", "active")
    assert horizon(ticks, row, in_recovery=True) == {}


def test_ids_that_run_out_because_of_a_horizon_holder_are_one_finding(ticks: ReadingTicks) -> None:
    row = HorizonHolder("slot", "old_sub", None, 1_690 * MILLION, None, "appdb", "inactive")
    readings = {"pg.server": primary(), "pg.horizon": held(row), "pg.xids": xids(1_700 * MILLION)}
    found = only(ticks.tick(readings))
    assert (found.id, found.chain) == ("xid-wraparound", ["xid-wraparound", "horizon-held"])
    assert found.severity == "critical"
    assert found.text.endswith("because inactive replication slot old_sub holds the oldest xmin back by 1,690 M ids")
    assert len(found.text) <= 200
    assert found.runbook == "xid-wraparound"
    ticks.tick(readings)
    assert (found.advice or "").startswith("First inactive replication slot old_sub. Drop the slot")
    assert "Then VACUUM as superuser in appdb" in (found.advice or "")


def test_an_idle_transaction_that_holds_the_horizon_is_one_finding_and_not_two() -> None:
    ticks = ReadingTicks("horizon-held", IDLE_IN_TRANSACTION)
    row = HorizonHolder("backend", "app", 77, 3 * MILLION, ticks.ago(2 * HOUR), "appdb", "idle in transaction")
    left = activity(
        77, "idle in transaction", xact_start=ticks.ago(2 * HOUR), state_change=ticks.ago(HOUR), backend_xmin=5
    )
    readings = {"pg.server": primary(), "pg.activity": sessions(left, now_us=0), "pg.horizon": held(row)}
    for _ in range(3):
        findings = ticks.tick(readings)
    found = only(findings)
    assert found.chain[0] == "horizon-held" and found.chain[1].startswith("idle-in-transaction")
    message = "held back by 3.0 M ids because orders-api (app, pid 77) is idle in transaction for 1h00 in appdb"
    assert found.text.endswith(message), "what it does is said already"


def test_a_holder_much_younger_than_the_age_is_not_its_cause(ticks: ReadingTicks) -> None:
    row = HorizonHolder("slot", "old_sub", None, 81 * MILLION, None, "appdb", "inactive")
    readings = {"pg.server": primary(), "pg.horizon": held(row), "pg.xids": xids(1_700 * MILLION)}
    assert set(ticks.tick(readings)) == {"horizon-held", "xid-wraparound"}
