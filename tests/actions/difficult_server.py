"""A difficult server for actions: odd names, partitions, another default tablespace, a modest role, a standby."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dba_console.actions.action import ActionContext
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.actions.run_actions import RunActions
from tests.actions.shrink_files import context_without_processes
from tests.clusters import binaries_of
from tests.sql import query
from tests.standbys import copied_standby

DATABASE, ROLE, TABLE = 'The "Shop"', "Half Admin", '"Odd, schema"."Big Table"'
ROLE_GRANTS = (
    f'create role "{ROLE}" login replication createdb in role pg_signal_backend, pg_read_all_stats',
    f"alter role \"{ROLE}\" set statement_timeout = '19s'",
    f"alter role \"{ROLE}\" set lock_timeout = '21s'",
    f'grant alter system on parameter work_mem to "{ROLE}"',
)
MEMINFO_FIELDS = ("MemTotal", "MemFree", "Buffers", "Cached", "Dirty", "Writeback", "Shmem", "SReclaimable")
FILE_SETTINGS_GRANTS = (
    f'grant execute on function pg_reload_conf(), pg_show_all_file_settings() to "{ROLE}"',
    f'grant select on pg_file_settings to "{ROLE}"',
)
"""Rights on functions and views are those of one database."""
SHOP_TABLES = (
    'create schema "Odd, schema"',
    f"create table {TABLE} (n int) partition by range (n)",
    f'create table "Odd, schema"."part 1" partition of {TABLE} for values from (0) to (1000) tablespace pg_default',
    f'create table "Odd, schema"."part 2" partition of {TABLE} for values from (1000) to (9999)',
    f"insert into {TABLE} select generate_series(0, 5000)",
    f"delete from {TABLE}",
)


@dataclass
class DifficultServers:
    """A difficult primary, its standby, and a directory of the test's own."""

    primary: Cluster
    standby: Cluster
    directory: Path

    @contextmanager
    def actions(self, cluster: Cluster | None = None) -> Iterator[RunActions]:
        """Actions on the primary, or on `cluster`, as the role that is not superuser, in the odd database."""
        with acting_connection(cluster or self.primary, user=ROLE, dbname=DATABASE) as connection:
            yield RunActions(connection, self.directory / "reverts")

    def psql(self, sql: str, dbname: str = DATABASE) -> str:
        return query(self.primary, sql, dbname=dbname)


@contextmanager
def primary_and_standby() -> Iterator[tuple[Cluster, Cluster]]:
    """The primary and its standby."""
    with Cluster(binaries_of(18), settings={"wal_level": "logical"}, durable=False) as primary:
        for name, value in (("max_prepared_transactions", "4"), ("allow_in_place_tablespaces", "on")):
            query(primary, f"alter system set {name} = {value}")  # in a file that the standby will have too
        primary.restart()
        for sql in ROLE_GRANTS:
            query(primary, sql)
        quoted = DATABASE.replace('"', '""')
        # Below the data directory, so that the standby, a copy of it, has one of its own.
        query(primary, "create tablespace \"Fast Disk\" location ''")
        query(primary, f'grant create on tablespace "Fast Disk", pg_default to "{ROLE}"')
        query(primary, f'create database "{quoted}" owner "{ROLE}" tablespace "Fast Disk"')
        for sql in FILE_SETTINGS_GRANTS:
            query(primary, sql, dbname=DATABASE)
        for sql in SHOP_TABLES:
            query(primary, sql, user=ROLE, dbname=DATABASE)
        with copied_standby(primary) as standby:
            yield primary, standby


def kernel_context(servers: DifficultServers) -> ActionContext:
    """Directories that look like /proc and /sys, so that this host is left as it is."""
    context = context_without_processes(servers.directory)
    (Path(context.proc) / "sys" / "vm").mkdir(parents=True)
    for name, text in (
        ("sys/vm/drop_caches", "0\n"),
        ("sys/vm/zone_reclaim_mode", "1\n"),
        ("vmstat", "drop_pagecache 0\n"),
    ):
        (Path(context.proc) / name).write_text(text)
    (Path(context.proc) / "meminfo").write_text("".join(f"{name}: 900 kB\n" for name in MEMINFO_FIELDS))
    return context
