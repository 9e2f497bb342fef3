"""Damaged pages, named in time and walked by `checksum-failure`: of a table, and of what can be rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import ClassVar

import pytest
from psycopg.errors import LockNotAvailable

from dba_console.core.errors import ConsoleError
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.cluster import Settings
from dba_console.demo.incidents.checksum_failure import TABLE, ChecksumFailure
from dba_console.demo.rehearsal import IncidentVerdict
from tests.background import Session, session, wait_until
from tests.requirements import lacking
from tests.runbooks.damaged_pages import damage
from tests.runbooks.runs import ASKED, WAIT_S, Says, Scene, Walk, assert_named, incident, watched

BOOK = "checksum-failure"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
FAILURES = "select sum(checksum_failures) from pg_stat_database"
SECOND = "public.second"
INDEX = "second_i"
MADE = f"""
create table {SECOND} (i int) with (autovacuum_enabled = off);
insert into {SECOND} select generate_series(1, 5000);
"""
ODD = '"an ""odd"" schema"."the Index"'
OWNED = """
create role "the owner" login;
alter role "the owner" set lock_timeout = '1ms';
alter role "the owner" set statement_timeout = '1s';
create schema "an ""odd"" schema" authorization "the owner";
create table "an ""odd"" schema"."a Table" (i int) with (autovacuum_enabled = off) tablespace beside;
alter table "an ""odd"" schema"."a Table" owner to "the owner";
create index "the Index" on "an ""odd"" schema"."a Table" (i) tablespace beside
"""
COPY, REBUILD, LEFT = "copy-the-file-first", "rebuild-the-index", "drop-leftovers-of-a-rebuild"
LOCKED = "rebuild-it-under-a-lock"
READ = f"set enable_seqscan = off; set enable_bitmapscan = off; select count(*) from {SECOND} where i > 0 /* by it */"


class Logged(ChecksumFailure):
    """The incident on a server that collects its own log, as most do."""

    settings: ClassVar[Settings] = {"logging_collector": "on", "log_directory": "log"}


@pytest.fixture(scope="module")
def healthy() -> Iterator[Scene]:
    """The server before a page is damaged."""
    with incident(Logged(), SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def verdict(healthy: Scene) -> IncidentVerdict:
    """The page is damaged and read."""
    return healthy.named()


@pytest.fixture
def scene(healthy: Scene, verdict: IncidentVerdict) -> Scene:
    return healthy


def path_of(scene: Scene, relation: str) -> str:
    return scene.sql(f"select pg_relation_filepath('{relation}')")


def answers(scene: Scene, relation: str, **more: Says) -> dict[str, Says]:
    return {
        "start": "yes", "manual": "done, ticket 4711", "which-relation/input": path_of(scene, relation), "ack": "y",
        "copy-the-file-first/input": str(scene.cluster.base / "evidence"), "failed": "abort", "undo": "none", **more,
    }  # fmt: skip


def with_amcheck(scene: Scene) -> None:
    try:
        scene.sql("create extension if not exists amcheck")
    except ConsoleError as error:
        lacking(error.message)


def test_it_runs_only_on_a_server_with_failures(healthy: Scene) -> None:
    walk = healthy.headless(BOOK)
    assert walk.code == 7, walk.text
    assert "where-is-it/check" in walk.red() and walk.done() == []


def test_a_damaged_page_is_named_within_five_seconds_after_its_read(scene: Scene, verdict: IncidentVerdict) -> None:
    scene.frame(lambda frame: frame.safety.checksum_failures == 1, "one failure counted")
    assert_named(verdict)


def test_a_table_that_was_not_recovered_is_found_before_the_end(scene: Scene) -> None:
    with_amcheck(scene)
    walk = scene.person(BOOK, answers(scene, TABLE, choose="copy"))
    assert walk.code == 7, walk.text
    assert walk.failed() == ["is-there-more/run"] and walk.done() == [COPY, "is-there-more"]
    assert path_of(scene, TABLE) in [row[0] for row in logged(walk)]
    assert f"relation {path_of(scene, TABLE)}" in walk.output


def test_the_damaged_file_is_copied_as_it_is_on_disk(scene: Scene) -> None:
    path = scene.cluster.data_directory / path_of(scene, TABLE)
    into = scene.cluster.base / "copies"
    walk = scene.person(BOOK, answers(scene, TABLE, choose="stop", **{"copy-the-file-first/input": str(into)}))
    assert walk.code == 0, walk.text
    assert walk.done() == [COPY]
    [directory] = into.iterdir()
    assert (directory / path.name).read_bytes() == path.read_bytes()
    assert (directory / f"{path.name}_fsm").exists() and (directory / f"{path.name}_vm").exists()
    assert f"{path.name}: " in walk.output and f"copied to {directory}" in walk.output


def test_nothing_continues_if_the_copy_fails(scene: Scene) -> None:
    taken = scene.cluster.base / "a file"
    taken.write_text("mine")
    walk = scene.person(BOOK, answers(scene, TABLE, **{"copy-the-file-first/input": str(taken)}))
    assert walk.code == 7, walk.text
    assert walk.failed() == ["copy-the-file-first/run"] and walk.done() == [COPY]
    assert taken.read_text() == "mine"


def test_another_database_is_not_the_one_to_check(scene: Scene) -> None:
    with watched(scene.cluster.dsn(dbname="postgres")) as beside:
        beside.raised(BOOK)
        walk = beside.headless(BOOK)
        assert walk.code == 7, walk.text
        assert walk.red() == ["where-is-it/check-2"] and walk.done() == []


def test_a_file_that_is_not_of_this_database_is_not_accepted(scene: Scene) -> None:
    walk = scene.person(BOOK, {**answers(scene, TABLE), "which-relation/input": "base/1/4711"})
    assert walk.code == 7, walk.text
    assert walk.red() == ["which-relation/preview-2"] and walk.done() == []


def test_an_index_is_rebuilt_and_a_table_recovered_without_changing_anything_else(scene: Scene) -> None:
    with_amcheck(scene)
    scene.sql(MADE)
    scene.sql(f"create index {INDEX} on {SECOND} (i)")
    before = path_of(scene, f"public.{INDEX}")
    cut_short(scene)
    damage(scene.cluster, before)
    with pytest.raises(ConsoleError, match="invalid page"):
        scene.sql(READ)
    file = path_of(scene, TABLE)

    declined = scene.person(BOOK, answers(scene, f"public.{INDEX}", choose="index", type="no"))
    assert declined.code == 7, declined.text
    assert declined.done() == [COPY] and path_of(scene, f"public.{INDEX}") == before

    def brought_back() -> str:
        scene.end()
        return "from the standby, agreed with its owner"

    # pg_amcheck meets the damaged table; it is brought back before the failures have to end.
    with writing(scene):
        rebuilt = scene.person(
            BOOK,
            answers(
                scene, f"public.{INDEX}", choose="index", type=ASKED, failed="skip it is brought back below",
                **{"is-there-more/manual-2": brought_back},
            ),
            quiet="1s",
        )  # fmt: skip
    assert rebuilt.code == 0, rebuilt.text
    assert rebuilt.done() == [COPY, REBUILD, LEFT, "is-there-more"]
    assert rebuilt.failed() == ["is-there-more/run"]
    assert [row[0] for row in table(rebuilt, "leftover")] == [f"public.{INDEX}_ccnew"]
    assert "writer" in {cell for row in table(rebuilt, "pid") for cell in row}
    assert scene.sql(READ) == "5000" and path_of(scene, f"public.{INDEX}") != before
    assert scene.sql(f"select count(*) from pg_index where indrelid = '{SECOND}'::regclass") == "1"
    assert path_of(scene, TABLE) == file

    walk = scene.person(BOOK, answers(scene, TABLE, choose="copy"), quiet="1s")
    assert walk.code == 0, walk.text
    assert walk.red() == [] and walk.done() == [COPY, "is-there-more"]
    assert scene.sql(f"select count(*) from {TABLE}") == "5000"
    # What failed once stays told: corruption does not heal by being read no more.
    scene.raised(BOOK)


def test_its_owner_rebuilds_an_index_in_another_tablespace_within_role_limits(scene: Scene) -> None:
    beside = scene.cluster.base / "beside"
    beside.mkdir(mode=0o700)
    scene.cluster.account.chown(beside)
    scene.cluster.psql(f"create tablespace beside location '{beside}'")
    for one in OWNED.split(";"):
        scene.sql(one)
    before = path_of(scene, ODD)
    assert before.startswith("pg_tblspc/")
    with watched(scene.cluster.dsn(user="the owner", dbname=DATABASE)) as owned:
        owned.raised(BOOK)
        walk = Scene(owned.console, owned.dsn, owned.target, owned.socket, scene.ground, scene.what).person(
            BOOK,
            answers(scene, ODD, choose="index", type=ASKED, failed="skip the owner may not", manual="done"),
            quiet="1s",
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert REBUILD in walk.done() and path_of(scene, ODD) != before
        # Where the files are is not for him to see, and amcheck is not for him to use: said, and never passed over.
        assert walk.red() == ["rebuild-the-index/check"]
        assert walk.failed() == ["copy-the-file-first/run", "is-there-more/run"]


def test_an_exclusion_constraint_index_is_rebuilt_under_a_lock_or_not_at_all(scene: Scene) -> None:
    scene.sql("create table third (i int4range, exclude using gist (i with &&))")
    before = path_of(scene, "third_i_excl")
    said = answers(scene, "third_i_excl", choose="locked", type=ASKED)
    with scene_session(scene) as holds:
        holds.execute("begin; insert into public.third values ('[1,2)')")
        refused = scene.person(BOOK, said)
    assert refused.code == 7 and refused.failed() == [f"{LOCKED}/change"], refused.text
    assert "lock timeout" in refused.text and path_of(scene, "third_i_excl") == before
    walk = scene.person(BOOK, {**said, "failed": "skip"}, quiet="1s")
    assert walk.code == 0, walk.text
    assert LOCKED in walk.done() and path_of(scene, "third_i_excl") != before
    scene.sql("drop table third")


def test_a_visibility_map_is_rewritten_and_a_view_refreshed(scene: Scene) -> None:
    scene.sql("create table fourth (i int); insert into fourth select generate_series(1, 1000)")
    scene.cluster.psql("vacuum fourth", dbname=DATABASE)
    scene.sql("create materialized view fifth as select i from fourth")
    old = path_of(scene, "fifth")
    vm = answers(
        scene, "fourth", choose="map", type=ASKED, **{"which-relation/input": f"{path_of(scene, 'fourth')}_vm"}
    )
    for step, said in (
        ("rebuild-the-map", vm),
        ("refresh-the-view", answers(scene, "fifth", choose="view", type=ASKED)),
    ):
        walk = scene.person(BOOK, {**said, "failed": "skip"}, quiet="1s")
        assert walk.code == 0, walk.text
        assert walk.done()[:2] == [COPY, step]
    assert path_of(scene, "fifth") != old and scene.sql("select count(*) from fifth") == "1000"
    scene.sql("drop table fourth cascade")


def cut_short(scene: Scene) -> None:
    """A rebuild that was not waited for, as lock_timeout ends it: its new index stays, invalid."""
    with scene_session(scene) as writes, scene_session(scene) as other:
        writes.execute(f"begin; insert into {SECOND} values (0)")
        other.execute("set lock_timeout = '100ms'")
        with pytest.raises(LockNotAvailable):
            other.execute(f"reindex index concurrently public.{INDEX}")
        writes.execute("rollback")


@contextmanager
def writing(scene: Scene) -> Iterator[None]:
    """A transaction that has written to the table, open until a rebuild has waited for it for longer than a change may
    wait for a lock unless its document says so."""
    waited = (
        "select 1 from pg_stat_activity where query like 'reindex%' and wait_event_type = 'Lock'"
        " and clock_timestamp() - query_start > interval '2.5 s'"
    )

    def hold(opened: Event) -> None:
        with scene_session(scene, name="writer") as writes:
            writes.execute(f"begin; insert into {SECOND} values (0)")
            opened.set()
            wait_until(lambda: scene.sql(waited), WAIT_S, what="a rebuild that waits")
            writes.execute("rollback")

    opened = Event()
    thread = Thread(target=hold, args=(opened,))
    thread.start()
    opened.wait(WAIT_S)
    yield
    thread.join()


def scene_session(scene: Scene, name: str = "test") -> Session:
    return session(scene.cluster, dbname=DATABASE, name=name)


def logged(walk: Walk) -> list[list[str]]:
    """Path, blocks and count, as they were read from the server's log."""
    return table(walk, "path")


def table(walk: Walk, first: str) -> list[list[str]]:
    """The rows of its tables whose first column that is."""
    tables = [event["table"] for event in walk.events if event["event"] == "table"]
    return [row for one in tables if one["columns"][0] == first for row in one["rows"]]
