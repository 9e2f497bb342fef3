"""What a keeper leaves of a command: how it ended, what it used, what it printed and when."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from dba_console.keeper.command_status import read_status
from dba_console.keeper.launch import CommandSpec, KeeperError, start
from tests.keeper.keepers import (
    CommandStarter,
    Gate,
    log_lines,
    log_texts,
    running_record,
    wait_for_exit,
    wait_until_printed,
)


def test_the_exit_code_and_both_outputs_are_recorded(start_command: CommandStarter) -> None:
    before = time.time_ns() // 1000
    handle = start_command("echo one; echo two >&2; printf three; exit 7")
    record = wait_for_exit(handle)
    assert (record.code, record.signal, record.ok) == (7, None, False)
    assert log_texts(handle) == ["one", "three"]
    assert log_texts(handle, "e") == ["two"]
    assert (record.out_lines, record.out_bytes, record.dropped_lines) == (3, 13, 0)
    assert not record.timed_out and record.stopped_by is None and record.log_complete and not record.left_open
    assert all(before <= line.wall_us <= time.time_ns() // 1000 for line in log_lines(handle))
    assert before <= running_record(handle).started_us <= record.ended_us


def test_a_command_ended_by_a_signal_has_no_code(start_command: CommandStarter) -> None:
    record = wait_for_exit(start_command("kill -SEGV $$"))
    assert (record.code, record.signal) == (None, 11)


def test_what_a_command_and_its_children_used_is_recorded(start_command: CommandStarter, tmp_path: Path) -> None:
    file = tmp_path / "written"
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    record = wait_for_exit(start_command(f"({burn}); dd if=/dev/zero of={file} bs=1M count=8 conv=fsync 2>/dev/null"))
    assert record.code == 0
    assert record.user_s > 0
    assert record.max_rss_bytes > 1 << 20
    assert record.wall_s > 0
    assert record.read_bytes is not None
    assert record.write_bytes is not None


def test_the_time_of_a_line_is_that_of_its_arrival(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"echo first; read x <{gate.path}; echo second")
    wait_until_printed(handle, "first")
    between = time.time_ns() // 1000
    gate.open()
    wait_for_exit(handle)
    first, second = log_lines(handle)
    assert first.wall_us <= between <= second.wall_us


def test_a_running_keeper_is_shown_as_running_with_its_command(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}")
    status = handle.status()
    assert status.state == "running"
    assert status.child_alive is True
    assert status.exit is None
    assert (running_record(handle).keeper_pid, running_record(handle).tag, running_record(handle).host) == (
        handle.pid,
        "TEST",
        "here",
    )
    gate.open()
    assert wait_for_exit(handle).code == 0
    assert handle.status().child_alive is False


def test_a_directory_without_a_keeper_is_absent(tmp_path: Path) -> None:
    assert read_status(tmp_path).state == "absent"


def test_only_the_owner_may_read_the_files(start_command: CommandStarter) -> None:
    handle = start_command("echo x")
    wait_for_exit(handle)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(handle.directory).iterdir()}
    assert modes == {"running.json": 0o600, "exit.json": 0o600, "out.log": 0o600}


def test_a_missing_program_is_reported_and_recorded_as_never_started(start_command: CommandStarter) -> None:
    with pytest.raises(KeeperError, match="nonesuch cannot be started: No such file"):
        start_command.run_program("nonesuch")
    record = read_status(start_command.directories[0]).exit
    assert record is not None
    assert record.error is not None and "nonesuch" in record.error
    assert (record.code, record.signal) == (None, None)


def test_a_missing_working_directory_is_reported(start_command: CommandStarter) -> None:
    with pytest.raises(KeeperError, match="/nonesuch: no such directory"):
        start_command("true", cwd="/nonesuch")


def test_nothing_runs_twice_in_one_directory(start_command: CommandStarter) -> None:
    handle = start_command("echo once")
    wait_for_exit(handle)
    with pytest.raises(KeeperError, match="already started"):
        start(CommandSpec(argv=("true",), directory=handle.directory, tag="TEST", host="here"))


def test_a_command_gets_its_environment_directory_and_input(start_command: CommandStarter, tmp_path: Path) -> None:
    handle = start_command(
        'echo "$RB_name"; pwd; cat', env={"RB_name": "a b"}, cwd=str(tmp_path), stdin="to read\n" * 30_000
    )
    wait_for_exit(handle)
    assert log_texts(handle) == ["a b", str(tmp_path), *["to read"] * 30_000]


def test_without_input_a_command_reads_nothing(start_command: CommandStarter) -> None:
    handle = start_command("cat; echo read")
    assert wait_for_exit(handle).code == 0
    assert log_texts(handle) == ["read"]


def test_a_command_inherits_no_secret_and_no_setting_of_the_keeper(
    start_command: CommandStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter22")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    handle = start_command.run_program("env")
    wait_for_exit(handle)
    names = {text.partition("=")[0] for text in log_texts(handle)}
    assert "PATH" in names
    assert names & {"PGPASSWORD", "PYTHONPATH", "MALLOC_ARENA_MAX"} == set()


def test_a_command_makes_files_as_its_caller_would(start_command: CommandStarter) -> None:
    ours = os.umask(0o077)
    os.umask(ours)
    handle = start_command("umask")
    wait_for_exit(handle)
    assert int(log_texts(handle)[0], 8) == ours


def test_a_command_starts_with_no_signal_ignored(start_command: CommandStarter) -> None:
    handle = start_command.run_program("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    wait_for_exit(handle)
    sets = [int(text.split()[1], 16) for text in log_texts(handle)]
    # Above the standard signals are those of the C library itself.
    assert [mask & 0x7FFFFFFF for mask in sets] == [0, 0]


def test_secrets_reach_the_command_but_no_argument_of_the_keeper_and_no_file(
    start_command: CommandStarter, tmp_path: Path
) -> None:
    gate, secret = Gate(tmp_path / "gate"), "hunter2'/+x"
    script = f'echo "pw $PW"; cat; printf "%s" "$PW" | base64; read x <{gate.path}'
    handle = start_command(script, env={"PW": secret}, masks=(secret,), stdin=f"in {secret} out\n")
    wait_until_printed(handle, "in ******** out")
    for name in ("cmdline", "environ"):
        assert secret.encode() not in Path(f"/proc/{handle.pid}/{name}").read_bytes()
    gate.open()
    wait_for_exit(handle)
    assert log_texts(handle) == ["pw ********", "in ******** out", "********"]
    everything = b"".join(path.read_bytes() for path in Path(handle.directory).iterdir())
    assert secret.encode() not in everything
    assert json.dumps(secret).strip('"').encode() not in everything


def test_a_secret_is_not_in_the_repr_of_the_keeper_options() -> None:
    spec = CommandSpec(
        argv=("x",), directory="/", tag="T", host="h", env={"A": "hunter2"}, masks=("hunter2",), stdin="hunter2"
    )
    assert "hunter2" not in repr(spec)


def test_bytes_that_are_not_valid_text_are_kept(start_command: CommandStarter) -> None:
    handle = start_command(r"printf 'a\377\000\033[1mb\tc\n'")
    wait_for_exit(handle)
    assert b" o a\xff\x00\x1b[1mb\tc\n" in Path(handle.directory, "out.log").read_bytes()
    assert os.fsencode(log_texts(handle)[0]) == b"a\xff\x00\x1b[1mb\tc"
