"""Damaged pages, named in time and walked by `checksum-failure`: of a table, which is brought back, and of an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from dba_console.demo.cluster import Settings
from dba_console.demo.incidents.checksum_failure import OFFSET, PAGE_BYTES, TABLE, ChecksumFailure
from dba_console.demo.load import LoadPlan
from dba_console.demo.verdict import Verdict
from dba_console.errors import ConsoleError
from tests.requirements import lacking
from tests.runbooks.walking import ASKED, Says, Scene, Walk, assert_named, incident, watched

BOOK = "checksum-failure"
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
FAILURES = "select sum(checksum_failures) from pg_stat_database"
INDEX = "second_i"
MADE = f"""
create table second (i int) with (autovacuum_enabled = off);
insert into second select generate_series(1, 5000);
create index {INDEX} on second (i);
"""
READ = f"set enable_seqscan = off; set enable_bitmapscan = off; select count(*) from second where i > 0 /* {INDEX} */"


class Logged(ChecksumFailure):
    """The incident on a server that collects its own log, as most do."""

    settings: ClassVar[Settings] = {"logging_collector": "on", "log_directory": "log"}


@pytest.fixture(scope="module")
def healthy() -> Iterator[Scene]:
    """The server before a page is damaged."""
    with incident(Logged(), SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def verdict(healthy: Scene) -> Verdict:
    """The page is damaged and read."""
    return healthy.named()


@pytest.fixture
def scene(healthy: Scene, verdict: Verdict) -> Scene:
    return healthy


def path_of(scene: Scene, relation: str) -> str:
    return scene.sql(f"select pg_relation_filepath('{relation}')")


def answers(scene: Scene, relation: str, **more: Says) -> dict[str, Says]:
    return {
        "start": "yes", "manual": "done, ticket 4711", "which-relation/input": path_of(scene, relation),
        "failed": "abort", "undo": "none", **more,
    }  # fmt: skip


def with_amcheck(scene: Scene) -> None:
    try:
        scene.sql("create extension if not exists amcheck")
    except ConsoleError as error:
        lacking(error.message)


def test_only_a_server_with_failures_is_walked(healthy: Scene) -> None:
    walk = healthy.headless(BOOK)
    assert walk.code == 7, walk.text
    assert "where-is-it/check" in walk.red() and walk.done() == []


def test_a_damaged_page_that_is_read_is_named_within_five_seconds(scene: Scene, verdict: Verdict) -> None:
    scene.frame(lambda frame: frame.safety.checksum_failures == 1, "one failure counted")
    assert_named(verdict)


def test_a_table_that_was_not_brought_back_is_found_before_the_end(scene: Scene) -> None:
    with_amcheck(scene)
    walk = scene.person(BOOK, answers(scene, TABLE, choose="table"))
    assert walk.code == 7, walk.text
    assert walk.red() == ["is-there-more/check-2"] and walk.done() == []
    assert path_of(scene, TABLE) in [row[0] for row in logged(walk)]


def test_another_database_is_not_the_one_to_look_in(scene: Scene) -> None:
    with watched(scene.cluster.dsn(dbname="postgres")) as beside:
        beside.raised(BOOK)
        walk = beside.headless(BOOK)
        assert walk.code == 7, walk.text
        assert walk.red() == ["where-is-it/check-2"] and walk.done() == []


def test_a_file_that_is_none_of_this_database_is_not_taken(scene: Scene) -> None:
    walk = scene.person(BOOK, {**answers(scene, TABLE), "which-relation/input": "base/1/4711"})
    assert walk.code == 7, walk.text
    assert walk.red() == ["which-relation/preview-2"] and walk.done() == []


def test_an_index_is_built_anew_and_a_table_brought_back_without_touching_anything_else(scene: Scene) -> None:
    scene.sql(MADE)
    damage(scene, INDEX)
    with pytest.raises(ConsoleError, match="invalid page"):
        scene.sql(READ)
    file = path_of(scene, TABLE)

    declined = scene.person(
        BOOK,
        answers(scene, INDEX, choose="index", type="no", **{"build-the-index-anew/input": f"public.{INDEX}"}),
    )
    assert declined.code == 7, declined.text
    assert declined.done() == []

    def brought_back() -> str:
        scene.end()
        return "from the standby, agreed with its owner"

    more: dict[str, Says] = {
        "build-the-index-anew/input": f"public.{INDEX}", "is-there-more/manual": brought_back,
        "failed": "skip the table",
    }  # fmt: skip
    rebuilt = scene.person(
        BOOK,
        answers(
            scene, INDEX, choose="index", type=ASKED,
            **more,
        ),
        quiet="1s",
    )  # fmt: skip
    assert rebuilt.code == 0, rebuilt.text
    assert rebuilt.done() == ["build-the-index-anew"]
    assert scene.sql(READ) == "5000"
    assert path_of(scene, TABLE) == file

    walk = scene.person(BOOK, answers(scene, TABLE, choose="table"), quiet="1s")
    assert walk.code == 0, walk.text
    assert walk.red() == [] and walk.done() == []
    assert scene.sql(f"select count(*) from {TABLE}") == "5000"
    # What failed once stays told: corruption does not heal by being read no more.
    scene.raised(BOOK)


def test_an_index_that_is_still_invalid_is_said(scene: Scene) -> None:
    scene.sql("create table third (i int primary key)")
    scene.sql("update pg_index set indisvalid = false where indexrelid = 'third_pkey'::regclass")
    walk = scene.person(
        BOOK,
        answers(
            scene, "third_pkey", choose="index", type="no", failed=iter(["skip to see", "abort"]).__next__,
            **{"build-the-index-anew/input": "public.third_pkey"},
        ),
    )  # fmt: skip
    assert walk.code == 7, walk.text
    assert walk.red() == ["build-the-index-anew/check"] and walk.done() == []
    scene.sql("drop table third")


def logged(walk: Walk) -> list[list[str]]:
    """Path, block and count, as they were read from the server's log."""
    tables = [event["table"] for event in walk.events if event["event"] == "table"]
    return [row for table in tables if table["columns"][0] == "path" for row in table["rows"]]


def damage(scene: Scene, relation: str) -> None:
    """Flip a few bytes of its third page, which was written past the buffers and has not been read since."""
    scene.cluster.psql("checkpoint")
    with (scene.cluster.data_directory / path_of(scene, relation)).open("r+b") as file:
        file.seek(2 * PAGE_BYTES + OFFSET)
        sound = file.read(8)
        file.seek(2 * PAGE_BYTES + OFFSET)
        file.write(bytes(byte ^ 0xFF for byte in sound))
