"""Standbys that are slow, broken, on a wrong timeline, or without their WAL: walked by `standby-rebuild` to the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster, Settings, make_standby
from tests.background import wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, AnswerSource, Walk, WatchedServer, watched_server

RUNBOOK = "standby-rebuild"
SETTINGS: Settings = {"wal_level": "replica", "wal_log_hints": "on", "max_wal_size": "32MB", "min_wal_size": "32MB",
                      "autovacuum": "off"}  # fmt: skip
STREAMS = "select 1 from pg_stat_replication where state = 'streaming'"
MIB = 1 << 20


@contextmanager
def primary_and_standby(**settings: str) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby, which streams through the slot `standby`."""
    with Cluster(binaries_of(None), settings={**SETTINGS, **settings}, durable=False) as primary:
        primary.psql("create table orders (n int)")
        with closing(make_standby(primary, slot="standby", settings=dict(settings))) as standby:
            standby.start()
            wait_until(lambda: primary.psql(STREAMS), WAIT_S, what="the standby streaming")
            try:
                yield primary, standby
            finally:
                for one in (primary, standby):
                    stop_foreign(one)


def stop_foreign(cluster: Cluster) -> None:
    """Stop the server that a run has started: it is not the child of the `Cluster`."""
    if not cluster.running and (cluster.data_directory / "postmaster.pid").exists():
        cluster.run("pg_ctl", "stop", "-D", str(cluster.data_directory), "-m", "immediate")


def write(cluster: Cluster, mebibytes: int) -> None:
    cluster.psql(
        f"select count(pg_logical_emit_message(false, 'test', repeat('x', {MIB}))) from generate_series(1, {mebibytes})"
    )


def replayed(standby: Cluster, rows: int) -> None:
    wait_until(
        lambda: standby.psql("select count(*) from orders") == str(rows), WAIT_S, what=f"{rows} rows on the standby"
    )


def lose_wal_of(primary: Cluster, standby: Cluster) -> None:
    """Remove WAL that the stopped standby needs, so that its slot is lost."""
    standby.stop()
    primary.psql("alter system set max_slot_wal_keep_size = '16MB'")
    primary.psql("select pg_reload_conf()")
    write(primary, 100)
    primary.psql("select pg_switch_wal()")
    primary.psql("checkpoint")
    assert primary.psql("select wal_status from pg_replication_slots") == "lost"


def walk(watched: WatchedServer, primary: Cluster, standby: Cluster, **answers: AnswerSource) -> Walk:
    """Run it; answers are by step, with `_` for `-` and `__` for `/`."""
    given = {name.replace("__", "/").replace("_", "-"): text for name, text in answers.items()}
    return watched.run_interactively(
        RUNBOOK, {"start": "yes", "undo": "none", "failed": "abort", "manual": "seen", **given},
        directory=str(standby.data_directory), primary=primary.dsn(application_name="standby"), slot="standby",
    )  # fmt: skip


def assert_done(done: Walk) -> None:
    assert done.code == 0, (done.ending, done.done(), done.failed(), done.err)


def test_a_standby_whose_slot_is_lost_is_copied_and_its_old_directory_is_kept() -> None:
    with primary_and_standby() as (primary, standby):
        lose_wal_of(primary, standby)
        standby.start()
        with watched_server(standby.dsn()) as watched:
            primary.psql("insert into orders values (1)")
            done = walk(
                watched, primary, standby,
                how_should_it_be_rebuilt="clone", copy_the_primary="clone", start_it_as_a_standby="yes",
            )  # fmt: skip
            assert_done(done)
        replayed(standby, 1)
        assert primary.psql("select active, wal_status from pg_replication_slots") == "t|reserved"
        assert list(standby.data_directory.parent.glob(f"{standby.data_directory.name}.before-*"))


@pytest.mark.parametrize("crashed", [False, True])
def test_an_old_primary_that_has_passed_the_fork_is_rewound_while_its_server_is_down(crashed: bool) -> None:
    with primary_and_standby() as (old, new):
        replayed(new, 0)
        new.psql("select pg_promote()")
        old.psql("insert into orders values (1), (2), (3)")
        old.psql("select pg_create_physical_replication_slot('of_before', true)")
        old.kill() if crashed else old.stop()
        new.psql("insert into orders values (7)")
        with watched_server(old.dsn()) as watched:
            pid_file = old.data_directory / "postmaster.pid"
            before = pid_file.read_text() if crashed else None
            refused = walk(watched, new, old, how_should_it_be_rebuilt="attach", start_it_as_a_standby="yes")
            why = "it was not shut down" if crashed else "history separated at"
            assert refused.code != 0 and why in refused.text, refused.text
            assert (pid_file.read_text() if pid_file.exists() else None) == before, "not even started to see"
            done = walk(
                watched, new, old,
                how_should_it_be_rebuilt="rewind",
                would_pg_rewind_work__check="yes", would_pg_rewind_work__choose="rewind",
                keep_a_copy_first="copy", copy_the_data_directory="y", rewind_it="rewind", start_it_as_a_standby="yes",
            )  # fmt: skip
            assert_done(done)
        assert old.psql("select pg_is_in_recovery(), (select string_agg(n::text, ' ') from orders)") == "t|7"
        assert old.psql("select count(*) from pg_replication_slots") == "0", "pg_rewind removes its old slots"
        assert new.psql("select slot_name, active from pg_replication_slots") == "standby|t"
        assert (old.data_directory.with_name("data.before-rewind") / "PG_VERSION").exists()


def test_a_standby_that_replayed_past_the_fork_is_not_started_as_one_of_the_new_primary() -> None:
    with primary_and_standby() as (old, new), closing(make_standby(old, slot="third")) as third:
        third.start()
        replayed(new, 0)
        new.psql("select pg_promote()")
        old.psql("insert into orders values (1)")
        replayed(third, 1)
        third.stop()  # its last restartpoint lies before the fork: no checkpoint was replayed since
        old.stop()
        try:
            with watched_server(new.dsn()) as watched:
                refused = walk(watched, new, third, how_should_it_be_rebuilt="attach", start_it_as_a_standby="yes")
            assert refused.code != 0 and "history separated at" in refused.text
            assert not (third.data_directory / "postmaster.pid").exists(), "not even started to see"
        finally:
            stop_foreign(third)


def test_a_running_primary_is_never_rebuilt_nor_a_newer_one_after_an_older() -> None:
    with primary_and_standby() as (old, new):
        new.psql("select pg_promote()")
        with watched_server(old.dsn()) as watched:
            running = walk(watched, new, old, how_should_it_be_rebuilt="clone")
            assert running.code != 0 and "runs as a primary" in running.text and "split-brain" in running.text
            new.stop()
            newer = walk(watched, old, new, how_should_it_be_rebuilt="clone")
            assert newer.code != 0 and "this server was promoted later" in newer.text
        assert old.psql("select pg_is_in_recovery()") == "f"
        assert not list(new.data_directory.parent.glob("*.before-*"))


def test_a_copy_has_its_tablespaces_and_keeps_their_former_content() -> None:
    with (
        Cluster(binaries_of(None), settings=SETTINGS, durable=False) as primary,
        closing(Cluster(primary.binaries, settings=primary.settings)) as standby,
    ):
        places = [one.base / "space" for one in (primary, standby)]
        for place in places:
            place.mkdir(mode=0o700)
            primary.account.chown(place)
        primary.psql(f"create tablespace space location '{places[0]}'")
        primary.psql("create table orders tablespace space as select 1 as n")
        mapping = f"--tablespace-mapping={places[0]}={places[1]}"
        standby.run("pg_basebackup", "-D", str(standby.data_directory), "-d", primary.dsn(), "-R", mapping)
        standby.start()
        standby.stop()
        primary.psql("update orders set n = 2")
        try:
            with watched_server(standby.dsn()) as watched:
                done = walk(
                    watched, primary, standby,
                    how_should_it_be_rebuilt="clone", copy_the_primary="clone", start_it_as_a_standby="yes",
                )  # fmt: skip
                assert_done(done)
            assert standby.psql("select n, pg_is_in_recovery() from orders") == "2|t"
            assert [path.name[:3] for path in places[1].iterdir() if ".before-" in path.name] == ["PG_"]
        finally:
            stop_foreign(standby)
