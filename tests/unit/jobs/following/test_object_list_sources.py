"""The plan of a job is that of its archive, as far as its arguments want it; what cannot be planned is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.jobs.following.database_catalog import CatalogTable
from dba_console.jobs.following.object_list import (
    ObjectListUnavailable,
    archive_path,
    plan_of_archive,
    select_dumped_tables,
    select_restored,
)
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.program_arguments import parse_arguments
from dba_console.jobs.following.program_scanner import RunningProgram
from tests.build import NOW_US
from tests.unit.jobs.following.plans import restore_plan

TABLES = [CatalogTable(n, schema, name, 8192, 1.0, inserted=1) for n, (schema, name) in enumerate(
    [("public", "orders"), ("public", "lines"), ("sales", "orders")])]  # fmt: skip


def program(command: str, directory: Path | str = "/work") -> RunningProgram:
    words = command.split()
    return RunningProgram(
        pid=7, start_ticks=1, ppid=1, kind=words[0], started_us=NOW_US, uid=0, user="root", state="S", command=command,
        arguments=parse_arguments(words[0], words), version=None, directory=str(directory), root="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("pg_dump -Fd -f out shop", "/work/out"),
        ("pg_dump -Fc -f c.dump shop", "/work/c.dump"),
        ("pg_dump -f plain.sql shop", None),
        ("pg_restore -d shop /backup/d", "/backup/d"),
        ("pg_restore -d shop", None),
        ("psql -f plain.sql", None),
    ],
)
def test_the_archive_is_the_one_named_in_the_arguments(command: str, path: str | None) -> None:
    assert archive_path(program(command), DataFlow()) == path


@pytest.mark.parametrize(
    ("options", "descs"),
    [
        ("-a", {"TABLE DATA"}),
        ("-s", {"TABLE", "CONSTRAINT", "INDEX"}),
        ("-t t1", {"TABLE", "TABLE DATA"}),
        ("-n public", {"TABLE", "TABLE DATA", "CONSTRAINT", "INDEX"}),
        ("-n other", set()),
    ],
)
def test_a_partial_archive_is_planned_as_requested(options: str, descs: set[str]) -> None:
    plan = select_restored(restore_plan(2), program(f"pg_restore -d shop {options} d"))
    assert {entry.desc for entry in plan.entries} == descs


def test_a_list_file_selects_the_entries(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("; a comment\n11; 0 1 TABLE DATA public t1 me\n;21; 0 2 TABLE DATA public t2 me\n")
    plan = select_restored(restore_plan(2), program("pg_restore -d shop -L list d", tmp_path))
    assert [entry.dump_id for entry in plan.entries] == [11]


def test_an_unsupported_selection_is_not_planned() -> None:
    with pytest.raises(ObjectListUnavailable, match="only a part of the archive"):
        select_restored(restore_plan(2), program("pg_restore -d shop --filter some d"))


def test_a_dump_of_some_tables_plans_only_these() -> None:
    def names(command: str) -> list[str]:
        return [f"{one.schema}.{one.name}" for one in select_dumped_tables(TABLES, program(command).arguments)]

    assert names("pg_dump shop") == ["public.orders", "public.lines", "sales.orders"]
    assert names("pg_dump -n sales shop") == ["sales.orders"]
    assert names("pg_dump -t public.orders shop") == ["public.orders"]
    assert names("pg_dump -t orders shop") == ["public.orders", "sales.orders"]
    for command in ("pg_dump -t o* shop", "pg_dump -T orders shop"):
        with pytest.raises(ObjectListUnavailable, match="a part of the database"):
            names(command)


def test_an_invalid_archive_is_reported_and_a_pipe_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(b"PGDMP\x01\x0f")
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("cut", "cut"), ("pipe", "neither a file nor a directory"), ("none", "cannot be read")):
        with pytest.raises(ObjectListUnavailable, match=why):
            plan_of_archive(program(f"pg_restore -d shop {name}", tmp_path), str(tmp_path / name))
