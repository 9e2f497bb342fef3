"""Clusters that tests of this directory use one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import FreshCluster
from tests.postgres.pool import POOL


@pytest.fixture(scope="session", autouse=True)
def _pool_closed() -> Iterator[None]:
    yield
    POOL.close()


@pytest.fixture
def reused_cluster() -> Iterator[FreshCluster]:
    """As `fresh_cluster`, but of clusters that earlier tests used: reset, restarted where settings differ."""
    yield POOL.get
    POOL.release()
