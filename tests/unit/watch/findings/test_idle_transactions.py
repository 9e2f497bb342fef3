"""Transactions that were left open and hold up VACUUM, or nobody; those that hold up others are in test_locks.py."""

from __future__ import annotations

from typing import Any

from dba_console.watch.safety.readings import Xids
from tests.readings import of
from tests.unit.watch.findings.server_ticks import ServerTicks, server_ticks


def left_open(server: ServerTicks, idle_s: float, **fields: Any) -> None:
    """One session that went idle in a transaction so long ago."""
    made = {
        "application": "price-correction", "user": "ann", "xact_start": server.ago(idle_s),
        "state_change": server.ago(idle_s), "query": "update prices\n set net = 1;", "backend_xid": 900, **fields,
    }  # fmt: skip
    server.rows += server.pool(1, 77, "idle in transaction", **made)


def test_an_idle_transaction_is_reported_after_a_minute_and_a_warning_after_five() -> None:
    server = server_ticks(20)
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


def test_an_idle_transaction_that_only_read_is_reported_late() -> None:
    server = server_ticks(20)
    left_open(server, 300, backend_xid=None)
    assert server.ticks(5) == []
    server.ticks(610)
    assert server.only_one("idle-in-transaction").severity == "info"


def test_an_idle_transaction_counts_from_its_start() -> None:
    server = server_ticks(20)
    began = server.ago(120)
    left_open(server, 90, xact_start=began)
    server.tick()
    assert abs(server.only_one("idle-in-transaction").since_us - began) < 1_000_000


def test_a_transaction_that_prevents_freezing_is_critical() -> None:
    server = server_ticks(20)
    left_open(server, 90, backend_xmin=1000)
    xids = of(Xids, now_us=server.now_us, next_xid=200_001_000)
    server.extra = {"pg.xids": xids}
    server.tick()
    assert server.only_one("idle-in-transaction").severity == "critical"


def test_many_idle_transactions_are_one_finding() -> None:
    server = server_ticks(20)
    made = {"xact_start": server.ago(100), "backend_xid": 900, "state_change": server.ago(100)}
    server.rows += server.pool(50, 3000, "idle in transaction", **made)
    server.tick()
    assert server.only_one("idle-in-transaction").text.endswith("; 49 more like it")


def test_an_application_name_does_not_control_the_terminal() -> None:
    server = server_ticks(20)
    left_open(server, 90, application="evil\x1b[2J", query="select '\x1b]0;x\x07'")
    server.tick()
    assert server.only_one("idle-in-transaction").text.isprintable()
