"""Temporary files as they lie on disk, on every version: whose they are before any view has counted them."""

from __future__ import annotations

import os
import threading

import psycopg

from dba_console.demo.cluster import Cluster
from dba_console.samples.postgres import TempFiles
from tests.background import session, wait_until
from tests.postgres.probing import probing, read, reading

SPILL = "select max(k) from (select repeat(md5(g::text), 30) k from generate_series(1, 400000) g order by 1 offset 0) s"


def test_files_of_a_sort_under_way_are_listed_with_its_process(server: Cluster) -> None:
    with session(server) as sorter, probing(server) as probe:
        before = reading(probe, "pg.temp")
        sorter.execute("set work_mem = '64kB'")
        thread = threading.Thread(target=_ended, args=(sorter,), daemon=True)
        thread.start()
        pid = sorter.info.backend_pid

        def large() -> TempFiles | None:
            found: TempFiles = reading(probe, "pg.temp")
            return found if sum(row.bytes for row in found.rows if row.pid == pid) > 4 << 20 else None

        during = wait_until(large, 30, what="temporary files")
        sorter.cancel_safe()
        thread.join(20)

        def counted() -> bool:
            now: TempFiles = reading(probe, "pg.temp")
            return not now.rows and now.closed_bytes is not None and now.closed_bytes > (before.closed_bytes or 0)

        wait_until(counted, 30, what="them removed and counted")
    (row,) = [row for row in during.rows if row.pid == pid]
    assert (row.tablespace, row.files >= 1) == ("pg_default", True)
    assert during.closed_bytes == before.closed_bytes, "what is still open has not been counted by any view"


def _ended(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        connection.execute(SPILL)
    except psycopg.Error:
        pass  # cancelled by the test


def test_files_in_a_tablespace_are_told_apart(server: Cluster) -> None:
    place = server.base / "fast"
    place.mkdir()
    owner = os.stat(server.data_directory)
    os.chown(place, owner.st_uid, owner.st_gid)
    server.psql(f"create tablespace fast location '{place}'")
    try:
        with session(server) as sorter, probing(server) as probe:
            sorter.execute("set work_mem = '64kB'")
            sorter.execute("set temp_tablespaces = fast")
            thread = threading.Thread(target=_ended, args=(sorter,), daemon=True)
            thread.start()
            found = wait_until(lambda: reading(probe, "pg.temp").rows, 30, what="temporary files")
            sorter.cancel_safe()
            thread.join(20)
        assert {row.tablespace for row in found} == {"fast"}
    finally:
        server.psql("drop tablespace fast")
        place.rmdir()


def test_a_role_that_may_not_list_them_is_told_what_would_help(cluster: Cluster) -> None:
    cluster.psql("create role no_listing login")
    try:
        with probing(cluster, user="no_listing") as probe:
            part = read(probe, "pg.temp")["pg.temp"]
    finally:
        cluster.psql("drop role no_listing")
    assert (part.status, part.reading) == ("denied", None)
    assert 'GRANT pg_monitor TO "no_listing" would help' in (part.note or "")
