"""Who blocked whom, afterwards: the same for every console, in the replay and in the report."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording
from dba_console.reports.postmortem.gather import Asked
from dba_console.reports.postmortem.render import render
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import EpisodeRow
from tests.agent.agents import agent
from tests.background import session
from tests.clusters import FreshCluster
from tests.sql import query, wait_for
from tests.unit.reports.incidents import facts_of

LAST = "update orders set state = 'paid' where n = 1"
WAITED_S = 3.0


@pytest.fixture
def orders(reused_cluster: FreshCluster) -> Cluster:
    cluster = reused_cluster({})
    query(cluster, "create table orders (n int primary key, state text); insert into orders values (1, 'new')")
    return cluster


def panel_text(frame: Frame) -> str:
    detail = PANELS["locks"].full(frame, 120, ChartHistory())
    (episodes,) = [table for table in detail.tables if table.id == "episodes"]
    rows = [" ".join(cell.text for cell in row.cells) for row in episodes.rows]
    return "\n".join([*map(line_text, detail.head), *rows])


def test_the_root_its_state_and_statement_and_the_time_waited_are_shown_when_all_is_over(
    orders: Cluster, tmp_path: Path
) -> None:
    with agent(orders.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(lambda frame: frame.locks.episodes_since is not None)
        with closing(session(orders, name="batch")) as root, ExitStack() as stack:
            root.execute("begin")
            root.execute(LAST)
            pid = root.info.backend_pid
            waiting = [stack.enter_context(closing(session(orders, name=f"web-{number}"))) for number in (1, 2)]
            begun = time.monotonic()
            for each in waiting:
                each.pgconn.send_query(b"update orders set state = 'sent' where n = 1")
            pids = sorted(each.info.backend_pid for each in waiting)
            watch.until(
                lambda frame: any(row.waited_s >= 2 * WAITED_S for row in frame.locks.episodes), what="time waited"
            )
            during = panel_text(watch.next_frame())
            root.execute("rollback")
            lasted_s = time.monotonic() - begun
            wait_for(orders, "select not exists (select from pg_locks where not granted)", what="no waits")
        over = watch.until(lambda frame: all(row.until for row in frame.locks.episodes), what="the end")
        late = running.watch().until(lambda frame: frame.seq >= over.seq)
        watch.until(lambda frame: frame.seq >= late.seq)
        ended_us = over.at_us
        assert running.end() == 0
    assert f"{pid} " in during and " now " in during
    row = next(row for row in over.locks.episodes if row.pid == pid)
    assert (row.application, row.user, row.state, row.query) == ("batch", "postgres", "idle in transaction", LAST)
    assert sorted(one.pid for one in row.waiters) == pids
    assert [one.relation for one in row.waiters] == ["public.orders"] * 2
    assert 2 * WAITED_S <= row.waited_s <= 2 * lasted_s
    assert all(one.waited_s <= lasted_s for one in row.waiters)
    shown = panel_text(over)
    assert f"{pid} postgres batch idle in txn" in shown and LAST in shown
    check_all_show_the_same(running.session(), over, late)
    check_the_report_names_it(running.session(), ended_us, row)


def check_all_show_the_same(directory: Path, over: Frame, late: Frame) -> None:
    """A console that attached late, and a replay that jumps there, show what the first console shows."""
    with closing(Recording.open(directory)) as recording:
        picture = recording.picture_at(late.at_us)
        assert picture is not None
        replayed = derive(picture, ChartHistory())
    assert replayed.locks.episodes == late.locks.episodes
    seconds = [(row.pid, row.waited_s, [one.waited_s for one in row.waiters]) for row in late.locks.episodes]
    assert seconds == [(row.pid, row.waited_s, [one.waited_s for one in row.waiters]) for row in over.locks.episodes]


def check_the_report_names_it(directory: Path, ended_us: int, row: EpisodeRow) -> None:
    incident = facts_of(directory, Asked(from_us=ended_us - 60_000_000, to_us=ended_us))
    (facts,) = incident.blocking
    found = next(one for one in facts.blockers if f"pid {row.pid}," in one.who)
    assert (found.who, found.state, found.statement) == (f"pid {row.pid}, batch, user postgres", row.state, LAST)
    assert found.waited_s == pytest.approx(row.waited_s, abs=0.6)
    assert len(found.waiters) == 2
    for text in render(incident, ended_us):
        assert "Who blocked whom" in text and "idle in transaction" in text and found.who in text


def test_sessions_that_do_not_wait_for_each_other_are_no_episode(orders: Cluster, tmp_path: Path) -> None:
    with agent(orders.dsn(), tmp_path) as running:
        watch = running.watch()
        watch.until(lambda frame: frame.locks.episodes_since is not None)
        with closing(session(orders, name="batch")) as first, closing(session(orders, name="web")) as second:
            first.execute("begin")
            first.execute(LAST)
            second.execute("begin")
            second.execute("select * from orders")
            frame = watch.until(lambda frame: (frame.connections.idle_in_transaction or 0) >= 2)
            frame = watch.until(lambda later: later.mono_us - frame.mono_us > 3_000_000)
        ended_us = frame.at_us
        assert running.end() == 0
    assert (frame.locks.waiting, frame.locks.episodes, frame.locks.other_episodes) == (0, [], 0)
    assert facts_of(running.session(), Asked(from_us=ended_us - 60_000_000, to_us=ended_us)).blocking == ()
