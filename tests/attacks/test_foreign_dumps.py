"""Files of a dump that are no files: nothing waits for them, and none is read without end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.toc import ArchiveError
from dba_console.jobs.tools.verify_archive import verify_archive
from tests.sql import query


@pytest.fixture
def dump(cluster: Cluster, tmp_path: Path) -> Path:
    query(cluster, "create table if not exists public.dumped as select g as n from generate_series(1, 1000) g")
    path = tmp_path / "dump"
    command = [str(cluster.binaries.program("pg_dump")), "-Fd", "-t", "public.dumped", "-f", str(path)]
    subprocess.run([*command, "-d", cluster.dsn()], check=True, capture_output=True)
    query(cluster, "drop table public.dumped")
    return path


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("make", [pipe, device, directory])
def test_a_data_file_that_is_no_file_is_a_problem_and_is_not_waited_for(
    make: Callable[[Path], None], dump: Path, cluster: Cluster
) -> None:
    [data] = [path for path in dump.iterdir() if path.name != "toc.dat"]
    make(data)
    found = verify_archive(dump, None, 0, None, bindir=str(cluster.binaries.directory), report=lambda line: None)
    assert f"{data.name}: not a regular file" in found.problems and not found.good
    assert any("pg_restore was not run" in one for one in found.unknown)


@pytest.mark.parametrize("make", [pipe, device])
def test_a_table_of_contents_that_is_no_file_is_refused(make: Callable[[Path], None], dump: Path) -> None:
    make(dump / "toc.dat")
    with pytest.raises(ArchiveError, match="not a regular file"):
        verify_archive(dump, None, 0, None, bindir=None, report=lambda line: None)
