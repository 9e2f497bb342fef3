"""A standby whose WAL is only in the archive, held up by a query, or paused: walked by `standby-lag`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from dba_console.demo.temporary_server import Cluster
from tests.background import session, wait_until
from tests.runbooks.runs import WAIT_S, AnswerSource, Walk, WatchedServer, watched_server
from tests.runbooks.test_standby_rebuild import lose_wal_of, primary_and_standby, replayed, write


def walk(watched: WatchedServer, **answers: AnswerSource) -> Walk:
    given = {name.replace("__", "/").replace("_", "-"): text for name, text in answers.items()}
    return watched.run_interactively(
        "standby-lag", {"start": "yes", "undo": "none", "failed": "abort", "manual": "seen", **given}
    )


def cause(done: Walk) -> str:
    """What the numbers say is the cause."""
    return str(done.rows("where-does-its-wal-wait/preview-3")[0]["slow_at"])


def archived(primary: Cluster, name: str) -> Path:
    """An archive of the primary, from now on."""
    place = primary.base / name
    place.mkdir()
    primary.account.chown(place)
    primary.psql(f"alter system set archive_command = 'cp %p {place}/%f'")
    primary.psql("select pg_reload_conf()")
    return place


def test_wal_that_the_primary_has_removed_is_restored_from_the_archive() -> None:
    with primary_and_standby(archive_mode="on") as (primary, standby):
        place = archived(primary, "archive")
        lose_wal_of(primary, standby)
        primary.psql("insert into orders values (1)")
        standby.start()
        with watched_server(standby.dsn()) as watched:
            done = walk(
                watched, where_does_its_wal_wait="broken", why_is_no_wal_received="removed",
                has_the_archive_what_it_needs__manual=lambda: f"{sorted(place.iterdir())[0]}",
                has_the_archive_what_it_needs__choose="yes",
                restore_from_the_archive__input=f"cp {place}/%f %p", restore_from_the_archive__action=watched.target,
            )  # fmt: skip
            assert done.code == 0, (done.ending, done.failed(), done.err)
            assert cause(done) == "broken: no WAL receiver streams"
            first = done.rows("has-the-archive-what-it-needs/preview")[0]["first_file"]
            assert (place / first).exists(), (first, sorted(place.iterdir()))
        replayed(standby, 1)


def test_the_query_that_holds_replay_up_is_named_and_ended() -> None:
    with primary_and_standby(max_standby_streaming_delay="-1") as (primary, standby):
        primary.psql("insert into orders select generate_series(1, 1000)")
        replayed(standby, 1000)
        with closing(session(standby, name="report")) as report, closing(session(standby, name="innocent")):
            report.execute("begin isolation level repeatable read; select count(*) from orders")
            primary.psql("delete from orders")
            primary.psql("vacuum orders")
            write(primary, 20)
            waits = "select wait_event from pg_stat_activity where backend_type = 'startup'"
            wait_until(lambda: standby.psql(waits).startswith("RecoveryConflict"), WAIT_S, what="the conflict")
            with watched_server(standby.dsn()) as watched:
                done = walk(watched, where_does_its_wal_wait="conflict", queries_that_hold_replay_up="1")
                assert done.code == 0, (done.ending, done.failed(), done.err)
                assert cause(done) == "conflict"
        replayed(standby, 0)


def test_a_paused_replay_is_continued_only_if_no_parameter_is_lower_than_on_the_primary() -> None:
    with primary_and_standby() as (primary, standby):
        standby.psql("select pg_wal_replay_pause()")
        with watched_server(standby.dsn()) as watched:
            done = walk(watched, where_does_its_wal_wait="paused", continue_replay="yes")
            assert done.code == 0, (done.ending, done.failed(), done.err)
            assert cause(done) == "paused"
            higher = int(primary.psql("show max_connections")) + 10
            primary.restart({"max_connections": str(higher)})
            paused = "select pg_is_wal_replay_paused()"
            wait_until(lambda: standby.psql(paused) == "t", WAIT_S, what="the pause")
            refused = walk(watched, where_does_its_wal_wait="paused", continue_replay="yes")
            assert refused.code == 7 and refused.unmet() == ["continue-replay/check-2"], refused.text
            assert f"and {higher} on the primary" in refused.text
            assert standby.running and standby.psql(paused) == "t"
