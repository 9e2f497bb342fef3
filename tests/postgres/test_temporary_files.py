"""Temporary files as they lie on disk, on every version: whose they are before any view has counted them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.disks.readings import TempFiles
from tests.background import session, wait_until
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import LIMIT_S, query

ROWS = 8_000
"""A kilobyte each, much more than work_mem."""
SORTED = f"select repeat(md5(g::text), 30) from generate_series(1, {ROWS}) g order by 1"


@contextmanager
def sorting(cluster: Cluster, *settings: str) -> Iterator[int]:
    """A session whose cursor keeps sorted rows in temporary files; gives its process id. At the end they are closed."""
    with session(cluster, name="sorter") as sorter:
        for setting in ("work_mem = '64kB'", *settings):
            sorter.execute(f"set {setting}".encode())
        sorter.execute(f"begin; declare sorted cursor for {SORTED}".encode())
        sorter.execute("fetch 1 from sorted")
        yield sorter.info.backend_pid


def test_files_of_a_running_sort_are_listed_with_its_process_until_it_ends(server: Cluster) -> None:
    """The session ends with the sort: another would report what it wrote up to ten seconds later."""
    with connected_probe(server) as probe:
        before = reading(probe, "pg.temp")
        with sorting(server) as pid:
            during: TempFiles = reading(probe, "pg.temp")

        def counted() -> bool:
            now: TempFiles = reading(probe, "pg.temp")
            return not now.rows and now.closed_bytes is not None and now.closed_bytes > (before.closed_bytes or 0)

        wait_until(counted, LIMIT_S, what="them removed and counted")
    (row,) = [row for row in during.rows if row.pid == pid]
    assert (row.tablespace, row.files >= 1, row.bytes > 4 << 20) == ("pg_default", True, True)
    assert during.closed_bytes == before.closed_bytes, "what is still open has not been counted by any view"


def test_files_in_a_tablespace_are_distinguished(server: Cluster) -> None:
    place = server.base / "fast"
    place.mkdir()
    owner = os.stat(server.data_directory)
    os.chown(place, owner.st_uid, owner.st_gid)
    query(server, f"create tablespace fast location '{place}'")
    try:
        with sorting(server, "temp_tablespaces = fast"), connected_probe(server) as probe:
            found = reading(probe, "pg.temp").rows
        assert {row.tablespace for row in found} == {"fast"}
    finally:
        query(server, "drop tablespace fast")
        place.rmdir()


def test_a_role_that_may_not_list_them_is_shown_the_required_grant(cluster: Cluster) -> None:
    query(cluster, "create role no_listing login")
    try:
        with connected_probe(cluster, user="no_listing") as probe:
            part = read(probe, "pg.temp")["pg.temp"]
    finally:
        query(cluster, "drop role no_listing")
    assert (part.status, part.reading) == ("denied", None)
    assert 'GRANT pg_monitor TO "no_listing" would help' in (part.note or "")
