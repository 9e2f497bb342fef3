"""Two primaries of one cluster with commits of their own, on either side of the fork: walked by `split-brain`."""

from __future__ import annotations

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.runbooks.runs import AnswerSource, Walk, WatchedServer, watched_server
from tests.runbooks.test_standby_rebuild import primary_and_standby, replayed
from tests.runbooks.test_standby_rebuild import walk as rebuild
from tests.standbys import preallocate_wal

RUNBOOK = "split-brain"


def walk(watched: WatchedServer, loser: Cluster, other: Cluster, **answers: AnswerSource) -> Walk:
    given = {name.replace("__", "/").replace("_", "-"): text for name, text in answers.items()}
    return watched.run_interactively(
        RUNBOOK,
        {"start": "yes", "undo": "none", "failed": "abort", "manual": "seen", "ack": "y", **given},
        directory=str(loser.data_directory), here=loser.dsn(), other=other.dsn(), slot="of_loser",
    )  # fmt: skip


def result_of(done: Walk, block: str) -> str:
    return next(one.text for one in done.records("block.result") if one.block == block)


@pytest.mark.parametrize("promoted_loses", [False, True])
def test_the_one_that_loses_is_stopped_and_what_only_it_has_is_found_and_kept(promoted_loses: bool) -> None:
    with primary_and_standby() as (old, new):
        old.psql("insert into orders values (1)")
        replayed(new, 1)
        new.psql("select pg_promote()")
        loser, stays = (new, old) if promoted_loses else (old, new)
        loser.psql("create table lost (n int); insert into lost select generate_series(1, 50)")
        loser.psql("insert into orders select generate_series(2, 11); delete from orders where n = 11")
        loser.psql("begin; insert into orders values (99); rollback")
        loser.psql("begin; insert into orders values (12); savepoint a; insert into orders values (13); commit")
        stays.psql("insert into orders values (7)")
        preallocate_wal(loser)
        with watched_server(loser.dsn()) as watched:
            done = walk(
                watched, loser, stays, which_one_loses="here",
                stop_the_one_that_loses__stop=str(loser.data_directory),
                rebuild_the_one_that_lost="clone", copy_the_server_that_stays="clone", start_it_as_a_standby="yes",
            )  # fmt: skip
            assert done.code == 0, (done.ending, done.failed(), done.err)
            both = result_of(done, "record-both/compare")
            found = result_of(done, "what-has-only-the-one-that-lost/changes")
        assert ("here: timeline 2" in both and "other: timeline 1" in both) is promoted_loses, both
        assert "postgres: public.orders 13" in found, found
        assert " 50" in found and "of timeline 1; committed transactions" in found, found
        assert "system catalogs" in found and "pg_attribute" not in found, found
        assert loser.psql("select pg_is_in_recovery(), (select string_agg(n::text, ' ') from orders)") == "t|1 7"
        assert stays.psql("select active from pg_replication_slots where slot_name = 'of_loser'") == "t"
        [kept] = loser.data_directory.parent.glob(f"{loser.data_directory.name}.before-*")
        assert (kept / "standby.signal").exists(), "what is kept cannot start as a primary"


def test_a_primary_and_its_standby_are_not_two_primaries_and_neither_is_stopped() -> None:
    with primary_and_standby() as (primary, standby):
        with watched_server(primary.dsn()) as watched:
            one = walk(watched, primary, standby)
            assert one.code != 0 and "there are not two primaries" in one.text and one.done() == []
            same = walk(watched, primary, primary)
            assert same.code != 0 and "lead to the same server" in same.text and same.done() == []
        assert primary.running and standby.running


def test_the_directory_of_the_one_that_loses_is_rewound_where_their_timelines_differ() -> None:
    with primary_and_standby() as (old, new):
        old.psql("insert into orders values (1)")
        replayed(new, 1)
        new.psql("select pg_promote()")
        old.psql("insert into orders values (2)")
        new.psql("insert into orders values (7)")
        with watched_server(old.dsn()) as watched:
            done = walk(
                watched, old, new, which_one_loses="here",
                stop_the_one_that_loses__stop=str(old.data_directory),
                rebuild_the_one_that_lost="rewind", rewind_it="rewind", start_it_as_a_standby="yes",
            )  # fmt: skip
            assert done.code == 0, (done.ending, done.failed(), done.err)
            found = result_of(done, "what-has-only-the-one-that-lost/changes")
        assert "postgres: public.orders 1" in found, found
        assert old.psql("select pg_is_in_recovery(), (select string_agg(n::text, ' ') from orders)") == "t|1 7"
        assert new.psql("select active from pg_replication_slots where slot_name = 'of_loser'") == "t"


def test_two_primaries_on_one_timeline_are_compared_by_their_data_and_the_loser_is_copied() -> None:
    with primary_and_standby() as (old, new):
        old.psql("insert into orders values (1)")
        replayed(new, 1)
        new.stop()
        (new.data_directory / "standby.signal").unlink()  # what makes two primaries without a promotion
        new.start()
        old.psql("insert into orders values (2)")
        new.psql("insert into orders values (7)")
        with watched_server(old.dsn()) as watched:
            later = walk(
                watched, old, new, which_one_loses="here", stop_the_one_that_loses__stop=str(old.data_directory),
                rebuild_the_one_that_lost="later",
            )  # fmt: skip
            assert later.code == 0, (later.ending, later.failed(), later.err)
            assert "the timelines do not show" in result_of(later, "what-has-only-the-one-that-lost/changes")
            [question] = [one for one in later.questions if one.get("step") == "rebuild-the-one-that-lost"]
            assert [one["key"] for one in question["options"]] == ["clone", "later"]
            refused = rebuild(watched, new, old, how_should_it_be_rebuilt="attach", start_it_as_a_standby="yes")
            assert refused.code != 0 and "the timelines do not show where" in refused.text
            assert not (old.data_directory / "postmaster.pid").exists(), "not even started to see"
            copied = rebuild(
                watched, new, old,
                how_should_it_be_rebuilt="clone", copy_the_primary="clone", start_it_as_a_standby="yes",
            )  # fmt: skip
            assert copied.code == 0, (copied.ending, copied.failed(), copied.err)
        assert old.psql("select pg_is_in_recovery(), (select string_agg(n::text, ' ') from orders)") == "t|1 7"
