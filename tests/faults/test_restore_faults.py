"""Failed restores, by a run and by another user: the outcome is reported correctly, and no setting stays."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import OperationalError

from dba_console.agent.runs.commands import UNATTENDED
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from tests.agent.job_observer import job_observer, prepare
from tests.agent.test_jobs_followed import new_database, objects
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.disks import loop_mounted
from tests.faults.test_restore_agent_killed import processes
from tests.host.held_jobs import LIMIT_S, shell_quoted
from tests.host.held_jobs import JobServer as Watched
from tests.runbooks.dumps import CHECK_KEY, DumpServer, after_doing, running_dump_server, table_of
from tests.runbooks.forked_console import dialog
from tests.runbooks.runs import WAIT_S, AnswerSource
from tests.runbooks.test_restore import RESTORE, is_restore, settings

pytestmark = pytest.mark.root
RUNBOOK = "restore"
FREE_BYTES = 600_000
"""Bytes free for a restore of some megabytes."""
LATE_CHECK_LOCK = 772
WIDE_SCHEMA_SQL = f"""
create function step(key integer) returns boolean language plpgsql as $$
begin perform pg_advisory_lock_shared(key); return pg_advisory_unlock_shared(key); end $$;
create table wide (
  i integer check (case i when 16000 then step(771) when 60000 then step({LATE_CHECK_LOCK}) else true end), filler text
);
insert into wide select i, repeat(md5(i::text), 4) from generate_series(1, 80000) i;
"""
"""13.7 MB, held up after 2.7 MB and after 10.2."""
WIDE_FREE_BYTES = 12_600_000
_WAITS = f"select 1 from pg_locks where locktype = 'advisory' and objid = {CHECK_KEY} and not granted"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory: Path = tmp_path_factory.mktemp("watched")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        made = Watched(cluster, directory)
        prepare(made)
        yield made


@pytest.fixture(scope="module")
def dump_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("run")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(dump_server: DumpServer) -> Path:
    return dump_server.dump_database("whole", "--format=directory", "--jobs=2")


def restore_command(watched: Watched, target: str) -> str:
    """A restore for bash, which does not mind how it ends."""
    return shell_quoted(watched.program_path("pg_restore"), "-j2", "-d", watched.dsn(target), "shop.d") + "; true"


def test_a_restore_whose_worker_was_killed_is_failed(watched: Watched) -> None:
    target = new_database(watched)
    with (
        job_observer(watched.cluster) as observer,
        watched.held_job(restore_command(watched, target), 1, target) as held,
    ):
        job = observer.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        held.release()
        event = observer.ended("pg_restore")
    assert event.details["ok"] is False
    assert "it failed: a worker process died unexpectedly" in event.text


def test_a_restore_that_ended_with_the_server_is_not_reported_as_successful(watched: Watched) -> None:
    target = new_database(watched)
    with job_observer(watched.cluster) as observer:
        lost = pytest.raises(OperationalError)  # of the session that holds it up
        with lost, watched.held_job(restore_command(watched, target), 1, target) as held:
            observer.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
            watched.cluster.restart(mode="immediate")
            held.process.wait(LIMIT_S)
        event = observer.ended("pg_restore")
    assert event.details["ok"] is not True, event
    assert "it succeeded" not in event.text and "it ended, with" not in event.text, event


def test_settings_are_reverted_on_a_server_that_crashed_during_the_restore(
    dump_server: DumpServer, archive: Path
) -> None:
    """Nobody is asked; the run waits until it answers again, though it was started anew since."""
    before = settings(dump_server)
    dump_server.cluster.psql("create database crashed")
    crash = threading.Thread(target=lambda: crash_when_waiting(dump_server))
    with closing(session(dump_server.cluster, dbname="crashed", name="dba-console:beside")) as holder:
        holder.execute(f"select pg_advisory_lock({CHECK_KEY})")
        crash.start()
        walk = dump_server.run_headless(
            RUNBOOK, database="crashed", archive=str(archive), jobs="2", speed="fast", statistics="none"
        )
    crash.join(WAIT_S)
    assert walk.code == 7 and "restore-it" not in walk.states(), walk.text
    assert RESTORE in walk.ending and "ended with errors" not in walk.ending
    assert walk.ending.endswith("; temporary settings reverted"), walk.ending
    wait_until(lambda: is_up(dump_server), WAIT_S, what="the server after its crash")
    assert settings(dump_server) == before


def test_a_restore_whose_keeper_is_lost_is_waited_for_and_reverts_nothing_unasked(
    dump_server: DumpServer, archive: Path
) -> None:
    before = settings(dump_server)
    dump_server.cluster.psql("create database unattended")
    given = {"database": "unattended", "archive": str(archive), "jobs": "2", "speed": "fast", "statistics": "none"}
    inputs = [word for name, value in given.items() for word in ("--input", f"{name}={value}")]
    words = ["runbook", "run", RUNBOOK, "--dsn", dump_server.watched.dsn, *inputs]
    words += ["--input", f"programs={dump_server.bin}", "--yes", "--json"]
    with closing(session(dump_server.cluster, dbname="unattended", name="dba-console:beside")) as holder:
        holder.execute(f"select pg_advisory_lock({CHECK_KEY})")
        killer = threading.Thread(target=lambda: kill_keeper_when_waiting(dump_server, archive))
        killer.start()
        with dialog(dump_server.watched.console, words, timeout_s=WAIT_S) as headless:
            events = []
            for line in headless.stdout:
                events.append(json.loads(line))
                if UNATTENDED in events[-1].get("text", ""):
                    assert restore_pids(archive) and settings(dump_server) != before
                    holder.execute("select pg_advisory_unlock_all()")
            code, errors = headless.process.wait(WAIT_S), headless.stderr.read()
    killer.join(WAIT_S)
    assert code == 7 and any(UNATTENDED in event.get("text", "") for event in events), events
    assert "nothing is reverted: the run waits for an operator" in f"{events}{errors}", events
    assert not restore_pids(archive) and settings(dump_server) != before
    run = next(event["run"] for event in events if event["event"] == "run")
    says = {"settle": "abort its keeper was killed", "undo": "none", "start": "yes"}
    walk = dump_server.watched.resume_interactively(run, says)
    assert walk.ending.endswith("; temporary settings reverted"), walk.text
    assert settings(dump_server) == before


def test_a_full_disk_is_reported_with_the_objects_that_did_not_fit(dump_server: DumpServer, archive: Path) -> None:
    before = settings(dump_server)
    beside = dump_server.cluster.base
    with loop_mounted(beside / "image", beside / "small", "24M") as place:
        create_directory(dump_server.cluster, place)
        dump_server.cluster.psql(f"create tablespace small location '{place}/space'")
        dump_server.cluster.psql('create database "too large" tablespace small')
        says: dict[str, AnswerSource] = {
            "start": "yes", RESTORE: after_doing(lambda: leave_free(place), "y"), "choose": "stop", "failed": "abort",
            "undo": "none", "ack": "y",
        }  # fmt: skip
        walk = dump_server.run_interactively(
            RUNBOOK, says, database="too large", archive=str(archive), jobs="2", speed="fast"
        )
        (place / "filler").unlink()
        dump_server.cluster.psql('drop database "too large"')
        dump_server.cluster.psql("drop tablespace small")
    assert walk.code == 7, walk.text
    reported = [row[1] for row in table_of(walk, RESTORE) if row[0] == "error"]
    assert any("No space left on device" in one and "public.items_" in one for one in reported), walk.text
    assert "stop-after-errors" in walk.text and settings(dump_server) == before


def test_a_disk_too_small_for_the_restore_is_reported_before_it_is_full(watched: Watched) -> None:
    """Its disk is that of the tablespace of its database; looked at after a fifth and after three quarters of it."""
    watched.cluster.psql("create database wide")
    watched.cluster.psql(WIDE_SCHEMA_SQL, dbname="wide")
    watched.run_program("pg_dump", "-Fd", "-Z0", "-f", "wide.d", watched.dsn("wide"))
    beside = watched.cluster.base
    with loop_mounted(beside / "image", beside / "small", "48M") as place:
        create_directory(watched.cluster, place)
        watched.cluster.psql(f"create tablespace small location '{place}/space'")
        watched.cluster.psql("create database narrow tablespace small")
        leave_free(place, WIDE_FREE_BYTES)
        restore = shell_quoted(watched.program_path("pg_restore"), "-d", watched.dsn("narrow"), "wide.d") + "; true"
        with job_observer(watched.cluster) as observer, session(watched.cluster, dbname="narrow") as later:
            later.execute(f"select pg_advisory_lock({LATE_CHECK_LOCK})")
            with watched.held_job(restore, 1, "narrow") as held:
                job = observer.until(lambda job: job.pct is not None, "its share after a fifth")
                assert job.mount == str(place) and job.fits is not True, job
                held.release()
                job = observer.until(lambda job: job.fits is False, "that it will not fit")
                assert (job.need_bytes or 0) > (job.free_bytes or 0) and job.errors == 0, job
                (row,) = [row for row in observer.rows if row.kind == "pg_restore"]
                assert (row.fits, row.mount) == (False, str(place))
                later.execute("select pg_advisory_unlock_all()")
            event = observer.ended("pg_restore")
        (place / "filler").unlink()
        watched.cluster.psql("drop database narrow")
        watched.cluster.psql("drop tablespace small")
    assert event.details["errors"] == 1 and "it succeeded" not in event.text, event
    assert "No space left on device" in event.details["last_error"], event


def restore_pids(archive: Path) -> set[int]:
    """pg_restore and its workers."""
    return {process for process in processes() if is_restore(process, archive)}


def kill_keeper_when_waiting(dump_server: DumpServer, archive: Path) -> None:
    with closing(session(dump_server.cluster)) as other:
        wait_until(lambda: other.execute(_WAITS).rowcount, WAIT_S, what="a COPY that waits")
    os.kill(os.getsid(min(restore_pids(archive))), signal.SIGKILL)


def crash_when_waiting(dump_server: DumpServer) -> None:
    with closing(session(dump_server.cluster)) as other:
        wait_until(lambda: other.execute(_WAITS).rowcount, WAIT_S, what="a COPY that waits")
    dump_server.cluster.restart(mode="immediate")


def is_up(dump_server: DumpServer) -> bool:
    try:
        return bool(dump_server.cluster.psql("select 1"))
    except ConsoleError:
        return False


def create_directory(cluster: Cluster, directory: Path) -> None:
    """A directory there for the server."""
    owner = cluster.data_directory.stat()
    (directory / "space").mkdir()
    os.chown(directory / "space", owner.st_uid, owner.st_gid)


def leave_free(directory: Path, left: int = FREE_BYTES) -> None:
    """Fill the file system except for `left` bytes."""
    free = os.statvfs(directory)
    with (directory / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left)
