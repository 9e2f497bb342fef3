"""One server for all tests that observe running dumps and restores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.clusters import binaries_of
from tests.host.held_jobs import JobServer


@pytest.fixture(scope="package")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    """A database whose dump and restore can be held in the middle."""
    directory: Path = tmp_path_factory.mktemp("jobs")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        yield JobServer(cluster, directory)
