"""`show progress` without an agent: programs of dumps and restores are seen by the command itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.cli.console import Console
from tests.clusters import binaries_of
from tests.host.held_jobs import JobServer

pytestmark = pytest.mark.root
"""The owner of a connection is visible to root, or to the user of both the server and the program."""


@pytest.fixture(scope="module")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    directory: Path = tmp_path_factory.mktemp("shown")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        yield JobServer(cluster, directory)


def test_a_restore_is_shown_with_its_process_archive_and_progress(job_server: JobServer, console: Console) -> None:
    target = job_server.new_target_database()
    command = [job_server.program_path("pg_restore"), "-j2", "-v", "-d", job_server.dsn(target), "d"]
    with job_server.held_job(command, 2, target) as held:
        done = console.run("show", "progress", "--json", job_server.cluster.dsn())
        text = console.run("show", "progress", "--width", "160", job_server.cluster.dsn())
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)["panels"]["progress"]["operations"]
    (row,) = [row for row in rows if row["kind"] == "pg_restore"]
    assert row["process"] == held.process.pid and row["jobs"] == 2
    assert row["reads"] == str(job_server.directory / "d") and row["pct"] is not None
    assert "pg_restore -j2 " in text.out and "hold.one" in text.out
    files = [path for path in console.home.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert files == [], "nothing is left behind"
