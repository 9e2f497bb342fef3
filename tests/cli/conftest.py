"""A console of the test's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.console import Console


@pytest.fixture
def console() -> Iterator[Console]:
    # pytest's own directories are too deep for the path of a socket.
    home = Path(tempfile.mkdtemp(prefix="dbac-cli-"))
    yield Console(home)
    shutil.rmtree(home)
