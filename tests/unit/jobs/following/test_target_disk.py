"""Where a restore writes: by what the server has told of its databases and tablespaces."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.jobs.following.target_disk import database_directory
from dba_console.watch.samples.postgres import Database
from tests.readings import server


def database(name: str, tablespace: str | None = None) -> Database:
    return Database(1, name, "UTF8", -1, True, False, tablespace)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({}, "/data"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app")]}, "/data"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app", "fast")]}, "/fast"),
        ({"tablespaces": {"own": "pg_tblspc/7"}, "databases": [database("app", "own")]}, "/data/pg_tblspc/7"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("other")]}, None),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app", "newer")]}, None),
        ({"data_directory": None}, None),
    ],
)
def test_a_database_grows_in_its_tablespace_and_one_nobody_told_of_somewhere(
    told: dict[str, Any], place: str | None
) -> None:
    assert database_directory(server(**{"data_directory": "/data", **told}), "app") == place
