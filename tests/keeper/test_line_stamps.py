"""Bytes into stamped lines, and lines into files with a bound: pure, and on a real disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dba_console.keeper.output_log import LINE_LIMIT, LineStamper, SegmentedLog, parse_segment_name
from dba_console.keeper.output_log_reader import MAX_LINE_BYTES, LogPosition, LogReader

without_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stamped(chunks: list[bytes]) -> list[bytes]:
    """The lines that chunks become, without their stamps; the counts are right."""
    stamper, found = LineStamper(b"o"), []
    for block, count in [*(stamper.feed(chunk, 7) for chunk in chunks), stamper.close(7)]:
        assert block.count(b"\n") == count
        found += block.split(b"\n")[:-1]
    assert all(line.startswith(b"7 o ") for line in found)
    return [line[4:] for line in found]


@without_deadline
@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\r", b"")), max_size=12))
def test_lines_are_the_same_however_they_are_split(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    assert stamped(chunks) == text.split(b"\n")[: -1 if text.endswith(b"\n") or not text else None]


@without_deadline
@given(st.lists(st.text("a%\r\n", max_size=8).map(str.encode), max_size=12))
def test_text_that_overwrites_itself_is_the_same_however_it_is_split(chunks: list[bytes]) -> None:
    assert stamped(chunks) == stamped([b"".join(chunks)])


def test_of_a_line_that_overwrites_itself_the_last_text_is_kept() -> None:
    assert stamped([b"1%\r2%\r", b"3%\r\nplain\r\n\rx\n"]) == [b"3%", b"plain", b"x"]


def test_a_partial_line_is_shown_once_in_its_current_state() -> None:
    stamper = LineStamper(b"e")
    assert stamper.feed(b"\r10%\r20%", 1) == (b"", 0)
    assert stamper.partial_line(2) == (b"2 E 20%\n", 1)
    assert stamper.partial_line(3) == (b"", 0)
    assert stamper.feed(b"\r30%", 4) == (b"", 0)
    assert stamper.partial_line(5) == (b"5 E 30%\n", 1)
    assert stamper.feed(b" done\n", 6) == (b"6 e 30% done\n", 1)


def test_an_endless_line_does_not_fill_the_memory() -> None:
    stamper = LineStamper(b"o")
    written = sum(len(stamper.feed(b"x" * 1000, 7)[0]) for _ in range(1000))
    assert written > 1_000_000 - LINE_LIMIT


@without_deadline
@given(
    st.lists(st.lists(st.text("abc", max_size=12).map(str.encode), min_size=1, max_size=8), max_size=20),
    st.integers(1, 60),
    st.integers(2, 80),
)
def test_head_and_tail_of_the_output_are_read_and_the_rest_is_counted(
    blocks: list[list[bytes]], head: int, tail: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = SegmentedLog(directory, head, tail)
        reader, early = LogReader(directory), 0
        written: list[bytes] = []
        for number, lines in enumerate(blocks):
            made = [b"%d o %b" % (number, line) for line in lines]
            written += made
            assert log.append(b"".join(line + b"\n" for line in made), len(made)) == (b"", 0)
            early += len(reader.read(20))
        log.finish()
        late = LogReader(directory)
        found = []
        while more := late.read(30):
            found += more
        while more := reader.read():
            early += len(more)
        as_written = [b"%d o %b" % (line.wall_us, line.text.encode()) for line in found]
        kept, last = len(as_written), _at_end(as_written, written)
        assert as_written[: kept - last] == written[: kept - last]
        assert late.dropped_lines == log.rolled_lines == len(written) - kept
        assert late.dropped_bytes == log.rolled_bytes
        assert early + reader.dropped_lines == len(written)
        assert late.place == reader.place == LogPosition(sum(len(line) + 1 for line in written), len(written))


def _at_end(found: list[bytes], written: list[bytes]) -> int:
    """How many of the lines found are the last ones written."""
    count = 0
    while count < len(found) and found[len(found) - 1 - count] == written[len(written) - 1 - count]:
        count += 1
    return count


def test_a_log_with_garbage_in_it_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"1 o a\n\0\0\0\n2 o b\n3 o cut sho")
    assert [line.text for line in LogReader(tmp_path).read()] == ["a", "a line of the log cannot be read", "b"]


@pytest.mark.parametrize("words", [b"missing", b"missing many lines, some bytes", b"missing 1 lines, " + b"9" * 30])
def test_an_invalid_count_is_not_counted(tmp_path: Path, words: bytes) -> None:
    (tmp_path / "out.log").write_bytes(b"1 k missing 3 lines, 40 bytes: no room\n2 k " + words + b"\n3 o b\n")
    tail = LogReader(tmp_path)
    assert [line.wall_us for line in tail.read()] == [1, 2, 3]
    assert (tail.dropped_lines, tail.dropped_bytes) == (3, 40)


def test_an_invalid_time_is_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"9" * 5000 + b" o a\n" + b"9" * 30 + b" o b\n")
    assert [(line.wall_us, line.stream) for line in LogReader(tmp_path).read()] == [(0, "k")] * 2


def test_a_log_without_line_ends_is_not_read_further(tmp_path: Path) -> None:
    head = tmp_path / "out.log"
    with head.open("wb") as file:
        file.truncate(MAX_LINE_BYTES)
        file.seek(MAX_LINE_BYTES)
        file.write(b"\n1 o a\n")
    tail = LogReader(tmp_path)
    assert (tail.read(), tail.place) == ([], LogPosition())
    (tmp_path / f"out-{head.stat().st_size}-2.tail").write_bytes(b"2 o b\n")
    assert ([line.text for line in tail.read()], tail.dropped_lines) == (["b"], 2)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_something_that_is_not_a_file_is_not_read_as_a_log(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "out.log")
    with pytest.raises(OSError, match=r"not a regular file|Too many levels of symbolic links|Is a directory"):
        LogReader(tmp_path).read()


@pytest.mark.parametrize("name", ["out-0-0.tail", "out-007-1.tail", "out-\u0667-1.tail", "out-\u00b2-1.tail"])
def test_no_other_spelling_of_a_position_names_a_segment(name: str) -> None:
    assert parse_segment_name("out", name) is None
