"""`dba-console dumps verify` and `list` on a directory dump of which a file is not what it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.tools.verify_archive import verify_archive
from tests.cli.console import CompletedCommand, Console
from tests.clusters import binaries_of


@pytest.fixture(scope="module")
def directory_dump(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A directory dump of a database with large objects, and where PostgreSQL's programs are."""
    directory = tmp_path_factory.mktemp("large") / "dump"
    with Cluster(binaries_of(None), durable=False) as cluster:
        cluster.psql("create table one as select i as a from generate_series(1, 9) i")
        cluster.psql("create table two as select i as a, i as b from generate_series(1, 9) i")
        cluster.psql("""create table three as select ''::text as "a ""b"" (c" from generate_series(1, 3)""")
        cluster.psql("select lo_from_bytea(oid, decode(md5(oid::text), 'hex')) from generate_series(70001, 70015) oid")
        program = str(cluster.binaries.program("pg_dump"))
        subprocess.run([program, "-d", cluster.dsn(), "-Fd", "-f", str(directory)], check=True)
        yield directory, cluster.binaries.directory


@pytest.fixture
def complete_dump(directory_dump: tuple[Path, Path], console: Console) -> Path:
    console.environment["DBA_CONSOLE_PG_BINDIR"] = str(directory_dump[1])
    return directory_dump[0]


def dumps(console: Console, *words: str) -> CompletedCommand:
    return console.run("dumps", *words, timeout=240.0)


def data_file_of(archive: Path, table: str) -> Path:
    """The data file of a table in a directory dump."""
    (number,) = [one.file for one in open_archive(archive).entries if (one.desc, one.tag) == ("TABLE DATA", table)]
    return archive / f"{number}.gz"


def swap_data_files(archive: Path) -> None:
    one, two = data_file_of(archive, "one"), data_file_of(archive, "two")
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)


def large_object_file(oid: int) -> str:
    return f"blob_{oid}.dat.gz"


def test_complete_large_objects_are_counted(console: Console, complete_dump: Path) -> None:
    done = dumps(console, "verify", str(complete_dump))
    assert done.code == 0, done.out
    assert "read to its end by pg_restore" in done.out
    assert "3 data files, 15 large objects" in done.out
    assert dumps(console, "list", str(complete_dump)).code == 0


@pytest.mark.parametrize(
    ("damage", "words", "listed"),
    [
        (
            lambda at: (at / large_object_file(70003)).unlink(),
            "large object 70003: file blob_70003.dat is missing",
            True,
        ),
        (lambda at: (at / "blobs.toc").unlink(), "large objects: file blobs.toc is missing", True),
        (lambda at: os.truncate(at / "blobs.toc", 47), "blobs.toc): it is truncated", True),
        (lambda at: os.truncate(at / "blobs.toc", 42), "large object 70003: missing in blobs.toc", True),
        (
            lambda at: os.truncate(at / large_object_file(70003), 21),
            "large object 70003 (blob_70003.dat.gz): gzip data",
            False,
        ),
        (
            lambda at: shutil.copy(at / large_object_file(70003), at / large_object_file(1)),
            "blob_1.dat.gz: not listed in this dump",
            True,
        ),
        (lambda at: data_file_of(at, "two").unlink(), "public.two: file ", True),
        (lambda at: shutil.copy(data_file_of(at, "two"), at / "1.dat.gz"), "1.dat.gz: not listed in this dump", True),
        (swap_data_files, "its rows have 2 columns, the table 1", False),
        (lambda at: os.utime(data_file_of(at, "two"), (1e9, 1e9)), "before this dump started", True),
        (
            lambda at: (at / "blobs.toc").write_bytes((at / "blobs.toc").read_bytes() + b"9 blob_9.dat\n"),
            "large object 9: listed in blobs.toc but not in toc.dat",
            True,
        ),
    ],
)
def test_a_directory_dump_with_a_missing_cut_extra_or_foreign_file_names_it(
    console: Console,
    tmp_path: Path,
    complete_dump: Path,
    damage: Callable[[Path], object],
    words: str,
    listed: bool,
) -> None:
    archive = Path(shutil.copytree(complete_dump, tmp_path / "dump"))
    damage(archive)
    done = dumps(console, "verify", str(archive))
    assert done.code == 7, done.out
    assert words in done.out
    done = dumps(console, "list", str(archive))
    assert (done.code, words in done.out) == ((7, True) if listed else (0, False)), done.out


def test_some_of_many_missing_large_objects_are_named_and_the_others_counted(
    console: Console, tmp_path: Path, complete_dump: Path
) -> None:
    archive = Path(shutil.copytree(complete_dump, tmp_path / "dump"))
    for file in archive.glob("blob_*"):
        file.unlink()
    done = dumps(console, "list", str(archive))
    assert done.out.count(": file blob_") == 10 and "and 5 more" in done.out


def test_a_copied_dump_with_checksum_files_is_complete(console: Console, tmp_path: Path, complete_dump: Path) -> None:
    archive = Path(shutil.copytree(complete_dump, tmp_path / "dump", copy_function=shutil.copyfile))
    (archive / "SHA256SUMS").write_text("")
    done = dumps(console, "verify", str(archive))
    assert done.code == 0, done.out
    assert "SHA256SUMS: not a file name that pg_dump uses" in done.out


def test_a_parallel_pg_restore_check_is_ended_when_the_read_stops(
    tmp_path: Path, directory_dump: tuple[Path, Path]
) -> None:
    archive = Path(shutil.copytree(directory_dump[0], tmp_path / "dump"))
    held = data_file_of(archive, "two")
    held.unlink()
    os.mkfifo(held)  # pg_restore would wait there for ever

    def gone(text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        verify_archive(archive, None, 0, None, bindir=str(directory_dump[1]), report=gone)
