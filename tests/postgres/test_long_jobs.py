"""PostgreSQL's own long programs, run for real, are each seen as one job from beginning to end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dba_console.core.clock import SYSTEM
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.following.job_detection import EndedJob, JobDetector
from dba_console.watch.samples.postgres import Sessions
from tests.background import session, wait_until
from tests.postgres.probes import connected_probe, reading
from tests.sql import LIMIT_S, query

TABLES = 4
ROWS = 120_000


@pytest.fixture
def source(cluster: Cluster) -> Iterator[str]:
    """A database with some tables and indexes; another one beside it for a copy."""
    for name in ("jobs_source", "jobs_copy"):
        query(cluster, f"create database {name}")
    for number in range(TABLES):
        query(
            cluster,
            f"create table t{number} as select i, md5(i::text) as filler from generate_series(1, {ROWS}) i;"
            f"create index on t{number} (filler); alter table t{number} add primary key (i)",
            dbname="jobs_source",
        )
    yield "jobs_source"
    for name in ("jobs_source", "jobs_copy"):
        query(cluster, f"drop database {name} with (force)")


def observe_program(
    cluster: Cluster, *command: str, until_observed: Callable[[], object] = lambda: None
) -> tuple[list[EndedJob], list[set[int]], tuple[float, float]]:
    """What the watch tells of a program: the ends, its backends in each reading; and how long it took, at least and
    at most, in seconds.

    `until_observed` is called after the first reading with a backend of it.
    """
    watch, ended, backends, seen_us = JobDetector(), list[EndedJob](), list[set[int]](), list[tuple[int, int]]()
    with connected_probe(cluster) as probe:

        def look() -> None:
            asked_us = SYSTEM.mono_us()
            sessions: Sessions = reading(probe, "pg.activity")
            at_us = SYSTEM.mono_us()
            pids = {row.pid for row in sessions.rows if row.application == Path(command[0]).name}
            if pids:
                seen_us.append((asked_us, at_us))
                backends.append(pids)
                if len(backends) == 1:
                    until_observed()
            ended.extend(watch.compare(sessions, at_us)[0])

        look()
        begun_us = SYSTEM.mono_us()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:

            def over() -> bool:
                look()
                return process.poll() is not None

            wait_until(over, LIMIT_S, what=f"the end of {command[0]}")
            assert process.returncode == 0, process.communicate()[1]

        def told() -> bool:
            look()
            return bool(ended)

        wait_until(told, LIMIT_S, what="the job's end")
    # Its start is told by the server, at any moment of the first reading.
    (first_asked_us, first_us), (_, last_us) = seen_us[0], seen_us[-1]
    least_us = last_us - first_us - (first_us - first_asked_us)
    return ended, backends, (least_us / 1e6, (SYSTEM.mono_us() - begun_us) / 1e6)


def test_a_parallel_dump_and_its_restore_are_one_job_each(cluster: Cluster, source: str, tmp_path: Path) -> None:
    program = cluster.binaries.program
    archive = tmp_path / "archive"
    ended, backends, took_s = observe_program(
        cluster, str(program("pg_dump")), "-Fd", "-j2", "-Z0", "-f", str(archive), "-d", cluster.dsn(dbname=source)
    )
    (dump,) = ended
    assert dump.key == ("pg_dump", source, "postgres")
    assert max(map(len, backends)) == 3, "a leader and two workers"
    assert dump.seconds is not None and took_s[0] <= dump.seconds <= took_s[1]

    command = (str(program("pg_restore")), "-j2", "-d", cluster.dsn(dbname="jobs_copy"), str(archive))
    with session(cluster, dbname="jobs_copy") as holder:
        # Its first session, which makes the tables before others fill them, is held up until it was seen.
        holder.execute("begin")
        holder.execute("lock table pg_class in share mode")
        ended, backends, took_s = observe_program(cluster, *command, until_observed=lambda: holder.execute("commit"))
    (restore,) = ended
    assert restore.key == ("pg_restore", "jobs_copy", "postgres")
    assert backends[0].isdisjoint(backends[-1]), "its first session is not its last"
    assert restore.seconds is not None and took_s[0] <= restore.seconds <= took_s[1]


def test_a_base_backup_is_one_job_without_a_database(cluster: Cluster, tmp_path: Path) -> None:
    program = str(cluster.binaries.program("pg_basebackup"))
    ended, _, took_s = observe_program(
        cluster, program, "-D", str(tmp_path / "backup"), "-d", cluster.dsn(), "-c", "fast"
    )
    (backup,) = ended
    assert backup.key == ("pg_basebackup", None, "postgres")
    assert backup.seconds is not None and took_s[0] <= backup.seconds <= took_s[1]
