"""Ending a command: when asked, when its time is up, all of its group, also what does not want to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dba_console.keeper.command_status import read_status, stop
from dba_console.keeper.launch import KeeperHandle
from dba_console.keeper.proc import start_ticks
from tests.background import wait_until
from tests.keeper.conftest import kill_group
from tests.keeper.keepers import LIMIT_S, CommandStarter, Gate, child_pid, log_texts, wait_for_exit, wait_until_printed

FOREVER = "sleep 3600"


def test_stop_ends_the_command_with_sigterm_and_names_the_requester(start_command: CommandStarter) -> None:
    handle = start_command(f"exec {FOREVER}")
    assert handle.stop("anna from 10.0.0.7")
    record = wait_for_exit(handle)
    assert (record.signal, record.stopped_by, record.timed_out) == (signal.SIGTERM, "anna from 10.0.0.7", False)
    assert not handle.stop("anna from 10.0.0.7")


def test_a_command_may_exit_cleanly_when_asked(start_command: CommandStarter) -> None:
    handle = start_command("trap 'echo tidied; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    wait_until_printed(handle, "ready")
    handle.stop("anna")
    assert wait_for_exit(handle).code == 3
    assert log_texts(handle) == ["ready", "tidied"]


def test_the_whole_process_group_is_ended(start_command: CommandStarter) -> None:
    handle = start_command(f"{FOREVER} & echo $!; wait")
    other = int(first_line(handle))
    handle.stop("anna")
    assert wait_for_exit(handle).signal == signal.SIGTERM
    assert start_ticks(other) is None


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_time(start_command: CommandStarter) -> None:
    handle = start_command("trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=0.3)
    wait_until_printed(handle, "ready")
    handle.stop("anna")
    assert wait_for_exit(handle).signal == signal.SIGKILL


def test_a_process_left_in_the_group_of_an_ended_command_is_killed_too(start_command: CommandStarter) -> None:
    stubborn = f"(trap '' TERM; exec {FOREVER}) >/dev/null 2>&1 & echo $!; wait"
    handle = start_command(stubborn, grace_s=0.3)
    other = int(first_line(handle))
    wait_until(lambda: ignores(other, signal.SIGTERM), LIMIT_S, what="the trap")
    handle.stop("anna")
    assert wait_for_exit(handle).signal == signal.SIGTERM
    assert start_ticks(other) is None


def test_a_timeout_ends_the_command_and_is_reported_as_such(start_command: CommandStarter) -> None:
    record = wait_for_exit(start_command(f"exec {FOREVER}", timeout_s=0.2))
    assert (record.timed_out, record.signal, record.stopped_by) == (True, signal.SIGTERM, None)


def test_a_command_within_its_timeout_is_left_alone(start_command: CommandStarter) -> None:
    record = wait_for_exit(start_command("exit 0", timeout_s=3600))
    assert (record.timed_out, record.code) == (False, 0)


def test_a_stopped_command_continues_in_its_keeper_and_can_be_ended(start_command: CommandStarter) -> None:
    handle = start_command("kill -STOP $$; echo on")
    wait_until(lambda: state(child_pid(handle)) == "T", LIMIT_S, what="the stopped command")
    assert (handle.status().state, handle.status().child_alive) == ("running", True)
    handle.stop("anna")
    assert wait_for_exit(handle).signal == signal.SIGTERM


def test_a_signal_to_the_keeper_ends_the_command_without_a_name(start_command: CommandStarter) -> None:
    handle = start_command(f"exec {FOREVER}")
    os.kill(handle.pid, signal.SIGTERM)
    record = wait_for_exit(handle)
    assert (record.signal, record.stopped_by) == (signal.SIGTERM, "a signal to the keeper")


def test_the_requester_of_a_stop_is_shown_while_the_command_ends(start_command: CommandStarter) -> None:
    handle = start_command("trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=3600)
    wait_until_printed(handle, "ready")
    assert stop(handle.directory, "anna")
    assert read_status(handle.directory).stopping_by == "anna"
    os.killpg(child_pid(handle), signal.SIGKILL)
    assert wait_for_exit(handle).stopped_by == "anna"


def test_a_process_left_behind_with_the_output_open_does_not_block_the_keeper(start_command: CommandStarter) -> None:
    handle = start_command(f"{FOREVER} & echo done")
    group = child_pid(handle)
    try:
        record = wait_for_exit(handle)
        assert (record.code, record.left_open) == (0, True)
        assert log_texts(handle) == ["done"]
    finally:
        kill_group(group)


def test_output_of_processes_that_end_after_the_command_is_read(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    opened = os.open(gate.path, os.O_RDONLY | os.O_NONBLOCK)  # now: the keeper waits a few seconds only
    handle = start_command(f"(echo up >{gate.path}; echo late) & exit 4")
    wait_until(lambda: readable(opened), LIMIT_S, what="the one that outlives the command")
    os.close(opened)
    record = wait_for_exit(handle)
    assert (record.code, record.left_open) == (4, False)
    assert log_texts(handle) == ["late"]


def readable(descriptor: int) -> bytes:
    """What is there now."""
    try:
        return os.read(descriptor, 10)
    except BlockingIOError:
        return b""


def first_line(handle: KeeperHandle) -> str:
    return wait_until(lambda: log_texts(handle), LIMIT_S, what="the first line")[0]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def ignores(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) & (1 << (number - 1)))
    return False


def test_processes_that_outlive_a_killed_command_are_named(start_command: CommandStarter) -> None:
    """As the workers of a parallel pg_restore do; and nothing is named that ends with it."""
    handle = start_command(f"{FOREVER} >/dev/null 2>&1 & echo $!; read -r _ < /dev/null; kill -9 $$")
    other = int(first_line(handle))
    record = wait_for_exit(handle)
    assert (record.signal, record.left) == (signal.SIGKILL, [[other, "sleep"]])
    os.kill(other, signal.SIGKILL)
    assert wait_for_exit(start_command("exit 1")).left == []
