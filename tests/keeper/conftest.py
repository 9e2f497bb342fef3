"""Keepers of a test's own; none of them, and nothing they started, outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.keeper.command_status import read_status, stop, wait
from tests.keeper.keepers import LIMIT_S, Keep


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    made = Keep(tmp_path / "kept")
    yield made
    for directory in made.directories:
        end(directory)


def end(directory: Path) -> None:
    standing = read_status(directory)
    if standing.state == "running":
        if standing.running is not None and standing.running.child_pid is not None:
            kill_group(standing.running.child_pid)
        stop(directory, "the end of the test")
        assert wait(directory, LIMIT_S).state != "running"
    elif standing.state == "lost" and standing.child_alive and standing.running and standing.running.child_pid:
        kill_group(standing.running.child_pid)


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
