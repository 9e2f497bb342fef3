"""Standbys that lag, stop, and hold commits up, and subscribers: on real servers, as an agent reads them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster, scratch_directory
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.replication.panel import derive_replication
from dba_console.watch.replication.standby_rules import StandbyLimits
from tests.agent.test_standby import streaming_standby
from tests.background import session
from tests.clusters import FreshCluster, binaries_of
from tests.findings.collector import local_agent
from tests.findings.test_wal import MB, WAL, write
from tests.sql import query, wait_for

SHORT_LIMITS = Limits(StandbyLimits(lag_warn_s=15.0, lag_bytes=32 * MB, lag_bytes_s=0.0, standby_known_s=5.0))


RECOVERY = ("wal-receiver-down", "replay-paused")
NO_RECEIVER = "select not exists (select from pg_stat_wal_receiver)"
STREAMING = "select 1 from pg_stat_replication where state = 'streaming'"
REPLAYED = "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication"
RECEIVED = f"select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) >= {32 * MB}"
Replicated = Callable[[int | None], tuple[Cluster, Cluster]]


@pytest.fixture(scope="module")
def replicated() -> Iterator[Replicated]:
    """A primary and its standby by major version, both running, the standby streaming."""
    with ExitStack() as stack:
        made: dict[int | None, tuple[Cluster, Cluster]] = {}

        def of(major: int | None) -> tuple[Cluster, Cluster]:
            if major not in made:
                primary = stack.enter_context(Cluster(binaries_of(major), durable=False))
                made[major] = primary, stack.enter_context(streaming_standby(primary))
            for cluster in made[major]:
                cluster.start()
            query(made[major][1], "select pg_wal_replay_resume()")
            wait_for(made[major][0], STREAMING)
            return made[major]

        yield of


def test_a_standby_with_paused_replay_is_behind_on_either_side(replicated: Replicated) -> None:
    primary, standby = replicated(None)
    wait_for(primary, REPLAYED, what="a standby that has caught up")
    with (
        local_agent(primary.dsn(), *WAL, limits=SHORT_LIMITS) as here,
        local_agent(standby.dsn(), *WAL, limits=SHORT_LIMITS) as there,
    ):
        here.tick(10)
        there.tick(10)
        assert here.rows == there.rows == []
        query(standby, "select pg_wal_replay_pause()")
        wait_for(standby, "select pg_get_wal_replay_pause_state() = 'paused'", what="replay to pause")
        write(primary, 34)
        wait_for(standby, RECEIVED, what="the standby to receive it")
        found = here.until("replication-lag", within_s=30)
        own = there.until("replication-lag", within_s=30)
        query(standby, "select pg_wal_replay_resume()")
        wait_for(primary, REPLAYED, what="a standby that has caught up")
        here.until_gone("replication-lag", within_s=40)
        there.until_gone("replication-lag", within_s=40)
    assert found.evidence["lag_bytes"] >= 32 * MB
    assert found.text.endswith("most of it not replayed")
    assert "replay is paused" in own.text


def test_a_replay_paused_before_any_commit_is_reported_by_the_first_reading(replicated: Replicated) -> None:
    _, standby = replicated(None)
    standby.restart()
    query(standby, "select pg_wal_replay_pause()")
    wait_for(standby, "select pg_get_wal_replay_pause_state() = 'paused'", what="replay to pause")
    with local_agent(standby.dsn(), *RECOVERY, calm_s=1) as agent:
        [found] = agent.open("replay-paused")
        query(standby, "select pg_wal_replay_resume()")
        agent.until_gone("replay-paused", within_s=6)
    assert found.severity == "warning"


@pytest.mark.parametrize("major", [14, 18])
def test_a_standby_whose_receiver_cannot_connect_is_reported_by_a_console_started_later(
    major: int, replicated: Replicated
) -> None:
    primary, standby = replicated(major)
    wait_for(primary, REPLAYED, what="a standby that has caught up")
    with local_agent(standby.dsn(), *RECOVERY) as before, conninfo(standby, "host=/nowhere"):
        wait_for(standby, NO_RECEIVER, what="the receiver to end")
        before.tick(20)
        assert before.rows == [], "a primary that restarts takes as long"
        before.until("wal-receiver-down", within_s=40)
        standby.restart()
        with local_agent(standby.dsn(), *RECOVERY) as later:
            found = later.until("wal-receiver-down", within_s=60)
            standby.reload({"primary_conninfo": primary.dsn()})
            wait_for(primary, STREAMING)
            later.until_gone("wal-receiver-down", within_s=30)
    assert found.text.startswith("This standby receives no WAL: no WAL receiver is streaming since the server")


def test_an_archive_only_standby_has_no_receiver_by_design(replicated: Replicated) -> None:
    _, standby = replicated(None)
    with conninfo(standby, ""):
        standby.restart({"restore_command": "false"})
        with local_agent(standby.dsn(), *RECOVERY) as agent:
            agent.tick(80)
            assert agent.changes == []
    standby.restart({"restore_command": ""})


def test_a_role_without_rights_gets_no_report_of_hidden_values(replicated: Replicated) -> None:
    primary, standby = replicated(None)
    query(primary, "drop role if exists bare")
    query(primary, "create role bare login")
    wait_for(standby, "select 1 from pg_roles where rolname = 'bare'", what="the role on the standby")
    with local_agent(standby.dsn(user="bare"), *RECOVERY) as agent:
        agent.tick(10)
        now = agent.picture.current["pg.replication"].value()
        assert (now.has_receiver, now.receiver_status, now.primary_conninfo_set) == (True, None, None)
        assert agent.changes == []


def test_a_delayed_standby_is_behind_by_design(replicated: Replicated) -> None:
    primary, standby = replicated(None)
    standby.reload({"recovery_min_apply_delay": "1h"})
    wait_for(standby, "select 1 from pg_settings where name = 'recovery_min_apply_delay' and setting <> '0'")
    with local_agent(standby.dsn(), *WAL, limits=SHORT_LIMITS) as agent:
        query(primary, "create table delayed ()")  # a commit is what waits, and all that follows it
        write(primary, 34)
        try:
            wait_for(standby, RECEIVED, 30, what="the standby to receive it")
            agent.tick(40)
        finally:
            standby.reload({"recovery_min_apply_delay": "0"})
        panel = derive_replication(PictureFacts(agent.picture, agent.history))
    assert {change.finding.id for change in agent.changes} == {"standby-delayed"}, "it says so, and warns of nothing"
    assert (
        agent.rows[0].severity == "info" and "1h00 after it was made (recovery_min_apply_delay)" in agent.rows[0].text
    )
    assert panel.apply_delay_s == 3600.0
    assert (panel.lag_bytes or 0) >= 32 * MB


def test_queries_cancelled_by_replay_are_counted_and_those_that_finish_are_not(replicated: Replicated) -> None:
    primary, standby = replicated(None)
    query(primary, "create table wanted as select 1 as n")
    wait_for(primary, REPLAYED, what="a standby that has caught up")
    standby.reload({"max_standby_streaming_delay": "0"})
    with local_agent(standby.dsn(), "standby-conflicts") as agent:
        query(standby, "select n from wanted")
        agent.tick(10)
        assert agent.changes == []
        with psycopg.connect(standby.dsn(application_name="report")) as reader:
            reader.execute("select n from wanted")
            query(primary, "drop table wanted")
            wait_for(standby, "select 1 from pg_stat_database_conflicts where confl_lock > 0", what="it cancelled")
            reader.close()
        found = agent.until("standby-conflicts", within_s=20)
    standby.reload({"max_standby_streaming_delay": "30s"})
    assert found.severity == "info"
    assert found.text.startswith("1 query was cancelled on this standby by replay within 10m")


@pytest.mark.parametrize("major", [14, 18])
def test_catalogs_are_read_on_a_standby_too(major: int, replicated: Replicated) -> None:
    primary, standby = replicated(major)
    query(primary, "create table numbered (id serial); select setval('numbered_id_seq', 2060000000)")
    there = "select count(*) = 1 from pg_sequences where sequencename = 'numbered_id_seq' and last_value = 2060000000"
    wait_for(standby, there, what="a standby that has caught up")
    with local_agent(
        standby.dsn(), "sequence-full", "autovacuum-off", "autovacuum-behind", "subscription-failing"
    ) as agent:
        assert [row.id for row in agent.rows] == ["sequence-full:postgres.public.numbered_id_seq"]
        for part in ("pg.catalog", "pg.dead_rows", "pg.subscriptions"):
            assert (agent.picture.latest[part].part.status, agent.picture.latest[part].part.note) == ("ok", None)
    query(primary, "drop table numbered")


@contextmanager
def conninfo(standby: Cluster, value: str) -> Iterator[None]:
    """The standby's primary_conninfo, as it was again after the block."""
    before = query(standby, "show primary_conninfo")
    standby.reload({"primary_conninfo": value})
    try:
        yield
    finally:
        standby.reload({"primary_conninfo": str(before)})


@pytest.mark.parametrize("major", [14, 18])
def test_a_stopped_standby_is_missed_and_a_restarting_one_is_not(major: int, replicated: Replicated) -> None:
    primary, standby = replicated(major)
    with local_agent(primary.dsn(), *WAL, limits=SHORT_LIMITS) as agent:
        agent.tick(10)
        standby.stop()
        agent.tick(6)
        standby.start()
        wait_for(primary, STREAMING)
        agent.tick(30)
        assert agent.changes == []
        standby.stop()
        found = agent.until("standby-gone", within_s=20)
        standby.start()
        wait_for(primary, STREAMING)
        agent.until_gone("standby-gone", within_s=6)
    assert found.severity == "warning"


def test_a_restart_of_the_primary_is_neither_a_lost_standby_nor_one_that_receives_nothing(
    replicated: Replicated,
) -> None:
    primary, standby = replicated(None)
    with (
        local_agent(primary.dsn(), *WAL, limits=SHORT_LIMITS) as here,
        local_agent(standby.dsn(), *RECOVERY) as there,
    ):
        here.tick(10)
        there.tick(4)
        primary.stop()
        wait_for(standby, NO_RECEIVER, what="the receiver to end")
        here.tick(30)
        there.tick(20)
        primary.start()
        here.tick(2)
        wait_for(primary, STREAMING)
        here.tick(30)
        there.tick(30)
        assert here.changes == there.changes == []


def test_commits_that_hang_because_the_synchronous_standby_is_gone_are_critical(replicated: Replicated) -> None:
    primary, standby = replicated(None)
    query(primary, "create table t (n int)")
    primary.reload({"synchronous_standby_names": "*", "synchronous_commit": "on"})
    wait_for(primary, "select 1 from pg_stat_replication where sync_state = 'sync'", what="sync")
    with local_agent(primary.dsn(), *WAL, limits=SHORT_LIMITS) as agent:
        agent.tick(10)
        standby.stop()
        with waiting_commit(primary):
            found = agent.until("standby-gone", severity="critical", within_s=20)
            primary.reload({"synchronous_standby_names": "", "synchronous_commit": "off"})
    assert "commits wait for a synchronous standby (1 session waits now)" in found.text


@contextmanager
def waiting_commit(primary: Cluster) -> Iterator[None]:
    """A session whose commit waits for a standby; it ends when the commit does."""
    connection = session(primary, name="order")
    thread = threading.Thread(target=connection.execute, args=("insert into t values (1)",), daemon=True)
    thread.start()
    try:
        wait_for(primary, "select 1 from pg_stat_activity where wait_event = 'SyncRep'", what="a wait")
        yield
        thread.join(60)
    finally:
        if thread.is_alive():
            connection.cancel_safe()
            thread.join(10)
        connection.close()


@pytest.mark.parametrize("major", [14, 18])
def test_a_disabled_subscription_is_missed_as_a_subscriber(major: int, reused_cluster: FreshCluster) -> None:
    publisher, subscriber = reused_cluster({"wal_level": "logical"}, major=major), reused_cluster(major=major)
    for cluster in (publisher, subscriber):
        query(cluster, "create table orders (id int primary key)")
    query(publisher, "insert into orders values (1)")
    query(publisher, "create publication all_orders for table orders")
    query(subscriber, f"create subscription shop connection '{publisher.dsn()}' publication all_orders")
    wait_for(subscriber, "select 1 from orders", what="the table copied")
    wait_for(publisher, "select count(*) = 1 from pg_stat_replication", what="one walsender")
    with local_agent(publisher.dsn(), *WAL, limits=SHORT_LIMITS) as agent:
        agent.tick(20)
        assert agent.changes == [], "the worker that copied the table is not missed"
        query(subscriber, "alter subscription shop disable")
        wait_for(publisher, "select count(*) = 0 from pg_stat_replication", what="it disabled")
        found = agent.until("standby-gone", within_s=20)
    assert found.text.startswith("Subscriber shop is gone")


def test_a_base_backup_that_ends_is_not_missed(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = reused_cluster()
    directory = Path(scratch_directory()) / f"dba-console-{tmp_path.name}-backup"
    known = Limits(StandbyLimits(standby_known_s=0.0))
    try:
        with local_agent(cluster.dsn(), *WAL, limits=known) as agent, running_base_backup(cluster, directory):
            wait_for(cluster, "select 1 from pg_stat_replication", what="a base backup")
            agent.tick(6)
            assert agent.picture.current["pg.replication"].value().standbys
        seen_after = agent.rows
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    assert seen_after == []


@contextmanager
def running_base_backup(cluster: Cluster, directory: Path) -> Iterator[None]:
    """A slow base backup, over when the block is."""
    arguments = ["-D", str(directory), "-d", cluster.dsn(), "-r", "8M", "-c", "fast", "--no-sync"]
    thread = threading.Thread(target=cluster.run, args=("pg_basebackup", *arguments))
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
