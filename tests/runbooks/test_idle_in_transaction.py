"""A transaction left open on hot rows: named in time, and walked by the runbook `idle-in-transaction`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.idle_in_transaction import APPLICATION, BEHIND
from tests.background import Session, session, wait_until
from tests.runbooks.runs import AS_ASKED, SMALL, WAIT_S, WatchedServer, assert_detected, incident

RUNBOOK = "idle-in-transaction"
ASK, END = "ask-its-owner", "end-them"
NOBODY = (f"{ASK}=rang twice, nobody answers", f"{ASK}=end")
FOLLOW_UP = "prevent-a-recurrence=five minutes, ticket 4711"


@pytest.fixture(scope="module")
def watched() -> Iterator[WatchedServer]:
    with incident(RUNBOOK, SMALL) as made:
        yield made


@contextmanager
def idle_session(watched: WatchedServer, name: str) -> Iterator[Session]:
    """A session idle in its transaction for more than a second, without any other active session."""
    watched.stop_load()
    with psycopg.connect(watched.cluster.dsn(user="reporting", dbname=DATABASE, application_name=name)) as connection:
        connection.execute("select txid_current()")
        wait_until_idle(watched, name)
        yield connection


def wait_until_idle(watched: WatchedServer, application: str, for_s: float = 1.1) -> None:
    """Return when it has been idle in its transaction for so long."""
    where = (
        f"application_name = '{application}' and state = 'idle in transaction'"
        f" and state_change < clock_timestamp() - make_interval(secs => {for_s})"
    )
    with closing(session(watched.cluster)) as asking:
        idle = f"select 1 from pg_stat_activity where {where}"
        wait_until(lambda: asking.execute(idle).fetchone(), WAIT_S, what="an idle transaction")


def test_the_session_is_named_an_unreachable_one_is_terminated_and_the_waiters_continue(watched: WatchedServer) -> None:
    try:
        assert_detected(watched.cause_and_judge())
        frame = watched.frame(lambda frame: (frame.locks.waiting or 0) >= BEHIND, "sessions behind it")
        (root, *_) = frame.locks.trees
        assert (root.application, root.state) == (APPLICATION, "idle in transaction")
        wait_until_idle(watched, APPLICATION, 2.1)
        with psycopg.connect(watched.cluster.dsn(application_name="bystander"), autocommit=True) as bystander:
            walk = watched.run_headless(RUNBOOK, *NOBODY, f"{END}=1", FOLLOW_UP)
            assert walk.code == 0, walk.text
            assert walk.done() == [END]
            assert bystander.execute("select 1").fetchone() == (1,)
        watched.wait_until_cleared(RUNBOOK)
    finally:
        watched.end()
    assert watched.cluster.psql("select count(*) from pg_stat_activity where application_name = 'shop-web'") == "12"


def test_a_reachable_client_commits_and_no_session_is_terminated(watched: WatchedServer) -> None:
    with idle_session(watched, "editor") as editor:

        def they_commit() -> str:
            editor.commit()
            return "wait"

        walk = watched.run_interactively(
            RUNBOOK,
            {"start": "yes", f"{ASK}/manual": "they commit", f"{ASK}/choose": they_commit, "manual": "a ticket"},
            age="1s",
        )
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)


def test_a_session_that_continues_before_the_confirmation_is_left_alone(watched: WatchedServer) -> None:
    with idle_session(watched, "editor") as editor:

        def it_goes_on() -> str:
            editor.execute("select 1")
            return AS_ASKED

        walk = watched.run_interactively(
            RUNBOOK,
            {"start": "yes", f"{ASK}/manual": "nobody", f"{ASK}/choose": "end", f"{END}/action": it_goes_on,
             "manual": "a ticket", "failed": "abort", "undo": "none"},
            age="1s",
        )  # fmt: skip
        assert editor.execute("select 1").fetchone() == (1,), walk.text
        assert walk.code == 0, walk.text
        (ended,) = walk.records("block.result", END)
        assert "already done: Terminate 0 sessions" in ended.text


def test_a_transaction_younger_than_the_limit_is_out_of_scope(watched: WatchedServer) -> None:
    with idle_session(watched, "editor") as editor:
        walk = watched.run_headless(RUNBOOK, *NOBODY, f"{END}=1", FOLLOW_UP, age="1h")
        assert walk.code == 7, walk.text
        assert walk.records("run.started") == [] and walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)


def test_deselected_sessions_stay(watched: WatchedServer) -> None:
    with idle_session(watched, "editor") as editor:
        walk = watched.run_headless(RUNBOOK, f"{ASK}=they need it", f"{ASK}=none", age="1s")
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)
