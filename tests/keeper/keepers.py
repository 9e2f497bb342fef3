"""Start keepers in a test, let their commands continue, and read their records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dba_console.keeper.command_status import ExitRecord, RunningRecord, read_status
from dba_console.keeper.launch import CommandSpec, KeeperHandle, start
from dba_console.keeper.output_log_reader import LogReader, StampedLine
from tests.background import wait_until

LIMIT_S = 120.0
"""Until something that must happen has happened, on a machine as busy as may be."""


class CommandStarter:
    """`start_command("echo a")` runs a shell script under a keeper; keywords are those of Spec."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.directories: list[Path] = []

    def __call__(self, script: str, **spec: Any) -> KeeperHandle:
        return self.run_program("sh", "-c", script, **spec)

    def run_program(self, *argv: str, **spec: Any) -> KeeperHandle:
        return start(
            CommandSpec(argv=argv, directory=str(self.new_directory()), **{"tag": "TEST", "host": "here", **spec})
        )

    def run_in(self, directory: Path, script: str, **spec: Any) -> KeeperHandle:
        """A script in a directory made before."""
        return start(CommandSpec(("sh", "-c", script), str(directory), **{"tag": "TEST", "host": "here", **spec}))

    def new_directory(self, top: Path | None = None) -> Path:
        """Make a directory; its command is ended after the test."""
        made = (top or self._top) / str(len(self.directories))
        made.mkdir(mode=0o700, parents=True)
        self.directories.append(made)
        return made


class Gate:
    """What a command waits for: `read x <GATE` returns once `open` was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def open(self) -> None:
        self.path.write_text("go\n")


def wait_for_exit(handle: KeeperHandle) -> ExitRecord:
    """How the command ended; waits for it."""
    status = handle.wait(LIMIT_S)
    assert status.state == "ended", status
    assert status.exit is not None
    return status.exit


def running_record(handle: KeeperHandle) -> RunningRecord:
    """The record of the processes."""
    record = read_status(handle.directory).running
    assert record is not None
    return record


def child_pid(handle: KeeperHandle) -> int:
    pid = running_record(handle).child_pid
    assert pid is not None
    return pid


def log_lines(handle: KeeperHandle) -> list[StampedLine]:
    """All that is in the log now."""
    tail, found = LogReader(handle.directory), []
    while more := tail.read():
        found += more
    return found


def log_texts(handle: KeeperHandle, stream: str = "o") -> list[str]:
    """The whole lines of one stream."""
    return [line.text for line in log_lines(handle) if line.stream == stream and line.whole]


def wait_until_printed(handle: KeeperHandle, text: str) -> None:
    """Wait for a line: then the command is as far as that."""
    wait_until(lambda: any(line.text == text for line in log_lines(handle)), LIMIT_S, what=f"{text!r} in the log")
