"""Tables of contents of every version that is known, and what is cut short, newer, hostile or none at all."""

from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import plan_from_toc, sizes_by_offset
from dba_console.jobs.archives.toc import ArchiveError, read_toc
from tests.unit.jobs.archives.made_archives import archive, entry, head, number, text


@pytest.mark.parametrize("minor", [12, 13, 14, 15, 16])
def test_every_known_archive_version_is_read(minor: int) -> None:
    table = entry(1, "TABLE", 'odd "one"\nof two lines', section=2, minor=minor)
    rows = entry(2, "TABLE DATA", 'odd "one"\nof two lines', section=3, needs=[1], file="2.dat", minor=minor)
    toc = read_toc(archive(table, rows, minor=minor))
    assert (toc.version, toc.database) == ((1, minor, 0), "shop")
    assert toc.created == (2026, 11, 22, 3, 4, 5, 0)
    assert [(one.dump_id, one.desc, one.tag, one.needs, one.file) for one in toc.entries] == [
        (1, "TABLE", 'odd "one"\nof two lines', (), None),
        (2, "TABLE DATA", 'odd "one"\nof two lines', (1,), "2.dat"),
    ]
    assert [one.section for one in toc.entries] == [2, 3]


def test_a_custom_archive_has_data_offsets_and_a_piped_one_does_not() -> None:
    reported = read_toc(archive(*(entry(n, "TABLE DATA", "t", offset=n * 100, form=1) for n in (2, 3)), form=1))
    assert [one.offset for one in reported.entries] == [200, 300]
    assert sizes_by_offset(reported, 1000) == {2: 100, 3: 700}
    piped = read_toc(archive(entry(2, "TABLE DATA", "t", form=1), form=1))
    assert piped.entries[0].offset is None
    assert sizes_by_offset(piped, 1000) == {}


def test_an_entry_larger_than_the_read_size_is_read_whole() -> None:
    long = entry(1, "FUNCTION", "f()", section=2, statement="x" * 3_000_000)
    toc = read_toc(archive(long, entry(2, "TABLE", "t", section=2)))
    assert [one.tag for one in toc.entries] == ["f()", "t"]


def test_an_archive_truncated_anywhere_is_reported_as_truncated() -> None:
    whole = archive(entry(1, "TABLE", "t", section=2), entry(2, "INDEX", "i", needs=[1])).getvalue()
    for size in range(len(whole)):
        with pytest.raises(ArchiveError):
            read_toc(io.BytesIO(whole[:size]))
    assert len(read_toc(io.BytesIO(whole)).entries) == 2


def test_a_newer_archive_version_is_named() -> None:
    with pytest.raises(ArchiveError, match=r"1\.99 is not supported: the newest known is 1\.16") as raised:
        read_toc(io.BytesIO(b"PGDMP" + bytes([1, 99, 0, 4, 8, 3]) + b"\0" * 100))
    assert raised.value.hint is not None


@pytest.mark.parametrize("raw", [b"", b"PGD", b"-- PostgreSQL database dump", b"\x1f\x8b\x08\x00" * 9, b"\0" * 600])
def test_a_file_that_is_not_an_archive_is_refused(raw: bytes) -> None:
    with pytest.raises(ArchiveError):
        read_toc(io.BytesIO(raw))


def test_a_hostile_length_or_count_uses_no_memory() -> None:
    huge = number(2**31 - 1)
    hostile = [
        head(1) + number(1) + number(0) + huge,
        head(1) + number(1) + number(0) + text("1259") + text("1") + text("t") + text("TABLE") + number(2) + huge,
        head(0)[: -len(number(0))] + huge,
        head(4_000_000),
    ]
    tracemalloc.start()
    try:
        for raw in hostile:
            with pytest.raises(ArchiveError):
                read_toc(io.BytesIO(raw))
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=400))
def test_damage_is_an_archive_error_and_nothing_else(raw: bytes) -> None:
    for begin in (b"", b"PGDMP\1\x10\0\4\x08\3", head(3)):
        try:
            plan_from_toc(read_toc(io.BytesIO(begin + raw)), {})
        except ArchiveError as error:
            assert error.message


def test_a_table_of_contents_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "toc.dat")
    with pytest.raises(ArchiveError, match="is not a regular file"):
        open_archive(tmp_path)
