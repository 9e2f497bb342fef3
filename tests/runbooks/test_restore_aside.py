"""The runbook `restore` over an existing database: it is renamed, created again as it was, and dropped last."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.actions.quoting import quoted
from tests.actions.test_create_database import database_properties
from tests.attacks.hostile_database import VICTIM
from tests.background import session, wait_until
from tests.disks import loop_mounted
from tests.faults.test_restore_faults import create_directory, leave_free
from tests.runbooks.dumps import DATABASE, DumpServer, running_dump_server
from tests.runbooks.runs import AS_ASKED, WAIT_S, AnswerSource, Walk, watched_server
from tests.runbooks.test_restore import ERRORS, EXISTING_STEP, settings

RUNBOOK = "restore"
CHECK_STEP = "can-it-be-restored-here"
OLD = "the \"old\" 'one'"
SOURCE = "where it comes from"
_SOURCE = """
create function calm(i int) returns int language plpgsql immutable as $$ begin
  if current_setting('application_name') in ('pg_restore', 'vacuumdb', 'psql')
     and (current_setting('statement_timeout'), current_setting('lock_timeout')) <> ('0', '0') then
    raise 'limits of the role: %', current_setting('statement_timeout');
  end if;
  if current_user <> 'restores' and current_setting('application_name') in ('pg_restore', 'vacuumdb')
     and (current_setting('synchronous_commit'), current_setting('maintenance_work_mem')) <> ('off', '512MB') then
    raise 'not told: %', current_setting('maintenance_work_mem');
  end if;
  return i;
end $$;
create schema "odd . schema";
create table "odd . schema"."part ""s" (i int check (calm(i) = i), note text) partition by range (i);
create table "odd . schema".low partition of "odd . schema"."part ""s" for values from (0) to (500);
create table "odd . schema".high partition of "odd . schema"."part ""s" for values from (500) to (1000)
  partition by list (note);
create table "odd . schema".rest partition of "odd . schema".high default;
insert into "odd . schema"."part ""s" select i, i from generate_series(0, 999) i;
create index on "odd . schema"."part ""s" (calm(i));
create table plain as select i from generate_series(1, 100) i;
create index on plain (calm(i));
create role "reads; it";
grant select on plain to "reads; it" with grant option;
"""
"""What is restored says so when settings of the restore do not reach its sessions, or limits of the role do."""


@pytest.fixture(scope="module")
def dump_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("aside")) as made:
        made.cluster.psql(f"alter role {VICTIM} set statement_timeout = '1min'")
        made.cluster.psql(f"alter role {VICTIM} set lock_timeout = '1min'")
        yield made


@pytest.fixture(scope="module")
def archive(dump_server: DumpServer) -> Path:
    dump_server.cluster.psql(f"create database {quoted(SOURCE)}")
    dump_server.cluster.psql(_SOURCE, dbname=SOURCE)
    path = dump_server.directory / "source"
    command = [
        f"{dump_server.bin}/pg_dump",
        "--format=directory",
        "-f",
        str(path),
        "-d",
        dump_server.cluster.dsn(dbname=SOURCE),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return path


@contextmanager
def existing_database(dump_server: DumpServer) -> Iterator[None]:
    """A database with all that can belong to one, and a table nobody has dumped."""
    with psycopg.connect(dump_server.cluster.dsn(), autocommit=True) as owner:
        owner.execute(f"create database {quoted(OLD)} template template0 connection limit 9".encode())
        owner.execute(f"revoke connect on database {quoted(OLD)} from public".encode())
        owner.execute(f"alter database {quoted(OLD)} set search_path = '$user', public".encode())
        owner.execute(f"alter role {VICTIM} in database {quoted(OLD)} set work_mem = '9MB'".encode())
        dump_server.cluster.psql("create table precious as select 1 as i", dbname=OLD)
        try:
            yield
        finally:
            left = owner.execute("select datname from pg_database where datname ~ '^the .old'").fetchall()
            for (name,) in left:
                owner.execute(f"drop database {quoted(name)} with (force)".encode())


def inputs(archive: Path, **more: str) -> dict[str, str]:
    return {"database": OLD, "archive": str(archive), "jobs": "2", "speed": "safe", **more}


def renamed_databases(dump_server: DumpServer) -> list[str]:
    return dump_server.cluster.psql("select datname from pg_database where datname ~ '_before_'").splitlines()


def answer_to_failed_check(dump_server: DumpServer) -> str:
    """The answer to a failed check of the name: while it stood, nothing was dropped."""
    assert len(renamed_databases(dump_server)) == 1
    return "input"


def changed_anything(walk: Walk) -> bool:
    """Whether it did more than read."""
    return not {"rename-the-old-database", "create-the-database", "restore-it"}.isdisjoint(walk.done())


ANSWERS: dict[str, AnswerSource] = {
    "start": "yes",
    f"{EXISTING_STEP}/choose": "aside",
    "yes": "yes",
    "type": AS_ASKED,
    "ack": "y",
    "open-it/old": "keep",
}


def test_the_database_is_renamed_recreated_alike_and_finally_dropped_by_its_name(
    dump_server: DumpServer, archive: Path
) -> None:
    before = settings(dump_server)
    with existing_database(dump_server):
        was = database_properties(dump_server.cluster, OLD)
        with closing(session(dump_server.cluster, dbname=OLD, name="somebody")):
            kept = dump_server.run_interactively(RUNBOOK, ANSWERS, **inputs(archive))
        assert kept.code == 0, kept.text
        assert kept.done().index("rename-the-old-database") < kept.done().index("create-the-database"), (
            "nothing was dropped before"
        )
        assert database_properties(dump_server.cluster, OLD) == was
        [name] = renamed_databases(dump_server)
        assert dump_server.cluster.psql("select datallowconn from pg_database where datname ~ '_before_'") == "f"
        assert dump_server.cluster.psql("select to_regclass('precious') is null and to_regclass('plain') is not null",
                                 dbname=OLD) == "t"  # fmt: skip
        analyzed = "select count(distinct tablename) from pg_stats where inherited"
        assert dump_server.cluster.psql(analyzed, dbname=OLD) == "2", "partitioned tables have statistics"
        dump_server.cluster.psql(f"drop database {quoted(name)}")
        named = iter([False, True])
        drops: dict[str, AnswerSource] = {
            **ANSWERS,
            "open-it/old": "drop",
            "input": lambda: renamed_databases(dump_server)[0] if next(named) else OLD,
            "failed": lambda: answer_to_failed_check(dump_server),
        }
        gone = dump_server.run_interactively(RUNBOOK, drops, **inputs(archive))
        assert gone.code == 0 and renamed_databases(dump_server) == [], gone.text
        assert gone.unmet() == ["drop-the-old-one/check"], "another's name"
    assert settings(dump_server) == before


def test_on_revert_the_new_database_is_dropped_and_the_old_one_comes_back(
    dump_server: DumpServer, archive: Path
) -> None:
    """A key of the dump does not hold."""
    broken = dump_server.directory / "broken"
    dump_server.cluster.psql("create table orphans (id int references items_2)", dbname=DATABASE)
    dump_server.cluster.psql("set session_replication_role = replica; insert into orphans values (-1)", dbname=DATABASE)
    dump_server.dump_database("broken", "--format=custom")
    dump_server.cluster.psql("drop table orphans", dbname=DATABASE)
    with existing_database(dump_server):
        was = database_properties(dump_server.cluster, OLD)
        answers: dict[str, AnswerSource] = {**ANSWERS, ERRORS: "stop", "failed": "abort", "undo": "all"}
        walk = dump_server.run_interactively(RUNBOOK, answers, **inputs(broken, keys="within", statistics="none"))
        assert walk.code == 7, walk.text
        assert renamed_databases(dump_server) == [] and database_properties(dump_server.cluster, OLD) == was
        assert dump_server.cluster.psql("select i from precious", dbname=OLD) == "1"
        headless = dump_server.run_headless(RUNBOOK, f"{EXISTING_STEP}=stop", **inputs(archive))
        assert headless.code == 0 and not changed_anything(headless)


def test_what_prevents_the_rename_is_named_before_any_session_is_terminated(
    dump_server: DumpServer, archive: Path
) -> None:
    with existing_database(dump_server):
        publisher = dump_server.cluster.dsn(dbname="postgres")
        made = f"create subscription sub connection '{publisher}' publication p with (connect = false)"
        dump_server.cluster.psql(made, dbname=OLD)
        walk = dump_server.run_headless(
            RUNBOOK, f"{EXISTING_STEP}=aside", "rename-the-old-database=yes", **inputs(archive)
        )
        assert walk.code == 7 and walk.unmet() == ["rename-the-old-database/free"] and not changed_anything(walk), (
            walk.text
        )
        mine = dump_server.run_headless(RUNBOOK, f"{EXISTING_STEP}=aside", **inputs(archive, database="postgres"))
        assert mine.unmet() == ["rename-the-old-database/free"] and "this_console_is_in_it true" in mine.text, mine.text
        dump_server.cluster.psql("alter subscription sub set (slot_name = none)", dbname=OLD)
        dump_server.cluster.psql("drop subscription sub", dbname=OLD)


def test_a_truncated_dump_is_found_before_the_old_database_is_closed(dump_server: DumpServer, archive: Path) -> None:
    script = dump_server.directory / "cut.sql.gz"
    plain = subprocess.run([f"{dump_server.bin}/pg_dump", "-d", dump_server.cluster.dsn(dbname=SOURCE)], check=True,
                           capture_output=True).stdout  # fmt: skip
    packed = subprocess.run(["gzip", "-c"], input=plain, check=True, capture_output=True).stdout
    script.write_bytes(packed[: len(packed) - 200])
    with existing_database(dump_server):
        walk = dump_server.run_headless(RUNBOOK, f"{EXISTING_STEP}=aside", **inputs(script))
        assert walk.code == 7 and "truncated" in walk.text and not changed_anything(walk), walk.text
        assert dump_server.cluster.psql("select i from precious", dbname=OLD) == "1"


def test_a_dump_with_another_locale_is_reported_before_anything_is_done(dump_server: DumpServer, archive: Path) -> None:
    with existing_database(dump_server):
        dump_server.cluster.psql(f"drop database {quoted(OLD)}")
        dump_server.cluster.psql(f"create database {quoted(OLD)} template template0 encoding 'LATIN1' locale 'C'")
        dump_server.cluster.psql("create table precious as select 1 as i", dbname=OLD)
        walk = dump_server.run_headless(RUNBOOK, f"{EXISTING_STEP}=aside", **inputs(archive))
        assert walk.code == 7 and walk.unmet() == [f"{EXISTING_STEP}/alike"] and not changed_anything(walk), walk.text


def test_a_missing_role_with_rights_in_the_dump_is_named(dump_server: DumpServer, archive: Path) -> None:
    with psycopg.connect(dump_server.cluster.dsn(), autocommit=True) as owner:
        owner.execute('alter role "reads; it" rename to gone')
        try:
            walk = dump_server.run_headless(RUNBOOK, database="never", archive=str(archive), speed="none")
        finally:
            owner.execute('alter role gone rename to "reads; it"')
    assert walk.code == 7 and walk.unmet() == [f"{CHECK_STEP}/wants"] and "roles reads; it" in walk.text, walk.text


def test_a_slot_that_would_be_invalidated_is_named(dump_server: DumpServer, archive: Path) -> None:
    dump_server.cluster.psql("alter system set max_slot_wal_keep_size = '0'")
    dump_server.cluster.psql("select pg_reload_conf()")
    dump_server.cluster.psql("select pg_create_physical_replication_slot('far_behind', true)")
    try:
        walk = dump_server.run_headless(RUNBOOK, database="never", archive=str(archive), speed="none")
    finally:
        dump_server.cluster.psql("select pg_drop_replication_slot('far_behind')")
        dump_server.cluster.psql("alter system reset max_slot_wal_keep_size")
        dump_server.cluster.psql("select pg_reload_conf()")
    assert walk.code == 7 and walk.unmet() == [f"{EXISTING_STEP}/cut"] and not changed_anything(walk), walk.text


@pytest.mark.root
def test_without_space_for_both_the_old_one_is_dropped_first_by_its_name_and_recreated(dump_server: DumpServer) -> None:
    dump_server.cluster.psql("create database large")
    dump_server.cluster.psql(
        "create table wide as select i, md5(i::text) t from generate_series(1, 150000) i", dbname="large"
    )
    large = dump_server.directory / "large"
    dump = [
        f"{dump_server.bin}/pg_dump",
        "--format=directory",
        "-f",
        str(large),
        "-d",
        dump_server.cluster.dsn(dbname="large"),
    ]
    subprocess.run(dump, check=True, capture_output=True)
    dump_server.cluster.psql("drop database large")
    needed = 6 * sum(file.stat().st_size for file in large.iterdir())
    beside = dump_server.cluster.base
    with loop_mounted(beside / "image", beside / "small", "160M") as place:
        create_directory(dump_server.cluster, place)
        dump_server.cluster.psql(f"create tablespace small location '{place}/space'")
        dump_server.cluster.psql("create database large tablespace small connection limit 3")
        dump_server.cluster.psql("create table old as select repeat(md5(i::text), 30) from generate_series(1, 70000) i",
                          dbname="large")  # fmt: skip
        leave_free(place, needed - 1_000_000)
        was = database_properties(dump_server.cluster, "large")
        answers: dict[str, AnswerSource] = {
            **ANSWERS,
            "create-the-database/room": "drop",
            "drop-the-old-one-first/input": lambda: renamed_databases(dump_server)[0],
        }
        given = {"database": "large", "archive": str(large), "jobs": "2", "speed": "none"}
        walk = dump_server.run_interactively(RUNBOOK, answers, **given)
        assert walk.code == 0, walk.text
        shown = [
            event for event in walk.events if event["event"] == "table" and "the_dump" in event["table"]["columns"]
        ]
        assert "read to its end" in str(shown), "how the dump was read stands beside what goes"
        assert renamed_databases(dump_server) == [] and database_properties(dump_server.cluster, "large") == was
        assert dump_server.cluster.psql("select count(*) from wide", dbname="large") == "150000"
        (place / "filler").unlink()
        dump_server.cluster.psql("drop database large")
        dump_server.cluster.psql("drop tablespace small")


def test_a_role_that_is_not_superuser_restores_over_its_own_database(dump_server: DumpServer, archive: Path) -> None:
    dump_server.cluster.psql("create role restores login createdb in role pg_monitor")
    dump_server.cluster.psql("create database its_own owner restores")
    dump_server.cluster.psql("create table precious as select 1 as i", dbname="its_own")
    dsn = dump_server.cluster.dsn(user="restores")
    with watched_server(dsn) as scene:
        walk = scene.run_interactively(
            RUNBOOK,
            ANSWERS,
            programs=dump_server.bin,
            database="its_own",
            archive=str(archive),
            jobs="2",
            speed="none",
            owners="no",
        )
    assert walk.code == 0, walk.text
    assert dump_server.cluster.psql("select count(*) from plain", dbname="its_own") == "100"
    assert (
        dump_server.cluster.psql("select pg_get_userbyid(datdba) from pg_database where datname = 'its_own'")
        == "restores"
    )
    dump_server.cluster.psql("drop database its_own")
    dump_server.cluster.psql(f"drop database {renamed_databases(dump_server)[0]}")


def test_it_does_not_start_while_archiving_fails(dump_server: DumpServer, archive: Path) -> None:
    dump_server.cluster.psql("alter system set archive_mode = on")
    dump_server.cluster.psql("alter system set archive_command = 'false'")
    dump_server.cluster.restart()
    try:
        dump_server.cluster.psql("select pg_switch_wal()")
        failed = "select failed_count > 0 from pg_stat_archiver"
        wait_until(lambda: dump_server.cluster.psql(failed) == "t", WAIT_S, what="an archiver that fails")
        walk = dump_server.run_headless(RUNBOOK, database="never", archive=str(archive), speed="none")
        assert walk.code == 7 and walk.unmet() == [f"{CHECK_STEP}/archiving"] and walk.done() == [], walk.text
    finally:
        dump_server.cluster.psql("alter system reset all")
        dump_server.cluster.restart()
