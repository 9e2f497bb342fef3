"""Data files read to their end: rows counted, and truncation or damage reported."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from dba_console.jobs.tools.verify_archive import DamagedDataError, count_rows, read_decompressed

ROWS = b"".join(b"%d\tname\\n%d\n" % (number, number) for number in range(5000)) + b"\\.\n\n\n"


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_rows_are_counted_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    found = count_rows(read_decompressed(written(tmp_path, suffix)))
    assert found.rows == 5000
    assert found.bytes == len(ROWS)


def test_the_content_decides_the_compression_before_the_file_name(tmp_path: Path) -> None:
    misnamed = written(tmp_path, ".gz").rename(tmp_path / "dump.sql")
    assert count_rows(read_decompressed(misnamed, "gzip")).rows == 5000


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_reported(tmp_path: Path, suffix: str, share: float) -> None:
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DamagedDataError, match=r"truncated|damaged"):
        count_rows(read_decompressed(path))


def test_a_file_with_a_wrong_byte_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, ".gz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DamagedDataError):
        count_rows(read_decompressed(path))


def test_missing_rows_that_the_compression_does_not_detect_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "1.dat.gz"
    path.write_bytes(gzip.compress(ROWS[:-20]))
    with pytest.raises(DamagedDataError, match="end marker of its rows is missing"):
        count_rows(read_decompressed(path))


def test_a_table_without_rows_has_none() -> None:
    assert count_rows([b"\\", b".\n", b"\n\n"]).rows == 0


def test_a_row_that_looks_like_the_end_is_not_the_end() -> None:
    assert count_rows([b"\\\\.\n", b"a\\.\n", b"\\.\n\n\n"]).rows == 2


def test_rows_as_inserts_are_not_counted() -> None:
    assert count_rows([b"INSERT INTO public.t VALUES (1);\n", b"\n\n\n"]).rows is None


def written(directory: Path, suffix: str) -> Path:
    path = directory / f"3000.dat{suffix}"
    packed = {"": ROWS, ".gz": gzip.compress(ROWS), ".zst": zstandard.ZstdCompressor().compress(ROWS)}
    path.write_bytes(packed[suffix])
    return path
