"""An old primary with WAL that the new one lacks follows only after pg_rewind has said so, or a new copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.clusters.crash_recovery import recover_alone
from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.cluster.step_runs import StepRuns
from tests.cluster.test_server_control import control_of
from tests.clusters import FreshCluster

STREAMS = "select 1 from pg_stat_replication where state = 'streaming'"
LOST = 20_000


@contextmanager
def archived_pair(fresh_cluster: FreshCluster, **settings: str) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby with one archive, from which both restore: also the history of a new timeline."""
    primary = fresh_cluster(
        {"archive_mode": "on", "wal_log_hints": "on", "wal_keep_size": "256MB", "fsync": "on", **settings}
    )
    archive = archive_of(primary)
    archive.mkdir()
    primary.account.chown(archive)
    primary.psql(f"alter system set archive_command = 'cp %p {archive}/%f'")
    primary.psql(f"alter system set restore_command = 'cp {archive}/%f %p'")
    primary.psql("select pg_reload_conf()")
    primary.psql("create table t (n int)")
    with make_standby(primary) as standby:
        wait_until(lambda: primary.psql(STREAMS), what="the standby streaming")
        yield primary, standby


def archive_of(primary: Cluster) -> Path:
    return primary.base / "archive"


def tree_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def lose_old_wal(stopped: Cluster) -> None:
    """Remove the WAL from pg_wal, except the segment of the last checkpoint, which is not archived."""
    newest = int((control_of(stopped).control_file().checkpoint_lsn or "").partition("/")[2], 16) >> 24
    for segment in (stopped.data_directory / "pg_wal").glob("00000001" + "[0-9A-F]" * 16):
        if int(segment.name[16:], 16) != newest:
            segment.unlink()


def fork_away(old: Cluster, new: Cluster) -> None:
    """Promote the standby without the last rows of the primary, which crashes."""
    new.stop()
    old.psql(f"insert into t select generate_series(1, {LOST})")
    old.kill()
    new.start()
    new.psql("select pg_promote()")
    new.psql("insert into t values (-1)")
    new.psql("select pg_switch_wal()")
    wait_until((archive_of(old) / "00000002.history").exists, what="the history of the new timeline in the archive")


def test_a_crashed_primary_with_more_wal_is_not_started_before_pg_rewind_has_removed_it(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    with archived_pair(fresh_cluster) as (old, new):
        fork_away(old, new)
        steps, data = StepRuns(tmp_path, old, new), old.data_directory
        before = tree_of(data)
        first = steps.act("cutover-rejoin", timeout="5s")
        assert first.values == {"streams": False} and "db1 is not started: it was not shut down" in first.text, first
        shown = steps.show("cutover-rewind", dry_run=True)
        assert f"cp -a --reflink=auto {data} {data}.before-rewind" in shown.text and "nothing is written" in shown.text
        dry = steps.act("cutover-rewind", dry_run=True)
        assert dry.state == "ok" and "nothing was written" in dry.text, dry
        assert tree_of(data) == before, "a dry run writes nothing"
        done = steps.act("cutover-rewind")
        assert done.values == {"works": True}, done
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write("work_mem = 'plenty'\n")
        failed = steps.act("cutover-rejoin", timeout="20s")
        assert failed.state == "failed" and f"its log is {data}/dba-console-start.log" in failed.text, failed
        assert "work_mem" in failed.text, failed
        content = (data / "postgresql.auto.conf").read_text()
        (data / "postgresql.auto.conf").write_text(content.replace("work_mem = 'plenty'\n", ""))
        try:
            joined = steps.act("cutover-rejoin", timeout="60s", required=True)
            assert joined.values == {"streams": True}, joined
            wait_until(lambda: old.psql("select n from t") == "-1", what="the rows of the new primary alone")
        finally:
            control_of(old).stop(30)  # it is not a child of this process any more


def test_a_crashed_server_recovers_alone_from_its_own_wal(fresh_cluster: FreshCluster) -> None:
    with archived_pair(fresh_cluster) as (old, new):
        fork_away(old, new)
        control = control_of(old)
        control.make_standby(new.dsn(), None)
        recover_alone(control, 1, 60)
        found = control.control_file()
        assert (found.state, found.timeline) == ("shut down in recovery", 1)
        log = (old.data_directory / "dba-console-start.log").read_text()
        assert "consistent recovery state reached" in log
        assert "started streaming" not in log and "restored log file" not in log, "it read WAL that is not its own"
        assert f"{old.socket_directory}/.s.PGSQL" not in log and 'listening on Unix socket "./' in log
        recover_alone(control, 1, 60)  # again: nothing to do


def test_a_primary_shut_down_beyond_the_fork_is_not_started_and_where_pg_rewind_cannot_work_a_copy_is_advised(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    with archived_pair(fresh_cluster) as (old, new):
        new.psql("select pg_promote()")
        old.psql("insert into t values (1)")
        old.stop()
        steps = StepRuns(tmp_path, old, new)
        first = steps.act("cutover-rejoin", timeout="5s")
        assert first.values == {"streams": False} and "its WAL goes beyond 0/" in first.text, first
        assert not old.running
        failed = steps.act("cutover-rejoin", timeout="5s", required=True)
        assert failed.state == "failed", "after pg_rewind or a copy it must follow"
        lose_old_wal(old)
        dry = steps.act("cutover-rewind", dry_run=True)
        assert dry.values == {"works": True}, f"restore_command has the WAL that is missing: {dry}"
        for segment in archive_of(old).glob("00000001*"):
            segment.unlink()
        lose_old_wal(old)
        dry = steps.act("cutover-rewind", dry_run=True)
        assert dry.values == {"works": False} and "it must be cloned" in dry.text, dry


@pytest.mark.parametrize("insert", [False, True])
def test_a_standby_beyond_the_fork_is_not_led_to_the_new_primary(
    fresh_cluster: FreshCluster, tmp_path: Path, insert: bool
) -> None:
    with archived_pair(fresh_cluster) as (old, new), make_standby(old) as third:
        wait_until(lambda: old.psql("select count(*) from pg_stat_replication") == "2", what="two standbys")
        if insert:
            new.psql("select pg_promote()")
            old.psql("insert into t values (1)")
            wait_until(lambda: third.psql("select n from t") == "1", what="the row on the third node")
            old.stop()
        else:
            old.stop()
            new.psql("select pg_promote()")
        steps = StepRuns(tmp_path, old, new, third=third)
        done = steps.act("cutover-follow", timeout="20s")
        if insert:
            assert "db3: db3 is at 0/" in done.text and "before pg_rewind, or a new copy" in done.text, done
        else:
            assert done.state == "ok" and "db3 streams from db2" in done.text, done
