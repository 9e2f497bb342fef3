"""The lists of large objects as pg_dump 17 and later write them: one for a group, named by its first and last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.toc import ArchiveError
from dba_console.jobs.tools.archive_listing import check_directory
from tests.unit.jobs.archives.made_archives import archive, entry


def dump(directory: Path) -> Path:
    """With two groups of large objects, 10..12 and 20."""
    groups = [
        entry(7, "BLOBS", "10..12", section=3, file="blobs_7.toc", schema=None),
        entry(8, "BLOBS", "20", section=3, file="blobs_8.toc", schema=None),
    ]
    (directory / "toc.dat").write_bytes(archive(*groups).getvalue())
    for file, oids in (("blobs_7.toc", (10, 11, 12)), ("blobs_8.toc", (20,))):
        (directory / file).write_text("".join(f"{oid} blob_{oid}.dat\n" for oid in oids))
        for oid in oids:
            (directory / f"blob_{oid}.dat.zst").write_bytes(b"?")
    return directory


def test_each_group_has_its_list(tmp_path: Path) -> None:
    found = check_directory(tmp_path, open_archive(dump(tmp_path)))
    assert found.problems == () and len(found.large_objects) == 4


def test_a_group_without_its_list_is_named_and_its_large_objects_are_still_read(tmp_path: Path) -> None:
    (dump(tmp_path) / "blobs_8.toc").unlink()
    found = check_directory(tmp_path, open_archive(tmp_path))
    assert found.problems == ("large objects: file blobs_8.toc is missing",) and len(found.large_objects) == 4


def test_a_list_of_another_dump_names_its_extra_and_missing_entries(tmp_path: Path) -> None:
    (dump(tmp_path) / "blobs_7.toc").write_text("10 blob_10.dat\n11 blob_11.dat\n13 blob_13.dat\n")
    reported = "\n".join(check_directory(tmp_path, open_archive(tmp_path)).problems)
    assert "large object 12: missing in blobs_7.toc" in reported
    assert "large object 13: listed in blobs_7.toc but not in toc.dat" in reported
    assert "blob_12.dat.zst: not listed in this dump" in reported


def test_an_unreadable_directory_is_named(tmp_path: Path) -> None:
    plan = open_archive(dump(tmp_path))
    (tmp_path / "turning").symlink_to("turning")
    with pytest.raises(ArchiveError, match="turning cannot be read: Too many levels of symbolic links"):
        check_directory(tmp_path, plan)
    with pytest.raises(ArchiveError, match="cannot be read: No such file") as gone:
        check_directory(tmp_path / "rotated", plan)
    assert gone.value.hint == "is this dump being removed or replaced?"
