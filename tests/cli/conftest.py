"""A console of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.cluster_pair import Pair, running_pair
from tests.cli.console import Console, own_console


@pytest.fixture
def console() -> Iterator[Console]:
    with own_console() as made:
        yield made


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    with running_pair() as made:
        yield made


@pytest.fixture
def shop(console: Console, pair: Pair) -> Console:
    """A console whose configuration has the pair as the cluster `shop`."""
    console.write_config(pair.configured())
    return console
