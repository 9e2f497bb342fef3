"""Bytes into stamped lines, and lines into files with a bound: pure, and on a real disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dba_console.keeping.rolling import RollingLog
from dba_console.keeping.stamping import LINE_LIMIT, Stamper
from dba_console.keeping.tail import Place, Tail

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stamped(chunks: list[bytes]) -> list[bytes]:
    """The lines that chunks become, without their stamps; the counts are right."""
    stamper, found = Stamper(b"o"), []
    for block, count in [*(stamper.feed(chunk, 7) for chunk in chunks), stamper.close(7)]:
        assert block.count(b"\n") == count
        found += block.split(b"\n")[:-1]
    assert all(line.startswith(b"7 o ") for line in found)
    return [line[4:] for line in found]


@unhurried
@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\r", b"")), max_size=12))
def test_lines_are_the_same_however_they_come(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    assert stamped(chunks) == text.split(b"\n")[: -1 if text.endswith(b"\n") or not text else None]


@unhurried
@given(st.lists(st.text("a%\r\n", max_size=8).map(str.encode), max_size=12))
def test_what_overwrites_itself_is_the_same_however_it_comes(chunks: list[bytes]) -> None:
    assert stamped(chunks) == stamped([b"".join(chunks)])


def test_of_a_line_that_overwrites_itself_what_stood_last_is_kept() -> None:
    assert stamped([b"1%\r2%\r", b"3%\r\nplain\r\n\rx\n"]) == [b"3%", b"plain", b"x"]


def test_the_line_being_written_is_shown_once_as_it_stands() -> None:
    stamper = Stamper(b"e")
    assert stamper.feed(b"\r10%\r20%", 1) == (b"", 0)
    assert stamper.standing(2) == (b"2 E 20%\n", 1)
    assert stamper.standing(3) == (b"", 0)
    assert stamper.feed(b"\r30%", 4) == (b"", 0)
    assert stamper.standing(5) == (b"5 E 30%\n", 1)
    assert stamper.feed(b" done\n", 6) == (b"6 e 30% done\n", 1)


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    stamper = Stamper(b"o")
    written = sum(len(stamper.feed(b"x" * 1000, 7)[0]) for _ in range(1000))
    assert written > 1_000_000 - LINE_LIMIT


@unhurried
@given(
    st.lists(st.lists(st.text("abc", max_size=12).map(str.encode), min_size=1, max_size=8), max_size=20),
    st.integers(1, 60),
    st.integers(2, 80),
)
def test_of_what_was_written_head_and_tail_are_read_and_the_rest_is_counted(
    blocks: list[list[bytes]], head: int, tail: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = RollingLog(directory, head, tail)
        reader, early = Tail(directory), 0
        written: list[bytes] = []
        for number, lines in enumerate(blocks):
            made = [b"%d o %b" % (number, line) for line in lines]
            written += made
            assert log.append(b"".join(line + b"\n" for line in made), len(made)) == (b"", 0)
            early += len(reader.read(20))
        log.finish()
        late = Tail(directory)
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
        assert late.place == reader.place == Place(sum(len(line) + 1 for line in written), len(written))


def _at_end(found: list[bytes], written: list[bytes]) -> int:
    """How many of the lines found are the last ones written."""
    count = 0
    while count < len(found) and found[len(found) - 1 - count] == written[len(written) - 1 - count]:
        count += 1
    return count


def test_a_log_with_garbage_in_it_is_read_on(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"1 o a\n\0\0\0\n2 o b\n3 o cut sho")
    assert [line.text for line in Tail(tmp_path).read()] == ["a", "a line of the log cannot be read", "b"]
