"""Keepers of a test's own; none of them, and nothing they started, outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.keeper.command_status import read_status, stop, wait
from tests.keeper.keepers import LIMIT_S, CommandStarter


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[CommandStarter]:
    made = CommandStarter(tmp_path / "kept")
    yield made
    for directory in made.directories:
        end_command(directory)


def end_command(directory: Path) -> None:
    status = read_status(directory)
    if status.state == "running":
        if status.running is not None and status.running.child_pid is not None:
            kill_group(status.running.child_pid)
        stop(directory, "the end of the test")
        assert wait(directory, LIMIT_S).state != "running"
    elif status.state == "lost" and status.child_alive and status.running and status.running.child_pid:
        kill_group(status.running.child_pid)


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
