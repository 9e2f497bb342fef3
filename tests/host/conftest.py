"""One server for all tests that look at dumps and restores under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from tests.clusters import binaries_of
from tests.host.held_jobs import Ground


@pytest.fixture(scope="package")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A database that can be dumped and restored, and held up in the middle of it."""
    directory: Path = tmp_path_factory.mktemp("jobs")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        yield Ground(cluster, directory)
