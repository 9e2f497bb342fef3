"""The runbook `restore` over a database that is there: it is set aside, made once more as it was, and dropped last."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.actions.test_create_database import looks, quoted
from tests.attacks.hostile_database import VICTIM
from tests.background import session, wait_until
from tests.disks import loop_mounted
from tests.faults.test_restore_faults import give, leave
from tests.runbooks.dumps import DATABASE, Ground, ground
from tests.runbooks.runs import ASKED, WAIT_S, Says, Walk, watched
from tests.runbooks.test_restore import ERRORS, THERE, settings

BOOK = "restore"
HERE = "can-it-be-restored-here"
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
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("aside")) as made:
        made.cluster.psql(f"alter role {VICTIM} set statement_timeout = '1min'")
        made.cluster.psql(f"alter role {VICTIM} set lock_timeout = '1min'")
        yield made


@pytest.fixture(scope="module")
def archive(here: Ground) -> Path:
    here.cluster.psql(f"create database {quoted(SOURCE)}")
    here.cluster.psql(_SOURCE, dbname=SOURCE)
    path = here.place / "source"
    command = [f"{here.bin}/pg_dump", "--format=directory", "-f", str(path), "-d", here.cluster.dsn(dbname=SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@contextmanager
def old_one(here: Ground) -> Iterator[None]:
    """A database with all that can belong to one, and a table nobody has dumped."""
    with psycopg.connect(here.cluster.dsn(), autocommit=True) as owner:
        owner.execute(f"create database {quoted(OLD)} template template0 connection limit 9".encode())
        owner.execute(f"revoke connect on database {quoted(OLD)} from public".encode())
        owner.execute(f"alter database {quoted(OLD)} set search_path = '$user', public".encode())
        owner.execute(f"alter role {VICTIM} in database {quoted(OLD)} set work_mem = '9MB'".encode())
        here.cluster.psql("create table precious as select 1 as i", dbname=OLD)
        try:
            yield
        finally:
            left = owner.execute("select datname from pg_database where datname ~ '^the .old'").fetchall()
            for (name,) in left:
                owner.execute(f"drop database {quoted(name)} with (force)".encode())


def inputs(archive: Path, **more: str) -> dict[str, str]:
    return {"database": OLD, "archive": str(archive), "jobs": "2", "speed": "safe", **more}


def aside(here: Ground) -> list[str]:
    return here.cluster.psql("select datname from pg_database where datname ~ '_before_'").splitlines()


def refused(here: Ground) -> str:
    """The answer to a failed check of the name: while it stood, nothing was dropped."""
    assert len(aside(here)) == 1
    return "input"


def touched(walk: Walk) -> bool:
    """Whether it did more than read."""
    return not {"rename-the-old-database", "create-the-database", "restore-it"}.isdisjoint(walk.done())


ANSWERS: dict[str, Says] = {
    "start": "yes", f"{THERE}/choose": "aside", "yes": "yes", "type": ASKED, "ack": "y", "open-it/old": "keep",
}  # fmt: skip


def test_the_database_is_renamed_recreated_alike_and_finally_dropped_by_its_name(here: Ground, archive: Path) -> None:
    before = settings(here)
    with old_one(here):
        was = looks(here.cluster, OLD)
        with closing(session(here.cluster, dbname=OLD, name="somebody")):
            kept = here.person(BOOK, ANSWERS, **inputs(archive))
        assert kept.code == 0, kept.text
        assert kept.done().index("rename-the-old-database") < kept.done().index("create-the-database"), (
            "nothing was dropped before"
        )
        assert looks(here.cluster, OLD) == was
        [name] = aside(here)
        assert here.cluster.psql("select datallowconn from pg_database where datname ~ '_before_'") == "f"
        assert here.cluster.psql("select to_regclass('precious') is null and to_regclass('plain') is not null",
                                 dbname=OLD) == "t"  # fmt: skip
        analyzed = "select count(distinct tablename) from pg_stats where inherited"
        assert here.cluster.psql(analyzed, dbname=OLD) == "2", "partitioned tables have statistics"
        here.cluster.psql(f"drop database {quoted(name)}")
        named = iter([False, True])
        drops: dict[str, Says] = {
            **ANSWERS, "open-it/old": "drop", "input": lambda: aside(here)[0] if next(named) else OLD,
            "failed": lambda: refused(here),
        }  # fmt: skip
        gone = here.person(BOOK, drops, **inputs(archive))
        assert gone.code == 0 and aside(here) == [], gone.text
        assert gone.red() == ["drop-the-old-one/check"], "another's name"
    assert settings(here) == before


def test_on_revert_the_new_database_is_dropped_and_the_old_one_comes_back(here: Ground, archive: Path) -> None:
    """A key of the dump does not hold."""
    broken = here.place / "broken"
    here.cluster.psql("create table orphans (id int references items_2)", dbname=DATABASE)
    here.cluster.psql("set session_replication_role = replica; insert into orphans values (-1)", dbname=DATABASE)
    here.dumped("broken", "--format=custom")
    here.cluster.psql("drop table orphans", dbname=DATABASE)
    with old_one(here):
        was = looks(here.cluster, OLD)
        answers: dict[str, Says] = {**ANSWERS, ERRORS: "stop", "failed": "abort", "undo": "all"}
        walk = here.person(BOOK, answers, **inputs(broken, keys="within", statistics="none"))
        assert walk.code == 7, walk.text
        assert aside(here) == [] and looks(here.cluster, OLD) == was
        assert here.cluster.psql("select i from precious", dbname=OLD) == "1"
        headless = here.headless(BOOK, f"{THERE}=stop", **inputs(archive))
        assert headless.code == 0 and not touched(headless)


def test_what_prevents_the_rename_is_named_before_any_session_is_terminated(here: Ground, archive: Path) -> None:
    with old_one(here):
        publisher = here.cluster.dsn(dbname="postgres")
        made = f"create subscription sub connection '{publisher}' publication p with (connect = false)"
        here.cluster.psql(made, dbname=OLD)
        walk = here.headless(BOOK, f"{THERE}=aside", "rename-the-old-database=yes", **inputs(archive))
        assert walk.code == 7 and walk.red() == ["rename-the-old-database/free"] and not touched(walk), walk.text
        mine = here.headless(BOOK, f"{THERE}=aside", **inputs(archive, database="postgres"))
        assert mine.red() == ["rename-the-old-database/free"] and "this_console_is_in_it true" in mine.text, mine.text
        here.cluster.psql("alter subscription sub set (slot_name = none)", dbname=OLD)
        here.cluster.psql("drop subscription sub", dbname=OLD)


def test_a_truncated_dump_is_found_before_the_old_database_is_closed(here: Ground, archive: Path) -> None:
    script = here.place / "cut.sql.gz"
    plain = subprocess.run([f"{here.bin}/pg_dump", "-d", here.cluster.dsn(dbname=SOURCE)], check=True,
                           capture_output=True).stdout  # fmt: skip
    packed = subprocess.run(["gzip", "-c"], input=plain, check=True, capture_output=True).stdout
    script.write_bytes(packed[: len(packed) - 200])
    with old_one(here):
        walk = here.headless(BOOK, f"{THERE}=aside", **inputs(script))
        assert walk.code == 7 and "truncated" in walk.text and not touched(walk), walk.text
        assert here.cluster.psql("select i from precious", dbname=OLD) == "1"


def test_a_dump_with_another_locale_is_reported_before_anything_is_done(here: Ground, archive: Path) -> None:
    with old_one(here):
        here.cluster.psql(f"drop database {quoted(OLD)}")
        here.cluster.psql(f"create database {quoted(OLD)} template template0 encoding 'LATIN1' locale 'C'")
        here.cluster.psql("create table precious as select 1 as i", dbname=OLD)
        walk = here.headless(BOOK, f"{THERE}=aside", **inputs(archive))
        assert walk.code == 7 and walk.red() == [f"{THERE}/alike"] and not touched(walk), walk.text


def test_a_missing_role_with_rights_in_the_dump_is_named(here: Ground, archive: Path) -> None:
    with psycopg.connect(here.cluster.dsn(), autocommit=True) as owner:
        owner.execute('alter role "reads; it" rename to gone')
        try:
            walk = here.headless(BOOK, database="never", archive=str(archive), speed="none")
        finally:
            owner.execute('alter role gone rename to "reads; it"')
    assert walk.code == 7 and walk.red() == [f"{HERE}/wants"] and "roles reads; it" in walk.text, walk.text


def test_a_slot_that_would_be_invalidated_is_named(here: Ground, archive: Path) -> None:
    here.cluster.psql("alter system set max_slot_wal_keep_size = '0'")
    here.cluster.psql("select pg_reload_conf()")
    here.cluster.psql("select pg_create_physical_replication_slot('far_behind', true)")
    try:
        walk = here.headless(BOOK, database="never", archive=str(archive), speed="none")
    finally:
        here.cluster.psql("select pg_drop_replication_slot('far_behind')")
        here.cluster.psql("alter system reset max_slot_wal_keep_size")
        here.cluster.psql("select pg_reload_conf()")
    assert walk.code == 7 and walk.red() == [f"{THERE}/cut"] and not touched(walk), walk.text


@pytest.mark.root
def test_without_space_for_both_the_old_one_is_dropped_first_by_its_name_and_recreated(here: Ground) -> None:
    here.cluster.psql("create database large")
    here.cluster.psql("create table wide as select i, md5(i::text) t from generate_series(1, 150000) i", dbname="large")
    large = here.place / "large"
    dump = [f"{here.bin}/pg_dump", "--format=directory", "-f", str(large), "-d", here.cluster.dsn(dbname="large")]
    subprocess.run(dump, check=True, capture_output=True)
    here.cluster.psql("drop database large")
    needed = 6 * sum(file.stat().st_size for file in large.iterdir())
    beside = here.cluster.base
    with loop_mounted(beside / "image", beside / "small", "160M") as place:
        give(here.cluster, place)
        here.cluster.psql(f"create tablespace small location '{place}/space'")
        here.cluster.psql("create database large tablespace small connection limit 3")
        here.cluster.psql("create table old as select repeat(md5(i::text), 30) from generate_series(1, 70000) i",
                          dbname="large")  # fmt: skip
        leave(place, needed - 1_000_000)
        was = looks(here.cluster, "large")
        answers: dict[str, Says] = {
            **ANSWERS,
            "create-the-database/room": "drop",
            "drop-the-old-one-first/input": lambda: aside(here)[0],
        }
        given = {"database": "large", "archive": str(large), "jobs": "2", "speed": "none"}
        walk = here.person(BOOK, answers, **given)
        assert walk.code == 0, walk.text
        shown = [
            event for event in walk.events if event["event"] == "table" and "the_dump" in event["table"]["columns"]
        ]
        assert "read to its end" in str(shown), "how the dump was read stands beside what goes"
        assert aside(here) == [] and looks(here.cluster, "large") == was
        assert here.cluster.psql("select count(*) from wide", dbname="large") == "150000"
        (place / "filler").unlink()
        here.cluster.psql("drop database large")
        here.cluster.psql("drop tablespace small")


def test_a_role_that_is_not_superuser_restores_over_its_own_database(here: Ground, archive: Path) -> None:
    here.cluster.psql("create role restores login createdb in role pg_monitor")
    here.cluster.psql("create database its_own owner restores")
    here.cluster.psql("create table precious as select 1 as i", dbname="its_own")
    dsn = here.cluster.dsn(user="restores")
    with watched(dsn) as scene:
        walk = scene.person(BOOK, ANSWERS, programs=here.bin, database="its_own", archive=str(archive), jobs="2",
                            speed="none", owners="no")  # fmt: skip
    assert walk.code == 0, walk.text
    assert here.cluster.psql("select count(*) from plain", dbname="its_own") == "100"
    assert here.cluster.psql("select pg_get_userbyid(datdba) from pg_database where datname = 'its_own'") == "restores"
    here.cluster.psql("drop database its_own")
    here.cluster.psql(f"drop database {aside(here)[0]}")


def test_it_does_not_start_while_archiving_fails(here: Ground, archive: Path) -> None:
    here.cluster.psql("alter system set archive_mode = on")
    here.cluster.psql("alter system set archive_command = 'false'")
    here.cluster.restart()
    try:
        here.cluster.psql("select pg_switch_wal()")
        failed = "select failed_count > 0 from pg_stat_archiver"
        wait_until(lambda: here.cluster.psql(failed) == "t", WAIT_S, what="an archiver that fails")
        walk = here.headless(BOOK, database="never", archive=str(archive), speed="none")
        assert walk.code == 7 and walk.red() == [f"{HERE}/archiving"] and walk.done() == [], walk.text
    finally:
        here.cluster.psql("alter system reset all")
        here.cluster.restart()
