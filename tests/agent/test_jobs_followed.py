"""Dumps and restores of any user are followed object by object; each is held where the test reads its state."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from dba_console.agent.runs.commands import outcome_of
from dba_console.agent.runs.dump_messages import DumpMessages, observed_progress
from dba_console.core.clock import SYSTEM
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.history.history_files import history_path, load_or_set_aside, save_history
from dba_console.jobs.history.kept_history import KeptJob
from dba_console.jobs.history.run_statistics import typical_runs
from dba_console.keeper.command_status import wait
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.samples.jobs import JobNow, ObjectNow
from tests.agent.job_observer import KEY, job_observer, prepare
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.host.held_jobs import LIMIT_S, PASSWORD, JobServer, environment, shell_quoted
from tests.keeper.keepers import CommandStarter

pytestmark = pytest.mark.root
"""The owner of a connection is visible to root, or to the user of both the server and the program."""


@pytest.fixture(scope="module")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    """A server with databases to be dumped and archives to be restored."""
    directory: Path = tmp_path_factory.mktemp("followed")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        made = JobServer(cluster, directory)
        prepare(made)
        yield made


VIEWED = """
create table hold.checked (i integer check (i <> 20000 or hold.on()), filler text);
insert into hold.checked select i, repeat(md5(i::text), 3) from generate_series(1, 40000) i;
create function hold.late() returns boolean language sql as $$ select pg_advisory_xact_lock_shared(LATE) is not null $$;
create materialized view hold.sums as select count(*) as c from hold.checked where hold.late() or i > 0;
create index on hold.sums (c);
create index on hold.checked (filler);
"""
"""Its restore is held up in the middle of the data, and when the view is filled."""
LATE_LOCK = 774


def objects(job: JobNow, state: str) -> dict[str, ObjectNow]:
    return {one.name: one for one in job.objects if one.state == state}


def phase(job: JobNow, name: str) -> tuple[str, int | None, int, int]:
    (found,) = [one for one in job.phases if one.name == name]
    return found.state, found.items, found.items_done, found.items_running


def new_database(job_server: JobServer) -> str:
    """An empty database."""
    name = job_server.new_target_database() + "_empty"
    job_server.cluster.psql(f"create database {name}")
    return name


@pytest.mark.parametrize("first", ["the dump", "the agent"])
def test_a_parallel_dump_is_followed_by_its_files_and_sessions(job_server: JobServer, first: str) -> None:
    command = job_server.dump_command("-Fd", "-j2", "-Z6", "-f", first)
    with job_observer(job_server.cluster) as watched:
        if first == "the agent":
            watched.tick()
        with job_server.held_job(command, 2) as held:
            job = watched.until(lambda job: job.pct is not None and job.need_bytes is not None, "its objects")
            assert (job.kind, job.format, job.jobs, job.database) == ("pg_dump", "directory", 2, "full_one")
            assert job.pid == held.process.pid and set(job.backends) == held.backends()
            assert set(objects(job, "running")) == {"hold.one", "hold.two"}
            assert phase(job, "data") == ("running", 2, 0, 2) and job.counts == (2, 0, 0, 0)
            assert job.grade == "estimated" and 0 < (job.pct or 0) < 100
            one = objects(job, "running")["hold.one"]
            assert one.pid in held.held_backends() and one.unit == "rows" and (one.done or 0) < (one.total or 0)
            assert job.writes == str(job_server.directory / first) and (job.written_bytes or 0) > 0
            assert job.fits is True and job.mount is not None
            assert any(source.startswith("toc.dat") for source in job.sources)
            (row,) = [row for row in watched.rows if row.kind == "pg_dump"]
            assert (row.process, row.scope, row.pct, row.grade) == (job.pid, "whole", job.pct, "estimated")
            assert row.counts is not None and row.counts.running == 2
        event = watched.ended("pg_dump")
    assert event.details["format"] == "directory" and event.details["bytes"] > 0
    assert set(event.details["phases"]) == {"data"}


@pytest.mark.parametrize("how", ["custom", "plain into gzip"])
def test_a_serial_dump_is_followed_table_by_table(job_server: JobServer, how: str) -> None:
    custom = how == "custom"
    command = (
        job_server.dump_command("-Fc", "-f", "serial.dump")
        if custom
        else f"{shell_quoted(*job_server.dump_command())} | gzip > serial.sql.gz"
    )
    with job_observer(job_server.cluster) as watched, job_server.held_job(command, 1):
        job = watched.until(lambda job: job.pct is not None and job.need_bytes is not None, "its table")
        assert (set(objects(job, "running")), set(objects(job, "waiting"))) == ({"hold.one"}, {"hold.two"})
        assert phase(job, "data") == ("running", 2, 0, 1)
        assert job.writes == str(job_server.directory / ("serial.dump" if custom else "serial.sql.gz"))
        assert job.format == ("custom" if custom else "plain") and job.fits is True


def test_a_parallel_restore_is_followed_from_its_data_to_its_indexes(job_server: JobServer) -> None:
    target = new_database(job_server)
    command = [job_server.program_path("pg_restore"), "-j2", "-v", "-d", job_server.dsn(target), "shop.d"]
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(command, 1, target) as held:
            job = watched.until(
                lambda job: "shop.lines_held" in objects(job, "running") and phase(job, "data")[0] == "done",
                "its index",
            )
            index = objects(job, "running")["shop.lines_held"]
            assert (index.what, index.phase, index.pid) == ("INDEX", "indexes", *held.held_backends())
            assert phase(job, "data")[0] == "done" and phase(job, "indexes")[3] == 1
            assert job.reads == str(job_server.directory / "shop.d") and job.read_bytes == job.read_size_bytes
            assert job.errors == 0 and any(one.startswith("stderr in ") for one in job.sources)
            assert any("shop.lines" in one for one in job.critical)
        event = watched.ended("pg_restore")
    assert event.details["errors"] == 0
    assert {"data", "indexes", "constraints"} <= set(event.details["phases"])


def test_a_run_shows_the_observed_restore_and_at_the_end_what_its_messages_say(
    job_server: JobServer, tmp_path: Path
) -> None:
    target, run = job_server.new_target_database(), "20261122T091500Z-restore-1a2b"
    directory = tmp_path / "runs" / run / "steps" / "take.1"
    directory.mkdir(parents=True)
    restore = [job_server.program_path("pg_restore"), "-v", "-j2", "-d", job_server.dsn(target), "d"]
    with job_observer(job_server.cluster) as watched, session(job_server.cluster, dbname=target) as holder:
        holder.execute("select pg_advisory_lock(771)")
        script = f"cd {shell_quoted(str(job_server.directory))} && exec {shell_quoted(*restore)}"
        CommandStarter(tmp_path).run_in(directory, script, env=environment())
        watched.until(lambda job: job.run == run and len(objects(job, "running")) == 2, "both tables")

        def told(of: str) -> str:
            watched.tick()
            return observed_progress(Frame(panels={"progress": ProgressPanel(operations=watched.rows)}), of)

        assert "data 0 of 2; running: TABLE DATA hold." in wait_until(lambda: told(run), LIMIT_S, what="its row")
        assert told("another") == ""
        holder.execute("select pg_advisory_unlock_all()")
        ended = wait(directory, LIMIT_S).exit
        assert watched.ended("pg_restore").details["ok"] is True
    assert ended is not None
    messages = DumpMessages(directory, "pg_restore", str(job_server.directory / "d"), 2, SYSTEM)
    outcome = messages.outcome(outcome_of(ended, (0,)), ended.ended_us)
    messages.close()
    assert outcome.state == "ok" and outcome.values["errors"] == 0 and outcome.values["data_s"] > 0
    assert outcome.table is not None and ("phase", "data", "2") in {(*row[:2], row[4]) for row in outcome.table.rows}


def test_a_vacuumdb_that_a_run_started_has_the_outcome_of_its_exit_status(
    job_server: JobServer, tmp_path: Path
) -> None:
    target = new_database(job_server)
    job_server.cluster.psql("create table held as select 1 as i", dbname=target)
    directory = tmp_path / "runs" / "20261122T091500Z-restore-1a2c" / "steps" / "statistics.1"
    directory.mkdir(parents=True)
    analyze = [job_server.program_path("vacuumdb"), "--analyze-only", "-t", "held", "-d", job_server.dsn(target)]
    with job_observer(job_server.cluster) as watched, session(job_server.cluster, dbname=target) as holder:
        holder.execute("begin; lock table held")
        CommandStarter(tmp_path).run_in(directory, f"exec {shell_quoted(*analyze)}", env=environment())
        watched.until(lambda job: job.kind == "vacuumdb" and job.pid is not None, "its program")
        holder.execute("rollback")
        event = watched.ended("vacuumdb")
    assert (event.details["ok"], event.details["exit"]) == (True, 0)


def test_a_restore_found_midway_is_reported_by_what_it_has_created(job_server: JobServer) -> None:
    target = new_database(job_server)
    command = (
        shell_quoted(job_server.program_path("pg_restore"), "-d", job_server.dsn(target), "shop.c") + " 2>/dev/null"
    )
    with job_server.held_job(command, 1, target), job_observer(job_server.cluster) as watched:
        job = watched.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
        assert phase(job, "schema")[0] == "done" and phase(job, "data") == ("done", 2, 2, 0)
        assert phase(job, "constraints")[0] == "waiting"
        assert job.grade in ("estimated", "unknown") and job.errors is None
        assert "its messages are discarded (/dev/null)" in job.unknown


def test_a_script_is_followed_by_its_input_file(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    command = f"zcat p.sql.gz | {shell_quoted(job_server.program_path('psql'), '-q', '-d', job_server.dsn(target))}"
    with job_observer(job_server.cluster) as watched, job_server.held_job(command, 1, target):
        job = watched.until(lambda job: job.kind == "psql" and objects(job, "running"), "its table")
        assert job.reads == str(job_server.directory / "p.sql.gz")
        assert (
            0
            < (job.read_bytes or 0)
            <= (job.read_size_bytes or 0)
            == (job_server.directory / "p.sql.gz").stat().st_size
        )
        assert set(objects(job, "running")) == {"hold.one"}
        assert (job.pct, job.grade, job.eta_s) == (None, "unknown", None)
        (row,) = [row for row in watched.rows if row.kind == "psql"]
        read = 100.0 * (job.read_bytes or 0) / (job.read_size_bytes or 1)
        assert (row.scope, row.grade) == ("file", "measured") and row.pct == pytest.approx(read)
        assert row.eta_s is not None and row.eta_grade == "estimated"
        assert any("a script does not show" in why for why in job.unknown)


def test_an_archive_piped_into_a_restore_has_the_progress_of_its_file(job_server: JobServer) -> None:
    target = job_server.new_target_database()
    command = f"cat c | {shell_quoted(job_server.program_path('pg_restore'), '-d', job_server.dsn(target))}"
    with job_observer(job_server.cluster) as watched, job_server.held_job(command, 1, target):
        watched.until(lambda job: job.kind == "pg_restore" and job.read_bytes, "its file")
        (row,) = [row for row in watched.rows if row.kind == "pg_restore"]
        assert (row.scope, row.grade) == ("file", "measured") and 0 < (row.pct or 0) <= 100


@pytest.mark.parametrize("how", ["-v", "-j2"], ids=["with messages", "without"])
def test_a_materialized_view_makes_no_other_part_of_a_restore_unknown_and_is_a_part_itself(
    job_server: JobServer, how: str
) -> None:
    source, target = job_server.new_target_database(), new_database(job_server)
    job_server.cluster.psql(VIEWED.replace("LATE", str(LATE_LOCK)), dbname=source)
    archive = f"viewed{how}"
    job_server.run_program("pg_dump", "-Fd", "-n", "hold", "-f", archive, job_server.dsn(source))
    command = [job_server.program_path("pg_restore"), "-j2", how, "-d", job_server.dsn(target), archive]
    with (
        session(job_server.cluster, dbname=target) as later,
        job_observer(job_server.cluster) as watched,
        job_server.held_job(command, 1, target) as held,
    ):
        later.execute(f"select pg_advisory_lock({LATE_LOCK})")
        watched.until(lambda job: 20 < (job.phases[1].pct or 0 if len(job.phases) > 1 else 0) < 80, "its data")
        (row,) = [row for row in watched.rows if row.kind == "pg_restore"]
        (data,) = [one for one in row.phases if one.name == "data"]
        assert (row.phase, data.grade) == ("data", "measured") and 0 < (row.pct or 0) <= (data.pct or 0) < 80
        assert data.eta_s is not None
        assert row.done is not None and row.total and row.pct == pytest.approx(100 * row.done / row.total, rel=0.02)
        assert row.scope == "whole" or row.eta_s == data.eta_s, "of the data, where nothing tells of the whole"
        assert row.unknown and not any("the sizes" in why for why in row.unknown), row.unknown
        held.release()
        job = watched.until(lambda job: "hold.sums" in objects(job, "running"), "the view that is filled")
        assert (job.phase, job.counts[0]) == ("rest", 1) and job.pct is not None and job.pct < 100, job
        (row,) = [row for row in watched.rows if row.kind == "pg_restore"]
        assert row.phase == "rest" and (row.eta_s is None or row.eta_s >= 1.0), row
        later.execute("select pg_advisory_unlock_all()")


def test_two_dumps_of_one_database_at_once_are_two_jobs(job_server: JobServer) -> None:
    both = " & ".join(shell_quoted(*job_server.dump_command("-Fc", "-f", name)) for name in ("left.dump", "right.dump"))
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(f"{both} & wait", 2):
            watched.until(
                lambda _: len(watched.jobs) == 2 and all(job.pid for job in watched.jobs)
                and watched.past is not None and len(watched.past.running) == 2 and len(watched.rows) == 2,
                "two jobs",
            )  # fmt: skip
            assert {job.writes for job in watched.jobs} == {
                str(job_server.directory / name) for name in ("left.dump", "right.dump")
            }
            assert [len(job.backends) for job in watched.jobs] == [1, 1]
            assert sorted(row.process or 0 for row in watched.rows) == sorted(job.pid or 0 for job in watched.jobs)
        watched.until_idle()
        ends = [event for event in watched.events if event.kind == "job.ended"]
    assert len(ends) == 2


def history_file() -> Path:
    """The history of the server."""
    path = history_path(KEY)
    assert path is not None
    return path


def test_no_progress_goes_back_over_a_restart_of_the_agent(job_server: JobServer) -> None:
    with job_server.held_job(job_server.dump_command("-Fc", "-f", "again.dump"), 1):
        with job_observer(job_server.cluster) as watched:
            watched.until(lambda job: job.pct is not None, "its share")
            message = [job.pct for look in watched.observations for job in look.jobs if job.pct is not None]
        saved = load_or_set_aside(history_file())
        assert message == sorted(message) and saved is not None and [one.pct for one in saved.shares] == message[-1:]
        saved.shares = [structs.replace(one, pct=90.0) for one in saved.shares]
        save_history(history_file(), saved)
        with job_observer(job_server.cluster) as watched:
            job = watched.until(lambda job: (job.pct or 0) >= 90, "its share as it was said to be")
            assert job.pct == 90.0


def test_the_details_of_a_run_are_remembered(job_server: JobServer) -> None:
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(job_server.dump_command("-Fd", "-v", "-f", "kept"), 1) as held:
            watched.until(lambda job: job.pct is not None, "its share")
            held.release()
            watched.ended("pg_dump")
        watched.until_idle()
    saved = load_or_set_aside(history_file())
    assert saved is not None
    ((run,),) = [job.runs for job in saved.jobs if job.kind == "pg_dump"]
    assert (run.format, run.errors, run.version) == ("directory", 0, run.version)
    assert run.size_bytes and run.bytes and run.rate_per_s and [one.name for one in run.phases][-1] == "data"
    assert saved.shares == []


def test_a_killed_restore_is_gone_and_not_reported_as_successful(job_server: JobServer) -> None:
    target = new_database(job_server)
    command = (
        shell_quoted(job_server.program_path("pg_restore"), "-j2", "-d", job_server.dsn(target), "shop.d") + "; true"
    )
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(command, 1, target):
            job = watched.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
            assert job.pid is not None
            os.kill(job.pid, signal.SIGKILL)
        event = watched.ended("pg_restore")
        watched.until_idle()
    assert event.details["ok"] is None and "exit" not in event.details


def restore_without_messages(job_server: JobServer, target: str, archive: str) -> str:
    """A shell command of a restore whose messages cannot be read."""
    return shell_quoted(job_server.program_path("pg_restore"), "-d", job_server.dsn(target), archive) + " 2>/dev/null"


def test_a_restore_ended_in_its_first_half_is_not_comparable_and_a_later_one_is(
    job_server: JobServer, tmp_path: Path
) -> None:
    target = job_server.new_target_database()
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(f"{restore_without_messages(job_server, target, 'd')}; true", 1, target):
            job = watched.until(
                lambda job: "hold.one" in objects(job, "running") and (job.elapsed_s or 0) > 5, "its table"
            )
            assert job.pid is not None
            os.kill(job.pid, signal.SIGKILL)
        watched.ended("pg_restore")
        watched.until_idle()
        job_server.cluster.psql(f"drop database {target} with (force)")
        job_server.cluster.psql(f"create database {target}")
        with job_server.held_job(restore_without_messages(job_server, target, "shop.d"), 1, target):
            job = watched.until(lambda job: "shop.lines_held" in objects(job, "running"), "the next one")
            assert job.eta_grade != "history", "what was killed is no measure"
        watched.until_idle()
    saved = load_or_set_aside(history_file())
    assert saved is not None
    ((cut, whole),) = [job.runs for job in saved.jobs if job.kind == "pg_restore"]
    assert cut.whole is None and 0 < (cut.reached or 0) < 0.5
    assert typical_runs([cut, whole]) == [whole]


def test_restores_of_one_database_are_compared_whatever_their_target(job_server: JobServer) -> None:
    with job_observer(job_server.cluster) as watched:
        with job_server.held_job(
            restore_without_messages(job_server, target := new_database(job_server), "shop.d"), 1, target
        ):
            watched.until(lambda job: "shop.lines_held" in objects(job, "running"), "a restore")
        watched.until_idle()
    saved = load_or_set_aside(history_file())
    assert saved is not None
    ((run,),) = [job.runs for job in saved.jobs if job.kind == "pg_restore"]
    assert run.source == "shop"
    night = structs.replace(run, seconds=100.0, whole=True)
    nights = [structs.replace(night, started_us=run.started_us - days * 86_400_000_000) for days in (3, 2, 1)]
    saved.jobs = [KeptJob("pg_restore", f"test_{night.started_us}", "postgres", 0, [night]) for night in nights]
    save_history(history_file(), saved)
    with job_observer(job_server.cluster) as watched:
        target = new_database(job_server)
        with job_server.held_job(restore_without_messages(job_server, target, "shop.d"), 1, target):
            job = watched.until(lambda job: job.usual_s is not None, "its usual time")
            (row,) = [row for row in watched.rows if row.kind == "pg_restore"]
    assert (job.source, job.usual_s, job.usual_runs) == ("shop", 100.0, 3)
    assert (row.source, row.usual_s, row.usual_runs) == ("shop", 100.0, 3)


def test_what_is_shown_of_a_job_contains_no_password(job_server: JobServer) -> None:
    with (
        job_observer(job_server.cluster) as watched,
        job_server.held_job(job_server.dump_command("-Fc", "-f", "secret.dump", dsn=job_server.tcp_dsn()), 1),
    ):
        job = watched.until(lambda job: job.pct is not None, "its share")
        assert job.command is not None and "password=********" in job.command
        reported = msgspec.json.encode(watched.observations).decode()
    assert PASSWORD not in reported and PASSWORD.split("/")[0] not in reported
