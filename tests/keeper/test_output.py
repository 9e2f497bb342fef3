"""Much output, long lines, lines that overwrite themselves, a disk that is full or hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.process import peak_mb, resident_mb
from dba_console.keeper.output_log_reader import LogReader
from tests.background import wait_until
from tests.disks import frozen, loop_mounted, mounted
from tests.keeper.keepers import (
    LIMIT_S,
    CommandStarter,
    Gate,
    child_pid,
    log_lines,
    log_texts,
    running_record,
    wait_for_exit,
    wait_until_printed,
)

MAX_MB = 15
"""What a keeper may take beside each long command."""


def numbered(count: int) -> str:
    """A script that prints `count` numbered lines of 60 bytes."""
    return f"seq -f 'a line of some length, as programs print them, no. %09.0f' 1 {count}"


def number(text: str) -> int:
    return int(text.rpartition(" ")[2])


def test_start_and_end_of_a_long_output_are_kept_and_the_rest_is_counted(start_command: CommandStarter) -> None:
    # The end is longer than what a pipe holds: of two outputs it is not known in which order what is there was printed.
    handle = start_command(numbered(100_000) + "; echo last >&2", head_bytes=20_000, tail_bytes=3_000_000)
    record = wait_for_exit(handle)
    tail = LogReader(handle.directory)
    found = []
    while more := tail.read():
        found += more
    numbers = [number(line.text) for line in found if line.stream == "o"]
    gap = next(at for at, one in enumerate(numbers) if one != at + 1)
    assert numbers[:gap] == list(range(1, gap + 1))
    assert numbers[gap:] == list(range(100_001 - len(numbers) + gap, 100_001))
    assert "last" in [line.text for line in found if line.stream == "e"]
    assert record.out_lines == 100_001
    assert record.dropped_lines == tail.dropped_lines == 100_001 - len(found)
    assert record.dropped_bytes == tail.dropped_bytes
    kept = {path.name: path.stat().st_size for path in Path(handle.directory).glob("out*")}
    assert kept["out.log"] <= 20_000
    assert 1_400_000 <= sum(kept.values()) - kept["out.log"] <= 3_000_000


def test_a_reader_that_is_overtaken_reports_what_it_missed(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    script = f"{numbered(500)}; read x <{gate.path}; {numbered(20_000)}"
    handle = start_command(script, head_bytes=10_000, tail_bytes=20_000)
    wait_until(
        lambda: len(log_lines(handle)) > 200 and number(log_lines(handle)[-1].text) == 500, LIMIT_S, what="a pause"
    )
    tail = LogReader(handle.directory)
    before = tail.read()
    while more := tail.read():
        before += more
    seen = tail.dropped_lines
    gate.open()
    record = wait_for_exit(handle)
    after = []
    while more := tail.read():
        after += more
    assert number(after[-1].text) == 20_000
    assert tail.dropped_lines > seen
    assert len(before) + len(after) + tail.dropped_lines == record.out_lines == 20_500


def test_a_flood_of_output_is_read_to_its_end_in_little_memory(start_command: CommandStarter, tmp_path: Path) -> None:
    gate, printed = Gate(tmp_path / "gate"), tmp_path / "printed"
    handle = start_command(f"yes | head -c 24000000; touch {printed}; read x <{gate.path}; echo end")
    wait_until(printed.exists, LIMIT_S, what="the end of the output")
    assert peak_mb(handle.pid) < MAX_MB
    gate.open()
    record = wait_for_exit(handle)
    assert (record.code, record.out_bytes, record.out_lines) == (0, 24_000_004, 12_000_001)
    assert log_texts(handle)[-1] == "end"


def test_an_endless_line_is_split_and_nothing_of_it_is_lost(start_command: CommandStarter) -> None:
    handle = start_command("head -c 1000000 /dev/zero | tr '\\0' x; echo")
    wait_for_exit(handle)
    assert len(log_texts(handle)) > 1
    assert "".join(log_texts(handle)) == "x" * 1_000_000


def test_a_line_that_overwrites_itself_is_kept_in_its_last_state(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(
        rf"i=0; while [ $i -lt 5000 ]; do i=$((i+1)); printf '\r%d%%' $i; done; read x <{gate.path}; echo ' ok'"
    )
    wait_until(
        lambda: [line for line in log_lines(handle) if line.text == "5000%"], LIMIT_S, what="the line as it stands"
    )
    assert log_texts(handle) == []
    gate.open()
    record = wait_for_exit(handle)
    assert log_texts(handle) == ["5000% ok"]
    assert record.out_lines == 1


def test_a_prompt_is_shown_while_the_command_waits(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"printf 'Really? '; read x <{gate.path}; echo yes")
    wait_until(lambda: [line for line in log_lines(handle) if (line.text, line.whole) == ("Really? ", False)], LIMIT_S)
    gate.open()
    wait_for_exit(handle)
    assert log_texts(handle) == ["Really? yes"]


def test_a_waiting_keeper_uses_little_memory(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"echo up; read x <{gate.path}", masks=("a secret of some length",))
    wait_until_printed(handle, "up")
    assert resident_mb(handle.pid) < MAX_MB


def test_a_keeper_loads_nothing_but_the_standard_library(start_command: CommandStarter, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    handle = start_command(f"read x <{gate.path}", masks=("a secret",))
    files = {line.split()[-1] for line in Path(f"/proc/{handle.pid}/maps").read_text().splitlines() if ".so" in line}
    assert [file for file in files if "site-packages" in file] == []
    assert running_record(handle).child_pid == child_pid(handle)


@pytest.mark.root
def test_a_full_disk_blocks_no_command_and_missing_output_is_reported(
    start_command: CommandStarter, tmp_path: Path
) -> None:
    gate, printed = Gate(tmp_path / "gate"), tmp_path / "printed"
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m,mode=700") as small:
        directory = start_command.new_directory(small)
        handle = start_command.run_in(directory, f"{numbered(80_000)}; touch {printed}; read x <{gate.path}; echo end")
        wait_until(printed.exists, LIMIT_S, what="the end of the output")
        gate.open()
        record = wait_for_exit(handle)
        assert (record.code, record.out_lines, record.log_complete) == (0, 80_001, False)
        assert record.unwritten_end.endswith(" o end\n")
        # The oldest are dropped where the disk is slower than the command: the log need not begin with the first line.
        kept = [number(text) for text in log_texts(handle)]
        assert record.dropped_lines + len(kept) == 80_001
        assert kept == sorted(kept)


@pytest.mark.root
def test_when_a_full_disk_has_space_again_the_log_continues_and_reports_the_gap(
    start_command: CommandStarter, tmp_path: Path
) -> None:
    gate, printed = Gate(tmp_path / "gate"), tmp_path / "printed"
    with mounted("tmpfs", tmp_path / "small", "-o", "size=4m,mode=700") as small:
        directory, filler = start_command.new_directory(small), small / "filler"
        filler.write_bytes(b"\0" * (3 << 20))
        handle = start_command.run_in(directory, f"{numbered(80_000)}; touch {printed}; read x <{gate.path}; echo end")
        wait_until(printed.exists, LIMIT_S, what="the end of the output")
        filler.unlink()
        gate.open()
        record = wait_for_exit(handle)
        assert (record.code, record.log_complete) == (0, True)
        assert log_texts(handle)[-1] == "end"
        assert_missing_is_reported(handle.directory, 80_001)


@pytest.mark.root
def test_a_hanging_disk_blocks_no_command(start_command: CommandStarter, tmp_path: Path) -> None:
    gate, printed = Gate(tmp_path / "gate"), tmp_path / "printed"
    with loop_mounted(tmp_path / "image", tmp_path / "fs") as place:
        directory = start_command.new_directory(place)
        script = f"echo up; read x <{gate.path}; {numbered(100_000)}; touch {printed}; echo end"
        handle = start_command.run_in(directory, script)
        wait_until_printed(handle, "up")
        with frozen(place):
            gate.open()
            wait_until(printed.exists, LIMIT_S, what="the end of the output")
            assert resident_mb(handle.pid) < MAX_MB
        record = wait_for_exit(handle)
        assert (record.code, record.log_complete) == (0, True)
        assert log_texts(handle)[-1] == "end"
        assert_missing_is_reported(handle.directory, 100_002)


def assert_missing_is_reported(directory: str, printed: int) -> None:
    """Some lines are missing, the log says how many, and with them all are accounted for."""
    tail = LogReader(directory)
    found = []
    while more := tail.read():
        found += more
    assert tail.dropped_lines > 0
    assert len([line for line in found if line.stream == "o"]) + tail.dropped_lines == printed
    assert any(line.stream == "k" and line.text.startswith("missing ") for line in found)
