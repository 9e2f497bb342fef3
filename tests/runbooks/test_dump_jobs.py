"""The runbook `dump-jobs`, walked on a database of its own, and refused where it is not the moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.background import wait_until
from tests.runbooks.dumps import DATABASE, DumpServer, is_password_absent, running_dump_server
from tests.runbooks.runs import WAIT_S

RUNBOOK = "dump-jobs"
MOMENT, TRY, CAME = "preconditions", "try-it", "result"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("dump-jobs")) as there:
        yield there


def test_it_finds_a_number_shows_the_table_and_saves_it_for_the_next_dump(made: DumpServer) -> None:
    walk = made.run_headless(RUNBOOK, database=DATABASE, to=str(made.directory), most="2", window="5s")
    assert walk.code == 0, walk.text
    assert TRY in walk.done()
    assert list(made.directory.iterdir()) == []
    assert "limited by" in walk.output
    plain = ("dumps", "jobs", make_conninfo(made.watched.dsn, dbname=DATABASE), "--plain")
    kept = made.watched.console.run(*plain).out.strip()
    assert 1 <= int(kept) <= 2
    (found,) = [one for one in walk.records("block.result", CAME) if "first_line" in one.fields.get("values", {})][:1]
    assert found.fields["values"]["first_line"] == kept
    assert is_password_absent(made.watched.console.home)


def test_while_a_session_waits_for_an_exclusive_lock_it_does_not_start(made: DumpServer) -> None:
    with made.session(DATABASE) as reader, made.session(DATABASE) as waiter, made.session("postgres") as asking:
        reader.execute("begin")
        reader.execute("lock table items_1 in access share mode")
        waiter.pgconn.send_query(b"begin; lock table items_1 in access exclusive mode")
        waits = "select 1 from pg_locks where mode = 'AccessExclusiveLock' and not granted"
        wait_until(lambda: asking.execute(waits).fetchall() == [(1,)], WAIT_S, what="the one who waits")
        walk = made.run_headless(RUNBOOK, database=DATABASE, to=str(made.directory))
    assert walk.code == 7
    assert f"{MOMENT}/locks" in walk.unmet()
    assert TRY not in walk.done()


def test_during_another_dump_or_without_connections_it_does_not_start(made: DumpServer) -> None:
    with made.session(DATABASE) as other:
        other.execute("set application_name = 'pg_dump'")
        other.execute(f'alter database "{DATABASE}" connection limit 4')
        walk = made.run_headless(RUNBOOK, database=DATABASE, to=str(made.directory))
        other.execute(f'alter database "{DATABASE}" connection limit -1')
    assert walk.code == 7
    assert {f"{MOMENT}/dumps", f"{MOMENT}/slots"} & set(walk.unmet())
    assert TRY not in walk.done()


def test_a_missing_scratch_directory_fails_the_step_and_saves_nothing(made: DumpServer) -> None:
    walk = made.run_headless(RUNBOOK, database=DATABASE, to=str(made.directory / "nowhere-at-all"))
    assert walk.code == 7, walk.text
    assert "is not the absolute path of a directory" in walk.text


def test_without_a_suitable_pg_dump_it_does_not_start(made: DumpServer, tmp_path: Path) -> None:
    for name in ("pg_dump", "psql"):
        program = tmp_path / name
        program.write_text(
            f"#!/bin/sh\nif [ {name} = psql ]; then echo 180000; else echo 'pg_dump (PostgreSQL) 9.6'; fi\n"
        )
        program.chmod(0o755)
    walk = made.watched.run_headless(RUNBOOK, database=DATABASE, to=str(made.directory), programs=str(tmp_path))
    assert walk.code == 7
    assert f"{MOMENT}/program" in walk.unmet()
    assert TRY not in walk.done()
