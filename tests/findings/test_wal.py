"""Archives that fail and slots without a reader: on real servers, read as by an agent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.replication.archiving_rules import ArchivingLimits
from dba_console.watch.replication.rules import FAMILY
from dba_console.watch.replication.slot_rules import SlotLimits
from tests.clusters import FreshCluster
from tests.findings.collector import local_agent
from tests.sql import query, wait_for

TMPFS = "wal-on-tmpfs"
WAL = tuple(rule.name for rule in FAMILY.rules if rule.name != TMPFS)
"""Without the one about memory disks: clusters of tests may lie on one. It is silent in `test_disks`."""
MB = 1 << 20


def write(cluster: Cluster, megabytes: int) -> None:
    """Write `megabytes` of WAL, and nothing else."""
    message = f"pg_logical_emit_message(false, 'test', repeat('x', {MB}))"
    query(cluster, f"select count({message}) from generate_series(1, {megabytes})")


def switch(cluster: Cluster, files: int = 1) -> None:
    """Finish `files` segments."""
    for _ in range(files):
        query(cluster, "select pg_logical_emit_message(false, 'test', 'x')")
        query(cluster, "select pg_switch_wal()")


# -- archiving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", [14, 18])
def test_an_archive_command_that_fails_is_reported_until_it_works(major: int, fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"}, major=major)
    switch(cluster)
    wait_for(cluster, "select 1 from pg_stat_archiver where archived_count > 0", what="one archived")
    with local_agent(cluster.dsn(), *WAL) as agent:
        assert agent.rows == []
        cluster.reload({"archive_command": "false"})
        wait_for(cluster, "select current_setting('archive_command') = 'false'")
        switch(cluster)
        wait_for(cluster, "select 1 from pg_stat_archiver where failed_count > 0", what="one failed")
        first = agent.until("archive-failing", within_s=5)
        # how many had failed before it was looked at for the first time, cannot be known: three more than those
        three = int(str(first.evidence["archive_failed_count"])) + 2
        wait_for(cluster, f"select 1 from pg_stat_archiver where failed_count >= {three}", what="three failed")
        late = agent.until("archive-failing", severity="critical", within_s=20)
        cluster.reload({"archive_command": "true"})
        switch(cluster)
        wait_for(cluster, "select 1 from pg_stat_archiver where last_archived_time > last_failed_time")
        agent.until_gone("archive-failing", within_s=30)
    assert str(first.evidence["last_failed_wal"]).startswith("00000001")
    assert first.evidence["archive_ready_count"] == 1
    assert late.evidence["archive_failures_in_a_row"] >= 3


def test_an_archive_without_traffic_however_old_or_with_reset_statistics_is_not_a_finding(
    fresh_cluster: FreshCluster,
) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"})
    switch(cluster)
    wait_for(cluster, "select 1 from pg_stat_archiver where archived_count > 0", what="one archived")
    with local_agent(cluster.dsn(), *WAL, calm_s=20) as agent:
        agent.tick(75, every_s=4)
        query(cluster, "select pg_stat_reset_shared('archiver')")
        agent.tick(20)
        assert agent.changes == []


def test_files_that_wait_for_a_slow_archive_are_a_backlog(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "sleep 30"})
    with local_agent(cluster.dsn(), *WAL, limits=Limits(ArchivingLimits(backlog_files=3))) as agent:
        switch(cluster, 4)
        found = agent.until("archive-backlog", within_s=10)
    assert (found.severity, found.evidence["archive_ready_count"]) == ("warning", 4)
    assert "4 files (64.0 MB) wait, none was archived yet" in found.text


def test_a_role_that_may_not_list_the_backlog_still_gets_the_failure(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "false"})
    query(cluster, "create role watcher login")
    switch(cluster)
    wait_for(cluster, "select 1 from pg_stat_archiver where failed_count > 0", what="a failure")
    with local_agent(cluster.dsn(user="watcher"), *WAL) as agent:
        (found,) = agent.rows
    assert found.id == "archive-failing"
    assert found.evidence["archive_ready_count"] is None and "pg_monitor" in found.text


# -- slots -----------------------------------------------------------------------------------------------------------

LOW_LIMITS = Limits(SlotLimits(slot_least_bytes=4 * MB, slot_retained_bytes=20 * MB))


def test_a_fresh_slot_is_not_a_finding_and_one_that_retains_much_wal_is(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "select pg_create_physical_replication_slot('old_replica', true)")
    with local_agent(cluster.dsn(), *WAL, limits=LOW_LIMITS, calm_s=20) as agent:
        assert agent.rows == []
        write(cluster, 24)
        found = agent.until("slot-retention", within_s=6)
        assert found.id == "slot-retention:old_replica"
        assert found.evidence["retained_bytes"] >= 20 * MB
        assert found.evidence["available_bytes"] > 0, "the disk of pg_wal is found"
        query(cluster, "select pg_drop_replication_slot('old_replica')")
        agent.until_gone("slot-retention", within_s=30)


def test_a_growing_slot_is_reported_with_the_time_of_its_limit(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_slot_wal_keep_size": "512MB"})
    query(cluster, "select pg_create_physical_replication_slot('old_replica', true)")
    limits = Limits(SlotLimits(slot_least_bytes=4 * MB))
    with local_agent(cluster.dsn(), *WAL, limits=limits, calm_s=10) as agent:
        for _ in range(12):
            write(cluster, 4)
            agent.tick()
        (found,) = agent.rows
    assert found.severity == "critical"
    assert "the slot is lost (max_slot_wal_keep_size) in" in found.text
    assert 1 * MB < found.evidence["retained_bytes_per_s"] < 6 * MB


def test_a_slot_near_its_limit_is_reported_before_it_is_lost(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_slot_wal_keep_size": "96MB", "max_wal_size": "1GB"})
    query(cluster, "select pg_create_physical_replication_slot('old_replica', true)")
    write(cluster, 72)
    # Whole segments count: where in one the slot begins decides how much more is safe.
    while int(query(cluster, "select safe_wal_size from pg_replication_slots")) > 6 * MB:
        write(cluster, 2)
    with local_agent(cluster.dsn(), *WAL, calm_s=2) as agent:
        found = agent.until("slot-retention", within_s=6)
    assert found.severity in ("warning", "critical")
    assert "the slot is lost (max_slot_wal_keep_size)" in found.text


@pytest.mark.parametrize("major", [14, 17])
def test_a_slot_whose_wal_was_removed_is_lost(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(
        {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}, major=major
    )
    query(cluster, "select pg_create_physical_replication_slot('old_replica', true)")
    with local_agent(cluster.dsn(), *WAL) as agent:
        switch(cluster, 5)
        query(cluster, "checkpoint")
        switch(cluster, 2)
        query(cluster, "checkpoint")
        found = agent.until("slot-lost", within_s=6)
    assert found.id == "slot-lost:old_replica"
    assert "its standby cannot continue and must be rebuilt" in found.text


def test_the_retained_wal_of_a_slot_is_reported_through_a_server_restart(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "select pg_create_physical_replication_slot('old_replica', true)")
    write(cluster, 24)
    with local_agent(cluster.dsn(), *WAL, limits=LOW_LIMITS) as agent:
        assert [row.id for row in agent.rows] == ["slot-retention:old_replica"]
        reported = len(agent.changes)
        cluster.stop()
        agent.tick(60)
        cluster.start()
        agent.tick(20)
        assert [row.id for row in agent.rows] == ["slot-retention:old_replica"]
        assert agent.changes[reported:] == []


# -- where WAL lies --------------------------------------------------------------------------------------------------


def test_wal_on_tmpfs_is_reported(tmp_path: Path) -> None:
    memory = Path("/dev/shm") / f"dba-console-{tmp_path.name}"
    try:
        with Cluster(data_directory=memory, durable=False) as cluster, local_agent(cluster.dsn(), TMPFS) as agent:
            found = agent.until(TMPFS, within_s=6)
    finally:
        shutil.rmtree(memory, ignore_errors=True)
    assert found.text.startswith("Data and WAL are on tmpfs (/dev/shm)")
