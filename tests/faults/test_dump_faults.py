"""Failed dumps of other users: the outcome is reported, with its cause if known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.samples.event import Event
from tests.agent.job_observer import job_observer
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.disks import fill, loop_mounted
from tests.host.held_jobs import LIMIT_S, JobServer, shell_quoted

pytestmark = pytest.mark.root
LAST = "hold.zzz"
"""Dumped after the two that are held up: a dump takes the largest ones first."""
_QUEUED = "select 1 from pg_locks where mode = 'AccessExclusiveLock' and not granted"


@pytest.fixture(scope="module")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    directory: Path = tmp_path_factory.mktemp("dumps")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        made = JobServer(cluster, directory)
        cluster.psql(f"create table {LAST} (i int); grant select on {LAST} to public; analyze", dbname="full_one")
        yield made


def dump_command(job_server: JobServer, *options: str) -> str:
    """A dump for bash, which does not mind how it ends."""
    return f"{shell_quoted(*job_server.dump_command(*options))}; true"


def test_a_lock_requested_midway_is_named_as_the_cause_that_ended_a_parallel_dump(job_server: JobServer) -> None:
    with (
        job_observer(job_server.cluster) as watched,
        job_server.held_job(dump_command(job_server, "-Fd", "-j2", "-f", "locked"), 2) as held,
    ):
        watched.until(lambda job: job.pid is not None, "the dump")
        with closing(session(job_server.cluster, dbname="full_one")) as other:
            other.pgconn.send_query(f"begin; lock table {LAST} in access exclusive mode".encode())
            with closing(session(job_server.cluster)) as third:
                wait_until(lambda: third.execute(_QUEUED).rowcount, LIMIT_S, what="a session that waits for the table")
            held.release()
            event = watched.ended("pg_dump")
    failed(event, f'could not obtain lock on relation "{LAST}"')
    assert "someone requested an ACCESS EXCLUSIVE lock" in event.text, "why, and not only that"


def test_a_disk_that_fills_up_is_named_as_the_cause_of_a_failed_dump(job_server: JobServer, tmp_path: Path) -> None:
    with (
        loop_mounted(tmp_path / "image", tmp_path / "small", "24M") as place,
        job_observer(job_server.cluster) as watched,
        job_server.held_job(dump_command(job_server, "-Fc", "-Z0", "-f", str(place / "full.dump")), 1) as held,
    ):
        watched.until(lambda job: job.free_bytes is not None, "its disk")
        fill(place)
        watched.until(lambda job: job.free_bytes == 0 and job.fits is False, "that it does not suffice")
        held.release()
        failed(watched.ended("pg_dump"), "No space left on device")


def failed(event: Event, why: str) -> None:
    assert event.details["ok"] is False, event
    assert "it failed" in event.text and why in event.text, event
    assert why in event.details["last_error"]
