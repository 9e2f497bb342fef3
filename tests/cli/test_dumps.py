"""`dba-console dumps` on a real server: the sweep and what disturbs it, archives whole and damaged, estimates."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools.scratch_directory import NAME
from dba_console.watch.probes.host.postmasters import PostmasterChildren
from tests.background import session, wait_until
from tests.cli.console import CompletedCommand, Console
from tests.clusters import binaries_of
from tests.disks import fill, mounted
from tests.processes import contents

DATABASE = "app"
TABLES = 6
ROWS = 3_000
ODD_NAME = 'a "b".c\n; d'
LONG_S = 240.0
"""For whatever is waited for: the machine may have other things to do."""
_TRIALS = "select count(*) from pg_stat_activity where application_name like 'dba-console-sweep:%'"


class SweepSetup:
    """A server with some tables, and a console that has nothing of this user."""

    def __init__(self, cluster: Cluster, console: Console) -> None:
        self.cluster, self.console = cluster, console
        self.dsn = cluster.dsn(dbname=DATABASE)

    def dumps(self, *words: str) -> CompletedCommand:
        return self.console.run("dumps", *words, timeout=LONG_S)

    def sql(self, text: str) -> str:
        return self.cluster.psql(text, dbname=DATABASE)

    def dump(self, path: Path, *arguments: str) -> Path:
        """A dump of the database by the server's own pg_dump."""
        program = str(self.cluster.binaries.program("pg_dump"))
        subprocess.run([program, "-d", self.dsn, "-f", str(path), *arguments], check=True, capture_output=True)
        return path

    def wait_for_row(self, question: str, answer: int, what: str) -> None:
        with closing(session(self.cluster, dbname=DATABASE)) as asking:
            wait_until(lambda: [(answer,)] == asking.execute(question).fetchall(), LONG_S, what=what)

    @contextmanager
    def held_sweep(self, *more: str) -> Iterator[tuple[subprocess.Popen[str], psycopg.Connection[tuple[object, ...]]]]:
        """A sweep whose first pg_dump has its locks and can go no further; who commits the session lets it go on."""
        with psycopg.connect(self.dsn) as holder:
            holder.execute("lock table pg_catalog.pg_policy in access exclusive mode")
            with self.console.running("dumps", "sweep", self.dsn, "-j", "2", *more) as process:
                waits = f"{_TRIALS} and wait_event_type = 'Lock'"
                self.wait_for_row(waits, 1, "a trial that waits for the catalog")
                yield process, holder
                holder.rollback()


@pytest.fixture(scope="module")
def cluster_with_tables() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), settings={"max_connections": 40}, durable=False) as cluster:
        cluster.psql(f"create database {DATABASE}")
        for number in range(TABLES):
            cluster.psql(
                f"create table t{number} as select i, md5(i::text) as name from generate_series(1, {ROWS}) i",
                dbname=DATABASE,
            )
        name = ODD_NAME.replace('"', '""')
        cluster.psql(f"create table \"{name}\" as select 1 as i, E'two\\nlines \\\\.' as name", dbname=DATABASE)
        cluster.psql("alter table t0 add primary key (i)", dbname=DATABASE)
        cluster.psql("analyze", dbname=DATABASE)
        yield cluster


@pytest.fixture
def sweep_setup(cluster_with_tables: Cluster, console: Console) -> SweepSetup:
    console.environment["DBA_CONSOLE_PG_BINDIR"] = str(cluster_with_tables.binaries.directory)
    return SweepSetup(cluster_with_tables, console)


def sweep_directories(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if NAME.fullmatch(path.name)]


# -- the sweep -------------------------------------------------------------------------------------------------------


def test_a_sweep_finds_a_number_of_jobs_shows_its_table_and_saves_it(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    assert sweep_setup.dumps("jobs", sweep_setup.dsn, "--plain").out == ""
    done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(tmp_path), "-j", "4", "--json")
    assert done.code == 0, done.err
    (kept,) = done.objects()
    jobs = kept["jobs"]
    assert 1 <= jobs <= 4
    assert {row["jobs"] for row in kept["rows"]} >= {1, jobs}
    assert kept["tables"] == kept["chosen_tables"] == TABLES + 1
    assert 0 < kept["ratio"] < 1
    assert list(tmp_path.iterdir()) == []
    assert sweep_setup.dumps("jobs", sweep_setup.dsn, "--plain").out == f"{jobs}\n"
    shown = sweep_setup.dumps("jobs", sweep_setup.dsn)
    assert shown.code == 0
    assert "limited by" in shown.out
    assert f"-j {jobs}: " in shown.out


def test_it_dumps_to_nowhere_with_a_part_of_the_tables(sweep_setup: SweepSetup) -> None:
    done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--share", "10%", "-j", "1", "--json")
    if done.code != 0 and "no tmpfs directory" in done.err:
        pytest.skip("there is no memory mounted as a file system here")
    assert done.code == 0, done.err
    (kept,) = done.objects()
    assert kept["place"] == "nowhere"
    assert kept["chosen_tables"] < kept["tables"]
    assert not kept["rows"][0]["measured"], "of a part it is reckoned"


def test_a_killed_sweep_ends_its_dump_and_the_next_one_cleans_up(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    with sweep_setup.held_sweep("--to", str(tmp_path)) as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait(LONG_S)
        sweep_setup.wait_for_row(_TRIALS, 0, "the end of the killed sweep's pg_dump")
        assert len(sweep_directories(tmp_path)) == 1
    done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(tmp_path), "-j", "1")
    assert done.code == 0, done.err
    assert list(tmp_path.iterdir()) == []


def test_if_its_pg_dump_is_killed_that_is_reported_and_nothing_is_left(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    with sweep_setup.held_sweep("--to", str(tmp_path)) as (process, _):
        (child,) = PostmasterChildren("/proc", process.pid).read()
        os.kill(child, signal.SIGKILL)
        assert process.wait(LONG_S) == 7
        assert process.stderr is not None and "terminated by signal 9" in process.stderr.read()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_leaves_nothing(sweep_setup: SweepSetup, tmp_path: Path, number: signal.Signals) -> None:
    with sweep_setup.held_sweep("--to", str(tmp_path)) as (process, _):
        process.send_signal(number)
        assert process.wait(LONG_S) == 130
        assert list(tmp_path.iterdir()) == []
        sweep_setup.wait_for_row(_TRIALS, 0, "the end of its pg_dump")
    assert sweep_setup.dumps("jobs", sweep_setup.dsn, "--plain").out == ""


def test_it_stops_for_sessions_that_wait_behind_it(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    with sweep_setup.held_sweep("--to", str(tmp_path)) as (process, _), psycopg.connect(sweep_setup.dsn) as other:
        other.execute("lock table t1 in access exclusive mode")  # returns when the sweep has let go
        other.rollback()
        process.wait(LONG_S)
        assert process.returncode == 7
        assert process.stderr is not None
        assert "waited" in (message := process.stderr.read()) and "exclusive lock" in message
        assert list(tmp_path.iterdir()) == []


def test_a_lock_requested_midway_is_named_as_the_cause_of_its_end(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    """The trial with one job ends or gives way; the next one does not wait for that lock."""
    with (
        sweep_setup.held_sweep("--to", str(tmp_path)) as (process, holder),
        closing(psycopg.connect(sweep_setup.dsn)) as other,
    ):
        other.pgconn.send_query(b"begin; lock table t1 in access exclusive mode")
        waits = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and not granted"
        sweep_setup.wait_for_row(waits, 1, "the one who asks")
        holder.rollback()
        assert process.wait(LONG_S) == 7
        assert process.stderr is not None
        assert re.search("exclusive lock on|locked exclusively", process.stderr.read())
        assert list(tmp_path.iterdir()) == []


def test_it_does_not_start_while_a_table_is_locked_exclusively(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    with psycopg.connect(sweep_setup.dsn) as holder:
        holder.execute("lock table t2 in access exclusive mode")
        done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(tmp_path))
    assert done.code == 7
    assert "locked exclusively" in done.err
    assert list(tmp_path.iterdir()) == []


def test_it_uses_no_connection_that_others_may_need(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    sweep_setup.sql("create role few login superuser connection limit 4")
    done = sweep_setup.dumps("sweep", sweep_setup.cluster.dsn(dbname=DATABASE, user="few"), "--to", str(tmp_path))
    sweep_setup.sql("drop role few")
    assert done.code == 8
    assert "the role's connection limit" in done.err


@pytest.mark.root
def test_a_directory_without_space_is_refused_and_one_that_fills_up_is_abandoned(
    sweep_setup: SweepSetup, tmp_path: Path
) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        assert sweep_setup.dumps("estimate", sweep_setup.dsn, "--to", str(small)).code == 7
        done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(small))
        assert done.code == 8
        assert "free" in done.err
    with mounted("tmpfs", tmp_path / "enough", "-o", "size=16m") as place:
        with sweep_setup.held_sweep("--to", str(place)) as (process, _):
            fill(place)  # by somebody else, meanwhile
            assert process.wait(LONG_S) == 7
            assert process.stderr is not None and "trial stopped: only" in process.stderr.read()
        assert [path.name for path in place.iterdir()] == ["filler"]


def test_a_second_concurrent_sweep_is_refused(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    with psycopg.connect(sweep_setup.cluster.dsn(dbname=DATABASE, application_name="dba-console:sweep")):
        done = sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(tmp_path))
    assert done.code == 8
    assert "another sweep" in done.err


def test_a_password_is_neither_in_the_arguments_nor_in_the_output(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    password = f"hush-{uuid.uuid4().hex}"  # on no command line of another test
    dsn = f"{sweep_setup.dsn} password={password}"
    with psycopg.connect(sweep_setup.dsn) as holder:
        holder.execute("lock table pg_catalog.pg_policy in access exclusive mode")
        environment = {"PGPASSWORD": password}
        with sweep_setup.console.running(
            "dumps", "sweep", sweep_setup.dsn, "-j", "1", "--to", str(tmp_path), **environment
        ) as process:
            sweep_setup.wait_for_row(f"{_TRIALS} and wait_event_type = 'Lock'", 1, "a trial that waits")
            arguments = [line for _pid, line in contents("cmdline")]
            assert any(b"dba-console-sweep" in one for one in arguments), "the trial itself is among them"
            assert not any(password.encode() in one for one in arguments)
            holder.rollback()
            out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 0, err
    assert password not in out + err + str(list((sweep_setup.console.home / "state").rglob("*.json")))
    assert dsn not in out


# -- archives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["-Fd", "-Fc", "-Ft"])
def test_a_complete_archive_is_listed_and_read_to_its_end(sweep_setup: SweepSetup, tmp_path: Path, form: str) -> None:
    archive = sweep_setup.dump(tmp_path / "dump", form)
    listed = sweep_setup.dumps("list", str(archive), "--json")
    assert listed.code == 0, listed.err
    (found,) = listed.objects()
    assert found["tables"] == TABLES + 1
    assert found["database"] == DATABASE
    assert found["phases"]["data"] == TABLES + 1 and found["phases"]["indexes"] == 1
    assert any(name.startswith('public.a "b".c␊') for name, _ in found["biggest"])
    done = sweep_setup.dumps(
        "verify", str(archive), "--sample", "99", "--dsn", sweep_setup.dsn, "--seed", "7", "--json"
    )
    assert done.code == 0, done.out
    (verdict,) = done.objects()
    assert verdict["good"] and verdict["seed"] == 7
    rows = {row["table"]: (row["dumped"], row["now"]) for row in verdict["rows"]}
    assert rows.pop('public.a "b".c␊; d') == (1, 1)
    assert set(rows.values()) == {(ROWS, ROWS)} and len(rows) == TABLES


def test_rows_added_since_are_reported_as_added_since(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    archive = sweep_setup.dump(tmp_path / "dump", "-Fd", "-t", "t3")
    sweep_setup.sql("insert into t3 select i, 'new' from generate_series(1, 1234) i")
    done = sweep_setup.dumps("verify", str(archive), "--sample", "1", "--dsn", sweep_setup.dsn)
    sweep_setup.sql("delete from t3 where name = 'new'")
    assert done.code == 0, done.err
    assert "+1,234" in done.out and "not an error in the dump" in done.out


def test_a_truncated_data_file_is_reported_with_its_table(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    archive = sweep_setup.dump(tmp_path / "dump", "-Fd")
    file = max(archive.glob("*.dat.gz"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1000])
    done = sweep_setup.dumps("verify", str(archive))
    assert done.code == 7
    assert "truncated" in done.out and "public.t" in done.out
    file.unlink()
    for verb in ("list", "verify"):
        done = sweep_setup.dumps(verb, str(archive))
        assert done.code == 7
        assert "is missing" in done.out


def test_a_truncated_custom_archive_is_reported(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    archive = sweep_setup.dump(tmp_path / "dump", "-Fc")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size * 2 // 3])
    done = sweep_setup.dumps("verify", str(archive))
    assert done.code == 7, done.out
    assert "verification failed" in done.out


def test_an_invalid_archive_and_one_of_a_later_version_are_clear_errors(
    sweep_setup: SweepSetup, tmp_path: Path
) -> None:
    archive = sweep_setup.dump(tmp_path / "dump", "-Fc")
    content = bytearray(archive.read_bytes())
    content[6] = 99  # magic, major, minor
    archive.write_bytes(content)
    later = sweep_setup.dumps("list", str(archive))
    (tmp_path / "text").write_text("nothing of the kind\n")
    for done in (later, sweep_setup.dumps("verify", str(archive)), sweep_setup.dumps("list", str(tmp_path / "text"))):
        assert done.code == 5
        assert done.err.startswith("error: ") and "Traceback" not in done.err


def test_a_plain_dump_is_read_to_its_last_line(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    archive = sweep_setup.dump(tmp_path / "dump.sql", "-Fp")
    assert "no table of contents" in sweep_setup.dumps("list", str(archive)).out
    assert sweep_setup.dumps("list", str(tmp_path / "nothing")).code == 2
    assert sweep_setup.dumps("verify", str(archive)).code == 0
    archive.write_text(archive.read_text()[:-200])
    done = sweep_setup.dumps("verify", str(archive))
    assert done.code == 7
    assert "truncated" in done.out


# -- what is expected ------------------------------------------------------------------------------------------------


def test_an_estimate_uses_the_tables_and_after_a_sweep_its_dumps(sweep_setup: SweepSetup, tmp_path: Path) -> None:
    before = json.loads(sweep_setup.dumps("estimate", sweep_setup.dsn, "--to", str(tmp_path), "--json").out)
    assert before["dump_bytes"] is None and before["ratio"] is None
    assert before["at_most_bytes"] == before["table_bytes"] > TABLES * ROWS * 30
    assert before["free_bytes"] > 0 and before["fits"] is True
    assert sweep_setup.dumps("sweep", sweep_setup.dsn, "--to", str(tmp_path), "-j", "1").code == 0
    after = json.loads(sweep_setup.dumps("estimate", sweep_setup.dsn, "--to", str(tmp_path), "--json").out)
    whole = sweep_setup.dump(tmp_path / "whole", "-Fd")
    size = sum(path.stat().st_size for path in whole.iterdir())
    shutil.rmtree(whole)
    assert after["dump_bytes"] == pytest.approx(size, rel=0.1)
    assert "sweep" in after["ratio_from"]
    assert int(sweep_setup.dumps("estimate", sweep_setup.dsn, "--bytes").out) == after["at_most_bytes"]
