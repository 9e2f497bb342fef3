"""Locks: a queue behind a lock of DDL, a session or a dump that holds others up, a transaction left open that does."""

from __future__ import annotations

import pytest
from msgspec import structs

from dba_console.watch.connections.rules import FAMILY as CONNECTIONS
from dba_console.watch.locks.rules import FAMILY
from tests.readings import activity
from tests.unit.watch.findings.server_ticks import ServerTicks, waiting

RULES = (*FAMILY.rules, *CONNECTIONS.rules)
DUMP, MIGRATION, HOLDER = 8001, 8123, 8200


@pytest.fixture
def server() -> ServerTicks:
    server = ServerTicks(*RULES)
    server.rows = server.pool(30)
    server.ticks(2)
    return server


def session(server: ServerTicks, pid: int, state: str = "active", open_s: float = 60, **fields: object) -> None:
    """One more session, its transaction open for so long."""
    made = {"xact_start": server.ago(open_s), "query_start": server.ago(open_s), "state_change": server.ago(open_s)}
    server.rows = [*server.rows, activity(pid, state, **{**made, **fields})]


def blocked(
    server: ServerTicks, pid: int, *blockers: int, waited_s: float = 0.0, query: str = "", **lock: object
) -> None:
    """A session that waits for these, for so long already."""
    since_us = server.ago(waited_s)
    server.rows = [row for row in server.rows if row.pid != pid]
    session(server, pid, open_s=waited_s, wait_event_type="Lock", wait_event="relation", query=query)
    server.locks = [*server.locks, waiting(pid, *blockers, since=since_us, **lock)]  # type: ignore[arg-type]  # as it is


def dump(server: ServerTicks, open_s: float = 3720) -> None:
    session(server, DUMP, application="pg_dump", user="backup", query="COPY public.orders TO stdout;", open_s=open_s)


def migration(server: ServerTicks, *blockers: int, waited_s: float = 0.0) -> None:
    query = "alter table orders add note text"
    blocked(server, MIGRATION, *blockers, waited_s=waited_s, query=query, mode="AccessExclusiveLock")


def block_sessions(
    server: ServerTicks, count: int, *blockers: int, waited_s: float = 0.0, first_pid: int = 1000
) -> None:
    for number in range(count):
        blocked(server, first_pid + number, *blockers, waited_s=waited_s, query="select * from orders")


def clear_waits(server: ServerTicks) -> None:
    server.locks = []
    server.rows = server.pool(30)


# -- queues


def test_a_queue_behind_ddl_behind_a_dump_is_one_finding_that_names_all_three(server: ServerTicks) -> None:
    dump(server)
    migration(server, DUMP)
    block_sessions(server, 20, MIGRATION)
    server.ticks(3)
    row = server.only_one("lock-queue")
    assert row.severity == "critical"
    assert row.text.startswith("20 sessions wait behind orders-api (pid 8123: alter table orders add note text)")
    assert "for the dump pg_dump (backup, pid 8001), transaction open for 1h02" in row.text
    assert row.runbook == "lock-queue"
    assert row.evidence["root_pid"] == DUMP
    assert row.evidence["waiter_pid"] == MIGRATION
    assert row.evidence["behind"] == 20
    for _ in range(30):
        server.tick_unread()
    server.only_one("lock-queue")  # while the locks cannot be read
    clear_waits(server)
    assert server.ticks(7) == [], "soon after it ended"


def test_a_queue_starts_with_its_first_wait(server: ServerTicks) -> None:
    dump(server)
    began = server.ago(40)
    migration(server, DUMP, waited_s=40)
    block_sessions(server, 5, MIGRATION, waited_s=30)
    server.ticks(2)
    row = server.only_one("lock-queue")
    assert abs(row.since_us - began) < 1_000_000
    assert row.severity == "critical", "five behind it for longer than ten seconds"


def test_a_short_queue_is_a_warning_while_any_session_waits(server: ServerTicks) -> None:
    dump(server)
    migration(server, DUMP)
    block_sessions(server, 4, MIGRATION)
    server.ticks(20)
    assert server.only_one("lock-queue").severity == "warning"
    server.locks = server.locks[:2]
    server.ticks(30)
    assert server.only_one("lock-queue").evidence["behind"] == 1


def test_ddl_that_waits_briefly_on_a_busy_server_is_not_a_finding(server: ServerTicks) -> None:
    session(server, HOLDER, query="select count(*) from orders", open_s=1)
    for _ in range(5):
        migration(server, HOLDER)
        block_sessions(server, 20, MIGRATION)
        server.tick()
        clear_waits(server)
        server.ticks(3)
    assert server.raised == []


def test_an_index_build_that_waits_for_a_writer_blocks_later_writers(server: ServerTicks) -> None:
    session(server, HOLDER, query="update orders set paid = true")
    blocked(server, MIGRATION, HOLDER, query="create index on orders (paid)", mode="ShareLock")
    block_sessions(server, 6, MIGRATION)
    server.ticks(3)
    assert server.only_one("lock-queue").evidence["waiter_mode"] == "ShareLock"


def test_waits_for_rows_are_not_a_ddl_queue(server: ServerTicks) -> None:
    """The wait for a row takes ExclusiveLock on a tuple, which is no lock of DDL."""
    session(server, HOLDER, query="update orders set paid = true")
    blocked(server, 1000, HOLDER, waited_s=3, mode="ExclusiveLock", locktype="tuple")
    for pid in range(1001, 1010):
        blocked(server, pid, 1000, waited_s=3, mode="ExclusiveLock", locktype="tuple")
    server.ticks(3)
    server.only_one("lock-blocker")


def test_a_queue_behind_an_idle_transaction_is_reported_with_what_must_be_terminated(server: ServerTicks) -> None:
    session(server, HOLDER, "idle in transaction", application="monthly-report", open_s=200, backend_xid=5)
    migration(server, HOLDER, waited_s=20)
    block_sessions(server, 12, MIGRATION, waited_s=15)
    server.ticks(3)
    row = server.only_one("idle-in-transaction")
    assert row.chain == ["lock-queue", "idle-in-transaction"]
    assert "because monthly-report (app, pid 8200) is idle in transaction" in row.text
    assert row.severity == "critical"
    assert row.runbook == "idle-in-transaction"


def test_a_queue_behind_a_queue_is_reported_with_the_first_one(server: ServerTicks) -> None:
    dump(server)
    migration(server, DUMP)
    blocked(server, 8124, MIGRATION, query="truncate orders", mode="AccessExclusiveLock")
    block_sessions(server, 6, 8124, MIGRATION)
    server.ticks(3)
    row = server.only_one("lock-queue")
    assert (row.evidence["waiter_pid"], row.evidence["behind"]) == (MIGRATION, 7)


def test_without_a_wait_start_from_the_server_the_first_observation_is_used(server: ServerTicks) -> None:
    """13 has no pg_locks.waitstart."""
    dump(server)
    migration(server, DUMP)
    block_sessions(server, 6, MIGRATION)
    server.locks = [structs.replace(lock, wait_start=None) for lock in server.locks]
    server.ticks(5)
    assert server.only_one("lock-queue").severity == "warning"
    server.ticks(8)
    assert server.only_one("lock-queue").severity == "critical", "ten seconds since it was first seen"


# -- blockers


def test_a_session_that_blocks_one_other_is_reported_after_ten_seconds(server: ServerTicks) -> None:
    session(server, HOLDER, application="batch", query="update orders set paid = true", open_s=5)
    blocked(server, 1000, HOLDER, waited_s=5, query="update orders set paid = false", locktype="transactionid")
    assert server.ticks(4) == []
    server.ticks(4)
    row = server.only_one("lock-blocker")
    assert row.severity == "warning"
    assert "1 session waits for batch (app, pid 8200)" in row.text
    assert row.text.endswith(
        "; the first waiter, orders-api, has waited 10s for public.orders: update orders set paid = false"
    )


def test_a_session_that_blocks_many_for_long_is_critical(server: ServerTicks) -> None:
    session(server, HOLDER, query="update orders set paid = true", open_s=40)
    block_sessions(server, 22, HOLDER, waited_s=35)
    server.ticks(2)
    assert server.only_one("lock-blocker").severity == "critical"


def test_hot_rows_passed_between_sessions_are_not_a_blocker(server: ServerTicks) -> None:
    """Every second another transaction holds the row; those in the queue wait for three seconds in all."""
    for second in range(30):
        clear_waits(server)
        session(server, 9000 + second, query="update branches set balance = 0", open_s=0.1)
        block_sessions(server, 20, 9000 + second, waited_s=3)
        server.tick()
    assert server.raised == []


def test_a_dump_that_blocks_only_ddl_is_reported_with_the_dump_until_a_queue_grows_behind_it(
    server: ServerTicks,
) -> None:
    dump(server)
    migration(server, DUMP, waited_s=8)
    assert server.ticks(1) == []
    server.ticks(3)
    row = server.only_one("dump-blocks")
    assert row.severity == "warning"
    assert "1 session waits for the dump pg_dump (backup, pid 8001)" in row.text
    block_sessions(server, 12, MIGRATION)
    server.ticks(2)
    server.only_one("lock-queue")
    server.ticks(10)
    assert server.only_one("lock-queue").chain == ["lock-queue"]


@pytest.mark.parametrize(
    ("state", "application", "advice"),
    [
        ("active", "batch", "select pg_cancel_backend(8200) costs more than one statement: its whole transaction is"),
        ("active", "pg_dump", "select pg_cancel_backend(8200) costs more than one statement: the whole dump is lost"),
        ("idle in transaction", "pg_dump", "select pg_terminate_backend(8200) ends it: the whole dump is lost"),
    ],
)
def test_the_advice_says_what_a_cancelled_blocker_loses(
    server: ServerTicks, state: str, application: str, advice: str
) -> None:
    session(server, HOLDER, state, application=application, query="update orders set paid = true", open_s=40)
    blocked(server, 1000, HOLDER, waited_s=15)
    server.ticks(3)
    [row] = server.open
    assert advice in (row.advice or "")


def test_a_deadlock_is_left_to_the_server(server: ServerTicks) -> None:
    assert server.ticks(60) == [], "nobody waits"
    blocked(server, 1000, 1001, waited_s=15)
    blocked(server, 1001, 1000, waited_s=15)
    server.ticks(3)
    assert server.raised == []


# -- transactions left open that hold others up


def test_an_idle_transaction_that_blocks_others_is_reported_in_its_third_second_and_critical_if_it_lasts(
    server: ServerTicks,
) -> None:
    query = "update branches set filler = 'new'"
    session(server, HOLDER, "idle in transaction", application="price-correction", open_s=0, query=query)
    block_sessions(server, 18, HOLDER)
    server.ticks(3)
    row = server.only_one("idle-in-transaction")
    assert row.severity == "warning"
    assert "and 18 sessions wait for it" in row.text
    assert row.text.endswith("last statement: update branches set filler = 'new'")
    assert (row.evidence["behind"], row.evidence["pid"]) == (18, HOLDER)
    server.ticks(25)
    assert server.only_one("idle-in-transaction").severity == "warning"
    server.ticks(5)
    assert server.only_one("idle-in-transaction").severity == "critical"


def test_a_blocking_transaction_is_named_before_an_older_one(server: ServerTicks) -> None:
    session(server, 8300, "idle in transaction", application="monthly-report", open_s=400, backend_xid=5)
    session(server, HOLDER, "idle in transaction", application="price-correction", open_s=10)
    block_sessions(server, 2, HOLDER, waited_s=8)
    server.tick()
    assert server.only_one("idle-in-transaction").text.startswith("price-correction")


def test_a_forgotten_transaction_is_not_the_cause_of_filling_connections(server: ServerTicks) -> None:
    server.rows = server.pool(220)
    session(server, HOLDER, "idle in transaction", application="monthly-report", open_s=400, backend_xid=5)
    server.ticks(3)
    assert sorted(server.ids) == ["connections-filling", "idle-in-transaction"]


def test_a_pause_between_two_statements_is_not_a_finding(server: ServerTicks) -> None:
    for _ in range(20):
        clear_waits(server)
        session(server, HOLDER, "idle in transaction", open_s=0.2)
        block_sessions(server, 10, HOLDER, waited_s=0.2)
        server.tick()
    assert server.raised == []


def test_the_leader_of_a_parallel_dump_is_not_an_idle_transaction(server: ServerTicks) -> None:
    """It waits idle in its transaction while its workers copy, and holds ACCESS SHARE on every table."""
    dump(server)
    server.rows = [structs.replace(row, state="idle in transaction") for row in server.rows if row.pid == DUMP]
    migration(server, DUMP, waited_s=15)
    server.ticks(3)
    server.only_one("dump-blocks")


# -- causes


def test_connections_that_fill_up_because_of_a_queue_are_one_finding(server: ServerTicks) -> None:
    server.rows = server.pool(30)
    dump(server)
    migration(server, DUMP)
    block_sessions(server, 210, MIGRATION, first_pid=2000)
    server.ticks(3)
    row = next(row for row in server.open if row.id == "lock-queue")
    assert row.chain[-1] == "lock-queue"
    assert "connections-filling" in row.chain
    assert row.text.startswith("Connections fill (")
    assert " because 210 sessions wait behind " in row.text
