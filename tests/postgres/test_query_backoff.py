"""What was refused is asked again later, what was dear more rarely; sizes come a few at a time."""

from __future__ import annotations

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.pipeline import ServerError
from dba_console.watch.probes.postgres.statements import EVERY_SECOND, QueryBackoff
from dba_console.watch.probes.postgres.tick_reader import SizeRound
from tests.background import idle_in_transaction
from tests.postgres.probes import connected_probe, read

S = 1_000_000
OPTIONS = MonitorOptions()
DENIED = ServerError("42501", "permission denied for function f")


def backoff() -> QueryBackoff:
    return QueryBackoff(OPTIONS, "GRANT it")


def test_a_statement_never_sent_may_be_sent() -> None:
    assert backoff().refusal(0) is None


@pytest.mark.parametrize(
    ("sqlstate", "status"), [("42501", "denied"), ("42883", "unsupported"), ("42P01", "unsupported")]
)
def test_a_denied_statement_is_retried_after_five_minutes_and_not_before(sqlstate: str, status: str) -> None:
    one = backoff()
    refusal = one.failed(ServerError(sqlstate, "no"), 0)
    assert refusal.status == status
    assert one.refusal(299 * S) == refusal
    assert one.refusal(300 * S) is None


def test_a_denial_names_the_required_grant() -> None:
    assert backoff().failed(DENIED, 0).note == "permission denied for function f; GRANT it"


def test_timeouts_are_retried_at_growing_intervals_up_to_five_minutes() -> None:
    one, pauses, now = backoff(), [], 0
    for _ in range(8):
        assert one.failed(ServerError("57014", "canceled"), now).status == "timeout"
        pause = next(second for second in range(1, 400) if one.refusal(now + second * S) is None)
        pauses.append(pause)
        now += pause * S
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]


def test_a_statement_sent_each_second_never_pauses_for_long() -> None:
    one = QueryBackoff(OPTIONS, "GRANT it", EVERY_SECOND)
    for _ in range(9):
        one.failed(ServerError("57014", "canceled"), 0)
    assert one.refusal(5 * S) is None
    one.succeeded(60 * S, 100 * S)
    assert one.refusal(104 * S) is not None
    assert one.refusal(105 * S) is None


def test_an_answer_resets_earlier_failures() -> None:
    one = backoff()
    for now in (0, 10 * S):
        one.failed(ServerError("57014", "canceled"), now)
    one.succeeded(1000, 100 * S)
    assert one.refusal(100 * S) is None
    one.failed(ServerError("57014", "canceled"), 200 * S)
    assert one.refusal(205 * S) is None


def test_an_expensive_query_pauses_ten_times_its_duration() -> None:
    one = backoff()
    one.succeeded(2 * S, 0)
    refusal = one.refusal(19 * S)
    assert refusal is not None
    assert (refusal.status, refusal.note) == ("stale", "its query took 2.0s; paused for 20s")
    assert one.refusal(20 * S) is None


def test_a_cheap_query_does_not_pause() -> None:
    one = backoff()
    one.succeeded(S // 2, 0)
    assert one.refusal(1) is None


def test_an_error_shows_no_password() -> None:
    assert "hunter2" not in backoff().failed(ServerError("XX000", "bad password=hunter2"), 0).note


def sizes_of(count: int, *, denied: int = 0) -> SizeRound:
    return SizeRound([(oid, b"db%d" % oid, oid > denied) for oid in range(1, count + 1)], "utf-8")


def test_batches_grow_while_they_are_cheap() -> None:
    round_, asked, now = sizes_of(200), [], 0
    while not round_.done:
        batch = round_.next_batch(now)
        asked.append(len(batch))
        round_.answered(batch, [(oid, oid * 10) for oid in batch], 1000, now)
    assert asked == [4, 8, 16, 32, 64, 64, 12]
    assert [row.bytes for row in round_.reading().rows][:3] == [10, 20, 30]


def test_after_an_expensive_batch_it_pauses_and_requests_fewer() -> None:
    round_ = sizes_of(20)
    batch = round_.next_batch(0)
    round_.answered(batch, [(oid, 1) for oid in batch], 2 * S, 0)
    assert round_.next_batch(19 * S) == []
    assert len(round_.next_batch(20 * S)) == 1


def test_a_value_not_read_in_time_is_unknown_and_the_others_are_not() -> None:
    round_, now = sizes_of(4), 0
    round_.failed(round_.next_batch(now), 2 * S, now)
    while not round_.done:
        now += 100 * S
        batch = round_.next_batch(now)
        if 2 in batch:
            round_.failed(batch, 2 * S, now)
        else:
            round_.answered(batch, [(oid, 7) for oid in batch], 1000, now)
    assert [row.bytes for row in round_.reading().rows] == [7, None, 7, 7]
    assert round_.note == "sizes unknown: too slow to query: db2"


def test_a_database_dropped_meanwhile_is_not_in_the_reading() -> None:
    round_ = sizes_of(3)
    batch = round_.next_batch(0)
    round_.answered(batch, [(1, 7), (3, 7)], 1000, 0)
    assert [row.name for row in round_.reading().rows] == ["db1", "db3"]


def test_databases_the_role_may_not_query_are_counted() -> None:
    assert sizes_of(3, denied=2).note == "sizes unknown: 2 without CONNECT or pg_read_all_stats (in pg_monitor)"


def test_a_lock_on_a_catalog_is_not_waited_for(cluster: Cluster) -> None:
    with (
        connected_probe(cluster) as probe,
        idle_in_transaction(cluster, "lock table pg_extension in access exclusive mode"),
    ):
        part = read(probe, "pg.server")["pg.server"]
        asked = probe.queries
        again = read(probe, "pg.server")["pg.server"]
        assert probe.queries == asked + 6  # all of them but the one that rests
    assert part.status == again.status == "ok"
    assert part.decode().extensions == []
    assert "extensions not known: a lock on a system catalog was not free within 0.1s" in (again.note or "")


def test_a_query_that_takes_too_long_is_cancelled_by_the_server(cluster: Cluster) -> None:
    options = MonitorOptions(statement_timeout_s=0.05, lock_timeout_s=0)
    lock = "lock table pg_extension in access exclusive mode"
    with connected_probe(cluster, options=options) as probe, idle_in_transaction(cluster, lock):
        note = read(probe, "pg.server")["pg.server"].note
    assert "canceling statement due to statement timeout (limit 0.1s); retried less often" in (note or "")
