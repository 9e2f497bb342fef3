"""Whichever process ends, the command continues and is found again; an unknown outcome is reported as unknown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.keeper.command_status import read_status, stop, wait
from dba_console.keeper.launch import KeeperHandle
from dba_console.keeper.output_log_reader import LogReader
from dba_console.keeper.proc import start_ticks
from tests.background import wait_until
from tests.keeper.keepers import (
    LIMIT_S,
    CommandStarter,
    Gate,
    child_pid,
    log_texts,
    running_record,
    wait_for_exit,
    wait_until_printed,
)

ROOT = Path(__file__).resolve().parent.parent.parent
STARTER = """
import sys
from dba_console.keeper.launch import start
from dba_console.keeper.launch import CommandSpec
start(CommandSpec(argv=("sh", "-c", sys.argv[2]), directory=sys.argv[1], tag="TEST", host="here"))
print("started", flush=True)
sys.stdin.read()
"""
IN_A_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


def test_the_keeper_has_its_own_process_session(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}")
    assert os.getsid(handle.pid) == handle.pid
    assert os.getpgid(child_pid(handle)) == child_pid(handle)
    assert os.getsid(child_pid(handle)) == handle.pid


def test_the_starter_of_a_keeper_does_not_become_its_parent(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}")
    assert parent(handle.pid) != os.getpid()


@pytest.mark.parametrize("terminal", [False, True], ids=["killed", "terminal-lost"])
def test_the_command_outlives_its_starter_and_is_found_again(
    start_command: CommandStarter, tmp_path: Path, terminal: bool
) -> None:
    gate, directory = Gate(tmp_path / "gate"), start_command.new_directory()
    script = f"echo before; read x <{gate.path}; echo after; exit 9"
    command = [sys.executable, "-c", STARTER, str(directory), script]
    if terminal:
        # The terminal goes away with the one who holds its other end.
        command = [sys.executable, "-c", IN_A_TERMINAL, *command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().strip() == b"started"
        starter.kill()
    handle = KeeperHandle(str(directory), 0)
    wait_until_printed(handle, "before")
    status = read_status(directory)
    assert (status.state, status.child_alive) == ("running", True)
    gate.open()
    assert wait_for_exit(handle).code == 9
    assert log_texts(handle) == ["before", "after"]


def test_a_hangup_does_not_reach_it(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}; echo on")
    os.kill(handle.pid, signal.SIGHUP)
    gate.open()
    assert wait_for_exit(handle).code == 0
    assert log_texts(handle) == ["on"]


def test_a_killed_keeper_does_not_end_the_command_and_its_outcome_is_unknown(
    start_command: CommandStarter, tmp_path: Path
) -> None:
    gate, done = Gate(tmp_path / "gate"), tmp_path / "done"
    handle = start_command(f"echo before; read x <{gate.path}; touch {done}")
    wait_until_printed(handle, "before")
    kill(handle)
    status = read_status(handle.directory)
    assert (status.state, status.child_alive, status.exit) == ("lost", True, None)
    assert wait(handle.directory, 0.01).runs
    gate.open()
    wait_until(done.exists, LIMIT_S, what="what the command does")
    assert not wait(handle.directory).runs
    assert read_status(handle.directory).state == "lost"
    assert log_texts(handle) == ["before"]


def test_a_command_without_its_keeper_runs_as_long_as_one_of_its_processes_and_can_be_stopped(
    start_command: CommandStarter, tmp_path: Path
) -> None:
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    handle = start_command(f"(read x <{second.path}) & echo begun; read x <{first.path}")
    wait_until_printed(handle, "begun")
    kill(handle)
    first.open()
    running = read_status(handle.directory).running
    assert running is not None and running.child_pid is not None
    wait_until(lambda: start_ticks(running.child_pid or 0) is None, LIMIT_S, what="the end of its first process")
    assert read_status(handle.directory).runs
    assert stop(handle.directory, "anna")
    assert not wait(handle.directory).runs


def test_the_command_of_a_killed_keeper_ends_when_it_prints(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}; while :; do echo on; done")
    kill(handle)
    gate.open()
    wait_until(lambda: read_status(handle.directory).child_alive is False, LIMIT_S, what="the command's end")


def test_a_keeper_killed_before_it_recorded_the_command_leaves_unknown_whether_it_runs(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    record = {"keeper_pid": gone.pid, "keeper_start": 1, "boot_id": boot()}
    (tmp_path / "running.json").write_text(json.dumps(record))
    status = read_status(tmp_path)
    assert (status.state, status.child_alive) == ("lost", None)


def test_processes_of_another_boot_are_not_mistaken_for_these(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}")
    copied = tmp_path / "copied"
    copied.mkdir()
    record = json.loads(Path(handle.directory, "running.json").read_text())
    (copied / "running.json").write_text(json.dumps(record | {"boot_id": "another"}))
    assert (read_status(copied).state, read_status(copied).child_alive) == ("lost", False)
    assert not stop(copied, "anna")
    assert wait(copied).state == "lost"
    assert handle.status().state == "running"


@pytest.mark.parametrize("damaged", ["", "{", "5", "{}"])
def test_a_damaged_record_is_neither_an_end_nor_a_missing_end(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "running.json").write_text(damaged)
    with pytest.raises(OSError, match=r"running\.json"):
        read_status(tmp_path)


def test_a_process_with_the_reused_pid_of_the_keeper_is_not_mistaken_for_it(tmp_path: Path) -> None:
    record = {
        "keeper_pid": os.getpid(),
        "keeper_start": 1,
        "boot_id": boot(),
        "child_pid": os.getpid(),
        "child_start": 1,
    }
    (tmp_path / "running.json").write_text(json.dumps(record))
    assert (read_status(tmp_path).state, read_status(tmp_path).child_alive) == ("lost", False)
    assert not stop(tmp_path, "anna")


def test_a_log_is_read_from_where_another_reader_stopped(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"echo one; echo two; read x <{gate.path}; echo three")
    wait_until_printed(handle, "two")
    first = LogReader(handle.directory)
    assert [line.text for line in first.read()] == ["one", "two"]
    assert first.read() == []
    gate.open()
    wait_for_exit(handle)
    second = LogReader(handle.directory, first.place)
    assert [line.text for line in second.read()] == ["three"]
    assert (second.place.line, second.dropped_lines) == (3, 0)


def kill(handle: KeeperHandle) -> None:
    os.kill(handle.pid, signal.SIGKILL)
    ticks = running_record(handle).keeper_start
    wait_until(lambda: start_ticks(handle.pid) != ticks, LIMIT_S, what="the keeper's death")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
