"""Archives that fail, slots nobody reads, standbys that lag and go: on real servers, as an agent reads them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster, scratch_directory
from dba_console.findings import wal
from dba_console.limits import Limits
from dba_console.limits.wal import WalLimits
from dba_console.samples.registry import PARTS
from tests.agent.test_standby import standby_of
from tests.background import session, wait_until
from tests.conftest import FreshCluster
from tests.findings.eyes import eyes
from tests.findings.watching import watching

WAL = tuple(rule.name for rule in wal.RULES)
MB = 1 << 20


def write(cluster: Cluster, megabytes: int) -> None:
    """So much WAL, and nothing else."""
    for _ in range(megabytes):
        cluster.psql(f"select pg_logical_emit_message(false, 'test', repeat('x', {MB}))")


def switch(cluster: Cluster, files: int = 1) -> None:
    """Finish so many segments."""
    for _ in range(files):
        cluster.psql("select pg_logical_emit_message(false, 'test', 'x')")
        cluster.psql("select pg_switch_wal()")


# -- archiving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", [14, 18])
def test_an_archive_command_that_fails_is_told_until_it_works(major: int, fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"}, major=major)
    switch(cluster)
    wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where archived_count > 0"), what="one archived")
    with eyes(cluster.dsn(), *WAL) as seen:
        assert seen.rows == []
        cluster.reload({"archive_command": "false"})
        wait_until(lambda: cluster.psql("show archive_command") == "false")
        switch(cluster)
        wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where failed_count > 0"), what="one failed")
        first = seen.until("archive-failing", within_s=2 * PARTS["pg.archiver"].every_s)
        wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where failed_count >= 3"), what="three failed")
        late = seen.until("archive-failing", severity="critical", within_s=20)
        cluster.reload({"archive_command": "true"})
        switch(cluster)
        wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where last_archived_time > last_failed_time"))
        seen.until_gone("archive-failing", within_s=30)
    assert str(first.evidence["last_failed_wal"]).startswith("00000001")
    assert first.evidence["archive_ready_count"] == 1
    assert late.evidence["archive_failures_in_a_row"] >= 3


def test_a_failure_is_told_in_a_recording_within_five_seconds(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "false"})
    with watching(cluster.dsn(), tmp_path) as seen:
        switch(cluster)
        failed = "select extract(epoch from last_failed_time) from pg_stat_archiver where failed_count > 0"
        failed_us = int(float(wait_until(lambda: cluster.psql(failed), what="a failure")) * 1e6)
        raised = seen.raised("archive-failing")
    assert raised.kind == "finding.raised"
    assert raised.wall_us - failed_us <= 5_000_000


def test_an_archive_nobody_writes_to_is_no_finding_however_old(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"})
    switch(cluster)
    wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where archived_count > 0"), what="one archived")
    with eyes(cluster.dsn(), *WAL, calm_s=300) as seen:
        assert seen.changes == []


def test_resetting_the_statistics_of_the_archiver_is_no_finding(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"})
    switch(cluster)
    wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where archived_count > 0"), what="one archived")
    with eyes(cluster.dsn(), *WAL, calm_s=20) as seen:
        cluster.psql("select pg_stat_reset_shared('archiver')")
        seen.tick(20)
        assert seen.changes == []


def test_files_that_wait_for_a_slow_archive_are_a_backlog(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "sleep 30"})
    with eyes(cluster.dsn(), *WAL, limits=Limits(wal=WalLimits(backlog_files=3))) as seen:
        switch(cluster, 4)
        found = seen.until("archive-backlog", within_s=10)
    assert (found.severity, found.evidence["archive_ready_count"]) == ("warning", 4)
    assert "4 files (64.0 MB) wait, none was archived yet" in found.text


def test_a_role_that_may_not_list_the_backlog_is_told_of_the_failure(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "false"})
    cluster.psql("create role watcher login")
    switch(cluster)
    wait_until(lambda: cluster.psql("select 1 from pg_stat_archiver where failed_count > 0"), what="a failure")
    with eyes(cluster.dsn(user="watcher"), *WAL) as seen:
        (found,) = seen.rows
    assert found.id == "archive-failing"
    assert found.evidence["archive_ready_count"] is None


# -- slots -----------------------------------------------------------------------------------------------------------

LITTLE = Limits(wal=WalLimits(slot_least_bytes=4 * MB, slot_retained_bytes=20 * MB))


def test_a_fresh_slot_is_no_finding_and_one_that_keeps_much_is_one(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.psql("select pg_create_physical_replication_slot('old_replica', true)")
    with eyes(cluster.dsn(), *WAL, limits=LITTLE, calm_s=20) as seen:
        assert seen.rows == []
        write(cluster, 24)
        found = seen.until("slot-retention", within_s=6)
        assert found.id == "slot-retention:old_replica"
        assert found.evidence["retained_bytes"] >= 20 * MB
        assert found.evidence["available_bytes"] > 0, "the disk of pg_wal is found"
        cluster.psql("select pg_drop_replication_slot('old_replica')")
        seen.until_gone("slot-retention", within_s=30)


def test_a_slot_that_grows_is_told_with_its_end(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"max_slot_wal_keep_size": "512MB"})
    cluster.psql("select pg_create_physical_replication_slot('old_replica', true)")
    limits = Limits(wal=WalLimits(slot_least_bytes=4 * MB))
    with eyes(cluster.dsn(), *WAL, limits=limits, calm_s=10) as seen:
        for _ in range(12):
            write(cluster, 4)
            seen.tick()
        (found,) = seen.rows
    assert found.severity == "critical"
    assert "the slot is lost (max_slot_wal_keep_size) in" in found.text
    assert 1 * MB < found.evidence["retained_bytes_per_s"] < 6 * MB


@pytest.mark.parametrize("major", [14, 17])
def test_a_slot_whose_wal_was_removed_is_lost(major: int, fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster(
        {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}, major=major
    )
    cluster.psql("select pg_create_physical_replication_slot('old_replica', true)")
    with eyes(cluster.dsn(), *WAL) as seen:
        switch(cluster, 5)
        cluster.psql("checkpoint")
        switch(cluster, 2)
        cluster.psql("checkpoint")
        found = seen.until("slot-lost", within_s=6)
    assert found.id == "slot-lost:old_replica"
    assert "its standby cannot go on and must be built anew" in found.text


def test_what_a_slot_keeps_is_told_through_a_restart_of_the_server(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.psql("select pg_create_physical_replication_slot('old_replica', true)")
    write(cluster, 24)
    with eyes(cluster.dsn(), *WAL, limits=LITTLE) as seen:
        assert [row.id for row in seen.rows] == ["slot-retention:old_replica"]
        told = len(seen.changes)
        cluster.stop()
        seen.tick(60)
        cluster.start()
        seen.tick(20)
        assert [row.id for row in seen.rows] == ["slot-retention:old_replica"]
        assert seen.changes[told:] == []


# -- standbys --------------------------------------------------------------------------------------------------------

QUICK = Limits(wal=WalLimits(lag_warn_s=15.0, lag_bytes=64 * MB, standby_known_s=5.0))


@contextmanager
def replicated(fresh_cluster: FreshCluster, major: int | None = None) -> Iterator[tuple[Cluster, Cluster]]:
    primary = fresh_cluster(major=major)
    with standby_of(primary) as standby:
        yield primary, standby


def replayed(primary: Cluster) -> bool:
    return primary.psql("select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication") == "t"


def test_a_standby_that_pauses_is_behind_on_either_side(fresh_cluster: FreshCluster) -> None:
    with replicated(fresh_cluster) as (primary, standby):
        wait_until(lambda: replayed(primary), what="a standby that has caught up")
        with eyes(primary.dsn(), *WAL, limits=QUICK) as here, eyes(standby.dsn(), *WAL, limits=QUICK) as there:
            here.tick(10)
            there.tick(10)
            assert here.rows == there.rows == []
            standby.psql("select pg_wal_replay_pause()")
            write(primary, 70)
            found = here.until("replication-lag", within_s=30)
            own = there.until("replication-lag", within_s=30)
            standby.psql("select pg_wal_replay_resume()")
            wait_until(lambda: replayed(primary), what="a standby that has caught up")
            here.until_gone("replication-lag", within_s=40)
            there.until_gone("replication-lag", within_s=40)
    assert found.evidence["lag_bytes"] >= 64 * MB
    assert found.text.endswith("most of it not replayed")
    assert "replay is paused" in own.text


@pytest.mark.parametrize("major", [14, 18])
def test_a_standby_that_is_stopped_is_missed_and_one_that_restarts_is_not(
    major: int, fresh_cluster: FreshCluster
) -> None:
    with replicated(fresh_cluster, major) as (primary, standby), eyes(primary.dsn(), *WAL, limits=QUICK) as seen:
        seen.tick(10)
        standby.stop()
        seen.tick(6)
        standby.start()
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where state = 'streaming'"))
        seen.tick(30)
        assert seen.changes == []
        standby.stop()
        found = seen.until("standby-gone", within_s=20)
        standby.start()
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where state = 'streaming'"))
        seen.until_gone("standby-gone", within_s=6)
    assert found.severity == "warning"


def test_a_restart_of_the_primary_is_no_standby_that_is_gone(fresh_cluster: FreshCluster) -> None:
    with replicated(fresh_cluster) as (primary, _), eyes(primary.dsn(), *WAL, limits=QUICK) as seen:
        seen.tick(10)
        primary.stop()
        seen.tick(30)
        primary.start()
        seen.tick(2)
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where state = 'streaming'"))
        seen.tick(30)
        assert seen.changes == []


def test_commits_that_hang_because_the_synchronous_standby_is_gone_are_critical(fresh_cluster: FreshCluster) -> None:
    with replicated(fresh_cluster) as (primary, standby):
        primary.psql("create table t (n int)")
        primary.reload({"synchronous_standby_names": "*", "synchronous_commit": "on"})
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where sync_state = 'sync'"), what="sync")
        with eyes(primary.dsn(), *WAL, limits=QUICK) as seen:
            seen.tick(10)
            standby.stop()
            with committing(primary):
                found = seen.until("standby-gone", severity="critical", within_s=20)
                primary.reload({"synchronous_standby_names": ""})
    assert "commits wait for a synchronous standby (1 session waits now)" in found.text


@contextmanager
def committing(primary: Cluster) -> Iterator[None]:
    """A session whose commit waits for a standby; it ends when the commit does."""
    connection = session(primary, name="order")
    thread = threading.Thread(target=connection.execute, args=("insert into t values (1)",), daemon=True)
    thread.start()
    try:
        wait_until(lambda: primary.psql("select 1 from pg_stat_activity where wait_event = 'SyncRep'"), what="a wait")
        yield
        thread.join(10)
    finally:
        if thread.is_alive():
            connection.cancel_safe()
            thread.join(10)
        connection.close()


@pytest.mark.parametrize("major", [14, 18])
def test_a_subscription_that_is_disabled_is_missed_as_a_subscriber(major: int, fresh_cluster: FreshCluster) -> None:
    publisher, subscriber = fresh_cluster({"wal_level": "logical"}, major=major), fresh_cluster(major=major)
    for cluster in (publisher, subscriber):
        cluster.psql("create table orders (id int primary key)")
    publisher.psql("insert into orders values (1)")
    publisher.psql("create publication all_orders for table orders")
    subscriber.psql(f"create subscription shop connection '{publisher.dsn()}' publication all_orders")
    wait_until(lambda: subscriber.psql("select 1 from orders"), what="the table copied")
    wait_until(lambda: publisher.psql("select count(*) = 1 from pg_stat_replication") == "t", what="one walsender")
    with eyes(publisher.dsn(), *WAL, limits=QUICK) as seen:
        seen.tick(20)
        assert seen.changes == [], "the worker that copied the table is not missed"
        subscriber.psql("alter subscription shop disable")
        wait_until(lambda: publisher.psql("select count(*) = 0 from pg_stat_replication") == "t", what="it disabled")
        found = seen.until("standby-gone", within_s=20)
    assert found.text.startswith("Subscriber shop is gone")


def test_a_base_backup_that_ends_is_not_missed(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    place = Path(scratch_directory()) / f"dba-console-{tmp_path.name}-backup"
    known = Limits(wal=WalLimits(standby_known_s=0.0))
    try:
        with eyes(cluster.dsn(), *WAL, limits=known) as seen, backing_up(cluster, place):
            wait_until(lambda: cluster.psql("select 1 from pg_stat_replication"), what="a base backup")
            seen.tick(6)
            assert seen.picture.current["pg.replication"].value().standbys
        seen_after = seen.rows
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert seen_after == []


@contextmanager
def backing_up(cluster: Cluster, place: Path) -> Iterator[None]:
    """A slow base backup, over when the block is."""
    arguments = ["-D", str(place), "-d", cluster.dsn(), "-r", "8M", "-c", "fast", "--no-sync"]
    thread = threading.Thread(target=cluster.run, args=("pg_basebackup", *arguments))
    thread.start()
    try:
        yield
    finally:
        thread.join(60)


# -- where WAL lies --------------------------------------------------------------------------------------------------


def test_wal_on_tmpfs_is_told(tmp_path: Path) -> None:
    memory = Path("/dev/shm") / f"dba-console-{tmp_path.name}"
    try:
        with Cluster(data_directory=memory, durable=False) as cluster, eyes(cluster.dsn(), *WAL) as seen:
            found = seen.until("wal-on-tmpfs", within_s=6)
    finally:
        shutil.rmtree(memory, ignore_errors=True)
    assert found.text.startswith("Data and WAL lie on tmpfs (/dev/shm)")
