"""A transaction left open on hot rows: named in time, and walked by the runbook `idle-in-transaction`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.idle_in_transaction import APPLICATION, BEHIND
from tests.background import Session, session, wait_until
from tests.runbooks.runs import ASKED, SMALL, WAIT_S, Scene, assert_named, incident

BOOK = "idle-in-transaction"
ASK, END = "ask-its-owner", "end-them"
NOBODY = (f"{ASK}=rang twice, nobody answers", f"{ASK}=end")
TOLD = "prevent-a-recurrence=five minutes, ticket 4711"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with incident(BOOK, SMALL) as made:
        yield made


@contextmanager
def left_open(scene: Scene, name: str) -> Iterator[Session]:
    """A session that has been idle in its transaction for more than a second, and nobody else is at work."""
    scene.rest()
    with psycopg.connect(scene.cluster.dsn(user="reporting", dbname=DATABASE, application_name=name)) as connection:
        connection.execute("select txid_current()")
        wait_until_idle(scene, name)
        yield connection


def wait_until_idle(scene: Scene, application: str, for_s: float = 1.1) -> None:
    """Return when it has been idle in its transaction for so long."""
    where = (
        f"application_name = '{application}' and state = 'idle in transaction'"
        f" and state_change < clock_timestamp() - make_interval(secs => {for_s})"
    )
    with closing(session(scene.cluster)) as asking:
        idle = f"select 1 from pg_stat_activity where {where}"
        wait_until(lambda: asking.execute(idle).fetchone(), WAIT_S, what="an idle transaction")


def test_the_session_is_named_an_unreachable_one_is_terminated_and_the_waiters_continue(scene: Scene) -> None:
    try:
        assert_named(scene.named())
        frame = scene.frame(lambda frame: (frame.locks.waiting or 0) >= BEHIND, "sessions behind it")
        (root, *_) = frame.locks.trees
        assert (root.application, root.state) == (APPLICATION, "idle in transaction")
        wait_until_idle(scene, APPLICATION, 2.1)
        with psycopg.connect(scene.cluster.dsn(application_name="bystander"), autocommit=True) as bystander:
            walk = scene.headless(BOOK, *NOBODY, f"{END}=1", TOLD)
            assert walk.code == 0, walk.text
            assert walk.done() == [END]
            assert bystander.execute("select 1").fetchone() == (1,)
        scene.cleared(BOOK)
    finally:
        scene.end()
    assert scene.cluster.psql("select count(*) from pg_stat_activity where application_name = 'shop-web'") == "12"


def test_a_reachable_client_commits_and_no_session_is_terminated(scene: Scene) -> None:
    with left_open(scene, "editor") as editor:

        def they_commit() -> str:
            editor.commit()
            return "wait"

        walk = scene.person(
            BOOK, {"start": "yes", f"{ASK}/manual": "they commit", f"{ASK}/choose": they_commit, "manual": "a ticket"},
            age="1s",
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)


def test_a_session_that_continues_before_the_confirmation_is_left_alone(scene: Scene) -> None:
    with left_open(scene, "editor") as editor:

        def it_goes_on() -> str:
            editor.execute("select 1")
            return ASKED

        walk = scene.person(
            BOOK,
            {"start": "yes", f"{ASK}/manual": "nobody", f"{ASK}/choose": "end", f"{END}/action": it_goes_on,
             "manual": "a ticket", "failed": "abort", "undo": "none"},
            age="1s",
        )  # fmt: skip
        assert editor.execute("select 1").fetchone() == (1,), walk.text
        assert walk.code == 0, walk.text
        (ended,) = walk.records("block.result", END)
        assert "already done: Terminate 0 sessions" in ended.text


def test_a_transaction_younger_than_the_limit_is_out_of_scope(scene: Scene) -> None:
    with left_open(scene, "editor") as editor:
        walk = scene.headless(BOOK, *NOBODY, f"{END}=1", TOLD, age="1h")
        assert walk.code == 7, walk.text
        assert walk.records("run.started") == [] and walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)


def test_deselected_sessions_stay(scene: Scene) -> None:
    with left_open(scene, "editor") as editor:
        walk = scene.headless(BOOK, f"{ASK}=they need it", f"{ASK}=none", age="1s")
        assert walk.code == 0, walk.text
        assert walk.done() == []
        assert editor.execute("select 1").fetchone() == (1,)
