"""A queue behind a migration behind a dump: named in time, and walked by the runbook `lock-queue`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.lock_queue import BEHIND, MIGRATION, TABLE
from tests.background import idle_in_transaction, wait_until, waiting_for_lock
from tests.runbooks.runs import SMALL, WAIT_S, Walk, WatchedServer, assert_detected, incident

Walking = Future[Walk]
RUNBOOK = "lock-queue"
FOLLOW_UP = "prevent-a-recurrence=told the owner, ticket 4711"
CANCEL, ROOT = "cancel-the-statement-in-the-middle", "end-the-session-at-the-root"
PREPARED = "end-the-prepared-transaction"
WEB = "select count(*) from pg_stat_activity where application_name = 'shop-web'"


@pytest.fixture(scope="module")
def watched() -> Iterator[WatchedServer]:
    with incident(RUNBOOK, SMALL, hostile=False) as made:
        yield made


@pytest.fixture
def without_queue(watched: WatchedServer) -> Iterator[WatchedServer]:
    """The server under load; nothing is left of a queue afterwards."""
    watched.start_load()
    yield watched
    watched.end()
    wait_until(
        lambda: not session_count(watched, "pg_dump") and not session_count(watched, MIGRATION),
        WAIT_S,
        what="the queue's end",
    )
    watched.sql(f"alter table {TABLE} drop column if exists note")


@pytest.fixture
def detected_queue(without_queue: WatchedServer) -> WatchedServer:
    """The queue, found by the agent."""
    without_queue.cause()
    without_queue.wait_until_raised(RUNBOOK)
    without_queue.frame(lambda frame: (frame.locks.longest_wait_s or 0) >= 2, "a queue that stands")
    return without_queue


def session_count(watched: WatchedServer, application: str) -> int:
    return int(watched.sql(f"select count(*) from pg_stat_activity where application_name = '{application}'"))


def is_waiting(watched: WatchedServer, application: str) -> bool:
    where = f"application_name = '{application}' and wait_event_type = 'Lock'"
    return watched.sql(f"select count(*) from pg_stat_activity where {where}") == "1"


def wait_step_count(watched: WatchedServer) -> int:
    """How often the step that waits for the end of a queue has begun."""
    logs = watched.console.sessions.glob("*/session.log")
    return sum(log.read_text().count("step is-the-queue-gone: Is") for log in logs)


def test_the_queue_is_named_and_continues_once_the_statement_in_the_middle_is_cancelled(
    without_queue: WatchedServer,
) -> None:
    web = without_queue.sql(WEB)
    assert_detected(without_queue.cause_and_judge())
    frame = without_queue.frame(
        lambda frame: (frame.locks.waiting or 0) > BEHIND and (frame.locks.longest_wait_s or 0) >= 2,
        "a queue that stands",
    )
    (root, *_) = frame.locks.trees
    assert root.application == "pg_dump"
    assert any(waiter.application == MIGRATION for waiter in root.waiters)

    walk = without_queue.run_headless(RUNBOOK, "what-to-stop=ddl", f"{CANCEL}=1", FOLLOW_UP)
    assert walk.code == 0, walk.text
    assert walk.done() == [CANCEL]
    assert walk.states()[ROOT] == "skipped"
    assert [row[1] for row in walk.events[-1]["summary"]["rows"]].count("ok") == 6
    without_queue.frame(lambda frame: frame.locks.waiting == 0, "an end of waiting")
    without_queue.wait_until_cleared(RUNBOOK)
    assert session_count(without_queue, "pg_dump") == 1, "the dump goes on"
    assert session_count(without_queue, MIGRATION) == 1, "cancelled, not ended"
    assert without_queue.sql(WEB) == web


def test_the_root_is_terminated_by_an_operator_at_a_terminal_that_showed_it(detected_queue: WatchedServer) -> None:
    with detected_queue.open_lines(RUNBOOK) as terminal:
        for asked, typed in (
            ("type `yes` >", "yes"),
            (r"what-to-stop|Which session do you stop", "root"),
            ("type `1` >", "/x 1"),
            (r"(?m)^none >", "/x 1"),
            (r"(?m)^none >[\s\S]*type `1` >", "1"),
            (r"who was informed, or the ticket", "ticket 4711"),
        ):
            screen = terminal.wait_for(asked, WAIT_S)
            terminal.type(typed)
            terminal.keys("Enter")
        screen = terminal.wait_for(r"code=\d+", WAIT_S)
    assert "code=0" in screen, screen
    assert "pg_dump" in screen and MIGRATION in screen
    assert session_count(detected_queue, "pg_dump") == 0
    assert detected_queue.sql(f"select note from {TABLE} limit 1") == "", "the migration went through"
    detected_queue.frame(lambda frame: frame.locks.waiting == 0, "an end of waiting")


def test_no_session_is_stopped_if_declined_or_a_wrong_number_is_confirmed(detected_queue: WatchedServer) -> None:
    left = detected_queue.run_headless(RUNBOOK, "what-to-stop=none")
    assert left.code == 0, left.text
    refused = detected_queue.run_headless(RUNBOOK, "what-to-stop=ddl", f"{CANCEL}=2", FOLLOW_UP)
    assert refused.code == 8, refused.text
    assert "does not fit" in refused.text
    assert left.done() == refused.done() == []
    assert is_waiting(detected_queue, MIGRATION) and session_count(detected_queue, "pg_dump") == 1


@contextmanager
def second_queue(watched: WatchedServer) -> Iterator[ExitStack]:
    """A session behind an idle transaction, beside the queue; closing what is given ends it."""
    with ExitStack() as stack:
        lock = "lock table pgbench_history in share mode"
        stack.enter_context(idle_in_transaction(watched.cluster, lock, name="by-hand", dbname=DATABASE))
        insert = "insert into pgbench_history values (1)"
        stack.enter_context(waiting_for_lock(watched.cluster, insert, name="late", dbname=DATABASE))
        yield stack


@contextmanager
def run_to_last_wait(
    watched: WatchedServer, others: ExitStack, *confirmed: str, rows: Sequence[str] = ()
) -> Iterator[Walking]:
    """The run at its last wait; afterwards nobody waits any more, for else it would wait for a minute."""
    before = wait_step_count(watched)
    with ThreadPoolExecutor(1) as beside:
        walking = beside.submit(watched.run_headless, RUNBOOK, *confirmed, rows=rows)
        wait_until(lambda: wait_step_count(watched) > before or walking.done(), WAIT_S, what="the step that waits")
        yield walking
        others.close()
        watched.end()


def test_a_deselected_root_is_left_alone(detected_queue: WatchedServer) -> None:
    """At first the dump alone is chosen, for the migration waits for it; nobody has to be asked where none is."""
    with second_queue(detected_queue) as others:
        wrong = detected_queue.run_headless(
            RUNBOOK, "what-to-stop=root", f"{ROOT}=1", rows=[f"--leave-out={ROOT}=application=pgdump"]
        )
        assert wrong.code == 8 and "no row has application pgdump" in wrong.text and wrong.done() == []
        rows = [f"--leave-out={ROOT}=application=pg_dump"]
        with run_to_last_wait(
            detected_queue, others, "what-to-stop=root", f"{ROOT}=1", FOLLOW_UP, rows=rows
        ) as walking:
            assert session_count(detected_queue, "pg_dump") == session_count(detected_queue, "by-hand") == 1
        spared = walking.result()
    assert "no row of end-the-session-at-the-root/preview is chosen" in spared.text
    assert spared.done() == []


def test_the_root_of_another_queue_can_be_selected(detected_queue: WatchedServer) -> None:
    with second_queue(detected_queue) as others:
        rows = [f"--choose={ROOT}=application=by-hand"]
        with run_to_last_wait(
            detected_queue, others, "what-to-stop=root", f"{ROOT}=1", FOLLOW_UP, rows=rows
        ) as walking:
            assert session_count(detected_queue, "by-hand") == 0 and session_count(detected_queue, "pg_dump") == 1
        ended = walking.result()
    assert ended.done() == [ROOT]
    (chosen,) = ended.records("rows.chosen")
    assert "1 of 2 rows chosen by" in chosen.text and "application pg_dump" in chosen.text


def test_a_prepared_transaction_is_not_searched_for_if_none_is_at_the_root(detected_queue: WatchedServer) -> None:
    given = ("what-to-stop=prepared", f"{PREPARED}/manual=nobody knows", f"{PREPARED}=1", FOLLOW_UP)
    with run_to_last_wait(detected_queue, ExitStack(), *given) as walking:
        assert is_waiting(detected_queue, MIGRATION) and session_count(detected_queue, "pg_dump") == 1
    walk = walking.result()
    assert walk.done() == [] and walk.states()[PREPARED] == "ok", walk.text


def test_without_waiting_sessions_it_does_not_start(watched: WatchedServer) -> None:
    watched.stop_load()
    watched.frame(lambda frame: frame.locks.waiting == 0, "a server without waiters")
    walk = watched.run_headless(RUNBOOK, "what-to-stop=ddl", f"{CANCEL}=1", FOLLOW_UP)
    assert walk.code == 7, walk.text
    assert "locks.waiting 0" in walk.text
    assert walk.records("run.started") == [] and walk.done() == []
