"""The large objects in a custom archive are counted while it grows: in each prefix of a file that pg_dump wrote."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.large_object_counter import LargeObjectCounter
from tests.sql import query

OBJECTS = 40


@pytest.fixture
def source(cluster: Cluster) -> Iterator[str]:
    """A database with two tables and large objects of different sizes, one of them empty."""
    name = "large_objects_counted"
    query(cluster, f"create database {name}")
    query(
        cluster,
        "create table t as select i, md5(i::text) as filler from generate_series(1, 20000) i;"
        "create table u as table t;"
        "select lo_from_bytea(0, decode((select coalesce(string_agg(md5((i * 1000 + j)::text), ''), '') "
        f"from generate_series(1, i * 50) j), 'hex')) from generate_series(0, {OBJECTS - 1}) i",
        dbname=name,
    )
    yield name
    query(cluster, f"drop database {name} with (force)")


@pytest.mark.parametrize("level", ["-Z0", "-Z1"])
def test_large_objects_are_counted_in_a_growing_archive(
    cluster: Cluster, source: str, tmp_path: Path, level: str
) -> None:
    dump, growing = tmp_path / "whole", tmp_path / "growing"
    subprocess.run(
        [str(cluster.binaries.program("pg_dump")), "-Fc", level, "-f", str(dump), "-d", cluster.dsn(dbname=source)],
        check=True, cwd="/", env=clean_environment(),
    )  # fmt: skip
    whole, counter, counts = dump.read_bytes(), LargeObjectCounter(str(growing)), []
    for end in (10, *range(len(whole) // 50, len(whole), len(whole) // 50), len(whole)):
        growing.write_bytes(whole[:end])
        counts.append(counter.count())
    assert counts[0] is None, "its table of contents is not complete"
    known = [count for count in counts if count is not None]
    assert known == sorted(known) and known[0] == 0 and known[-1] == OBJECTS and len(set(known)) > 5


def test_of_another_file_nothing_is_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"-- PostgreSQL database dump\n" * 100)
    assert LargeObjectCounter(str(tmp_path / "f")).count() is None
    assert LargeObjectCounter(str(tmp_path / "missing")).count() is None
