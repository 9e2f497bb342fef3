"""A console of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.console import Console, own_console


@pytest.fixture
def console() -> Iterator[Console]:
    with own_console() as made:
        yield made
