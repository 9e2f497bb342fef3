"""`show progress` without an agent: programs of dumps and restores are seen by the command itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from tests.cli.console import Console
from tests.clusters import binaries_of
from tests.host.held_jobs import Ground

pytestmark = pytest.mark.root
"""Whose a connection is can be seen by root, or by who runs both the server and the program."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    directory: Path = tmp_path_factory.mktemp("shown")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        yield Ground(cluster, directory)


def test_a_restore_is_shown_with_its_process_archive_and_progress(ground: Ground, console: Console) -> None:
    target = ground.target()
    command = [ground.path("pg_restore"), "-j2", "-v", "-d", ground.dsn(target), "d"]
    with ground.held(command, 2, target) as held:
        done = console.run("show", "progress", "--json", ground.cluster.dsn())
        text = console.run("show", "progress", "--width", "160", ground.cluster.dsn())
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)["panels"]["progress"]["operations"]
    (row,) = [row for row in rows if row["kind"] == "pg_restore"]
    assert row["process"] == held.process.pid and row["jobs"] == 2
    assert row["reads"] == str(ground.directory / "d") and row["pct"] is not None
    assert "pg_restore -j2 " in text.out and "hold.one" in text.out
    files = [path for path in console.home.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert files == [], "nothing is left behind"
