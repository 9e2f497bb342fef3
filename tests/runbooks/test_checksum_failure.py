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
from dba_console.demo.incident_detection import IncidentVerdict
from dba_console.demo.incidents.checksum_failure import TABLE, ChecksumFailure
from dba_console.demo.temporary_server import Settings
from tests.background import Session, session, wait_until
from tests.requirements import lacking
from tests.runbooks.damaged_pages import damage
from tests.runbooks.runs import (
    AS_ASKED,
    WAIT_S,
    AnswerSource,
    Walk,
    WatchedServer,
    assert_detected,
    incident,
    watched_server,
)

RUNBOOK = "checksum-failure"
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


class LoggingIncident(ChecksumFailure):
    """The incident on a server that collects its own log, as most do."""

    settings: ClassVar[Settings] = {"logging_collector": "on", "log_directory": "log"}


@pytest.fixture(scope="module")
def undamaged() -> Iterator[WatchedServer]:
    """The server before a page is damaged."""
    with incident(LoggingIncident(), SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def verdict(undamaged: WatchedServer) -> IncidentVerdict:
    """The page is damaged and read."""
    return undamaged.cause_and_judge()


@pytest.fixture
def watched(undamaged: WatchedServer, verdict: IncidentVerdict) -> WatchedServer:
    return undamaged


def path_of(watched: WatchedServer, relation: str) -> str:
    return watched.sql(f"select pg_relation_filepath('{relation}')")


def default_answers(watched: WatchedServer, relation: str, **more: AnswerSource) -> dict[str, AnswerSource]:
    return {
        "start": "yes", "manual": "done, ticket 4711", "which-relation/input": path_of(watched, relation), "ack": "y",
        "copy-the-file-first/input": str(watched.cluster.base / "evidence"), "failed": "abort", "undo": "none", **more,
    }  # fmt: skip


def create_amcheck(watched: WatchedServer) -> None:
    try:
        watched.sql("create extension if not exists amcheck")
    except ConsoleError as error:
        lacking(error.message)


def test_it_runs_only_on_a_server_with_failures(undamaged: WatchedServer) -> None:
    walk = undamaged.run_headless(RUNBOOK)
    assert walk.code == 7, walk.text
    assert "where-is-it/check" in walk.unmet() and walk.done() == []


def test_a_damaged_page_is_named_within_five_seconds_after_its_read(
    watched: WatchedServer, verdict: IncidentVerdict
) -> None:
    watched.frame(lambda frame: frame.safety.checksum_failures == 1, "one failure counted")
    assert_detected(verdict)


def test_a_table_that_was_not_recovered_is_found_before_the_end(watched: WatchedServer) -> None:
    create_amcheck(watched)
    walk = watched.run_interactively(RUNBOOK, default_answers(watched, TABLE, choose="copy"))
    assert walk.code == 7, walk.text
    assert walk.failed() == ["is-there-more/run"] and walk.done() == [COPY, "is-there-more"]
    assert path_of(watched, TABLE) in [row[0] for row in failures_in_log(walk)]
    assert f"relation {path_of(watched, TABLE)}" in walk.output


def test_the_damaged_file_is_copied_as_it_is_on_disk(watched: WatchedServer) -> None:
    path = watched.cluster.data_directory / path_of(watched, TABLE)
    into = watched.cluster.base / "copies"
    walk = watched.run_interactively(
        RUNBOOK, default_answers(watched, TABLE, choose="stop", **{"copy-the-file-first/input": str(into)})
    )
    assert walk.code == 0, walk.text
    assert walk.done() == [COPY]
    [directory] = into.iterdir()
    assert (directory / path.name).read_bytes() == path.read_bytes()
    assert (directory / f"{path.name}_fsm").exists() and (directory / f"{path.name}_vm").exists()
    assert f"{path.name}: " in walk.output and f"copied to {directory}" in walk.output


def test_nothing_continues_if_the_copy_fails(watched: WatchedServer) -> None:
    taken = watched.cluster.base / "a file"
    taken.write_text("mine")
    walk = watched.run_interactively(
        RUNBOOK, default_answers(watched, TABLE, **{"copy-the-file-first/input": str(taken)})
    )
    assert walk.code == 7, walk.text
    assert walk.failed() == ["copy-the-file-first/run"] and walk.done() == [COPY]
    assert taken.read_text() == "mine"


def test_another_database_is_not_the_one_to_check(watched: WatchedServer) -> None:
    with watched_server(watched.cluster.dsn(dbname="postgres")) as beside:
        beside.wait_until_raised(RUNBOOK)
        walk = beside.run_headless(RUNBOOK)
        assert walk.code == 7, walk.text
        assert walk.unmet() == ["where-is-it/check-2"] and walk.done() == []


def test_a_file_that_is_not_of_this_database_is_not_accepted(watched: WatchedServer) -> None:
    walk = watched.run_interactively(
        RUNBOOK, {**default_answers(watched, TABLE), "which-relation/input": "base/1/4711"}
    )
    assert walk.code == 7, walk.text
    assert walk.unmet() == ["which-relation/preview-2"] and walk.done() == []


def test_an_index_is_rebuilt_and_a_table_recovered_without_changing_anything_else(watched: WatchedServer) -> None:
    create_amcheck(watched)
    watched.sql(MADE)
    watched.sql(f"create index {INDEX} on {SECOND} (i)")
    before = path_of(watched, f"public.{INDEX}")
    leave_invalid_index(watched)
    damage(watched.cluster, before)
    with pytest.raises(ConsoleError, match="invalid page"):
        watched.sql(READ)
    file = path_of(watched, TABLE)

    declined = watched.run_interactively(
        RUNBOOK, default_answers(watched, f"public.{INDEX}", choose="index", type="no")
    )
    assert declined.code == 7, declined.text
    assert declined.done() == [COPY] and path_of(watched, f"public.{INDEX}") == before

    def recover_table() -> str:
        watched.end()
        return "from the standby, agreed with its owner"

    # pg_amcheck meets the damaged table; it is brought back before the failures have to end.
    with open_write_transaction(watched):
        rebuilt = watched.run_interactively(
            RUNBOOK,
            default_answers(
                watched, f"public.{INDEX}", choose="index", type=AS_ASKED, failed="skip it is brought back below",
                **{"is-there-more/manual-2": recover_table},
            ),
            quiet="1s",
        )  # fmt: skip
    assert rebuilt.code == 0, rebuilt.text
    assert rebuilt.done() == [COPY, REBUILD, LEFT, "is-there-more"]
    assert rebuilt.failed() == ["is-there-more/run"]
    assert [row[0] for row in table_rows(rebuilt, "leftover")] == [f"public.{INDEX}_ccnew"]
    assert "writer" in {cell for row in table_rows(rebuilt, "pid") for cell in row}
    assert watched.sql(READ) == "5000" and path_of(watched, f"public.{INDEX}") != before
    assert watched.sql(f"select count(*) from pg_index where indrelid = '{SECOND}'::regclass") == "1"
    assert path_of(watched, TABLE) == file

    walk = watched.run_interactively(RUNBOOK, default_answers(watched, TABLE, choose="copy"), quiet="1s")
    assert walk.code == 0, walk.text
    assert walk.unmet() == [] and walk.done() == [COPY, "is-there-more"]
    assert watched.sql(f"select count(*) from {TABLE}") == "5000"
    # What failed once stays told: corruption does not heal by being read no more.
    watched.wait_until_raised(RUNBOOK)


def test_its_owner_rebuilds_an_index_in_another_tablespace_within_role_limits(watched: WatchedServer) -> None:
    beside = watched.cluster.base / "beside"
    beside.mkdir(mode=0o700)
    watched.cluster.account.chown(beside)
    watched.cluster.psql(f"create tablespace beside location '{beside}'")
    for one in OWNED.split(";"):
        watched.sql(one)
    before = path_of(watched, ODD)
    assert before.startswith("pg_tblspc/")
    with watched_server(watched.cluster.dsn(user="the owner", dbname=DATABASE)) as owned:
        owned.wait_until_raised(RUNBOOK)
        walk = WatchedServer(
            owned.console, owned.dsn, owned.target, owned.socket, watched.ground, watched.incident
        ).run_interactively(
            RUNBOOK,
            default_answers(
                watched, ODD, choose="index", type=AS_ASKED, failed="skip the owner may not", manual="done"
            ),
            quiet="1s",
        )
        assert walk.code == 0, walk.text
        assert REBUILD in walk.done() and path_of(watched, ODD) != before
        # Where the files are is not for him to see, and amcheck is not for him to use: said, and never passed over.
        assert walk.unmet() == ["rebuild-the-index/check"]
        assert walk.failed() == ["copy-the-file-first/run", "is-there-more/run"]


def test_an_exclusion_constraint_index_is_rebuilt_under_a_lock_or_not_at_all(watched: WatchedServer) -> None:
    watched.sql("create table third (i int4range, exclude using gist (i with &&))")
    before = path_of(watched, "third_i_excl")
    message = default_answers(watched, "third_i_excl", choose="locked", type=AS_ASKED)
    with open_session(watched) as holds:
        holds.execute("begin; insert into public.third values ('[1,2)')")
        refused = watched.run_interactively(RUNBOOK, message)
    assert refused.code == 7 and refused.failed() == [f"{LOCKED}/change"], refused.text
    assert "lock timeout" in refused.text and path_of(watched, "third_i_excl") == before
    walk = watched.run_interactively(RUNBOOK, {**message, "failed": "skip"}, quiet="1s")
    assert walk.code == 0, walk.text
    assert LOCKED in walk.done() and path_of(watched, "third_i_excl") != before
    watched.sql("drop table third")


def test_a_visibility_map_is_rewritten_and_a_view_refreshed(watched: WatchedServer) -> None:
    watched.sql("create table fourth (i int); insert into fourth select generate_series(1, 1000)")
    watched.cluster.psql("vacuum fourth", dbname=DATABASE)
    watched.sql("create materialized view fifth as select i from fourth")
    old = path_of(watched, "fifth")
    vm = default_answers(
        watched, "fourth", choose="map", type=AS_ASKED, **{"which-relation/input": f"{path_of(watched, 'fourth')}_vm"}
    )
    for step, message in (
        ("rebuild-the-map", vm),
        ("refresh-the-view", default_answers(watched, "fifth", choose="view", type=AS_ASKED)),
    ):
        walk = watched.run_interactively(RUNBOOK, {**message, "failed": "skip"}, quiet="1s")
        assert walk.code == 0, walk.text
        assert walk.done()[:2] == [COPY, step]
    assert path_of(watched, "fifth") != old and watched.sql("select count(*) from fifth") == "1000"
    watched.sql("drop table fourth cascade")


def leave_invalid_index(watched: WatchedServer) -> None:
    """A rebuild that was not waited for, as lock_timeout ends it: its new index stays, invalid."""
    with open_session(watched) as writes, open_session(watched) as other:
        writes.execute(f"begin; insert into {SECOND} values (0)")
        other.execute("set lock_timeout = '100ms'")
        with pytest.raises(LockNotAvailable):
            other.execute(f"reindex index concurrently public.{INDEX}")
        writes.execute("rollback")


@contextmanager
def open_write_transaction(watched: WatchedServer) -> Iterator[None]:
    """A transaction that has written to the table, open until a rebuild has waited for it for longer than a change may
    wait for a lock unless its document says so."""
    waited = (
        "select 1 from pg_stat_activity where query like 'reindex%' and wait_event_type = 'Lock'"
        " and clock_timestamp() - query_start > interval '2.5 s'"
    )

    def hold(opened: Event) -> None:
        with open_session(watched, name="writer") as writes:
            writes.execute(f"begin; insert into {SECOND} values (0)")
            opened.set()
            wait_until(lambda: watched.sql(waited), WAIT_S, what="a rebuild that waits")
            writes.execute("rollback")

    opened = Event()
    thread = Thread(target=hold, args=(opened,))
    thread.start()
    opened.wait(WAIT_S)
    yield
    thread.join()


def open_session(watched: WatchedServer, name: str = "test") -> Session:
    return session(watched.cluster, dbname=DATABASE, name=name)


def failures_in_log(walk: Walk) -> list[list[str]]:
    """Path, blocks and count, as they were read from the server's log."""
    return table_rows(walk, "path")


def table_rows(walk: Walk, first: str) -> list[list[str]]:
    """The rows of its tables whose first column that is."""
    tables = [event["table"] for event in walk.events if event["event"] == "table"]
    return [row for one in tables if one["columns"][0] == first for row in one["rows"]]
