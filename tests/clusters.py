"""What tests make clusters with, and those that several use one after the other, reset in between."""

from __future__ import annotations

from typing import Protocol

import psycopg

from dba_console.core.errors import ConsoleError
from dba_console.demo.binaries import Binaries, find_binaries
from dba_console.demo.temporary_server import Cluster, Settings
from tests.background import Session, session
from tests.requirements import lacking
from tests.servers import Unavailable, server_binaries

_FAST: Settings = {"fsync": "off", "synchronous_commit": "off"}
_TEMPLATES = ("postgres", "template0", "template1")


class FreshCluster(Protocol):
    """Makes a started cluster of the test's own; `major` None is the preferred installation."""

    def __call__(self, settings: Settings | None = None, *, major: int | None = None) -> Cluster: ...


def binaries_of(major: int | None) -> Binaries:
    """The programs of a major version; ends the test where they cannot be had."""
    try:
        return find_binaries() if major is None else server_binaries(major)
    except (ConsoleError, Unavailable) as error:
        lacking(str(error))


class ClusterPool:
    """Running clusters by major version. One that is in use is not given out again before `release`."""

    def __init__(self) -> None:
        self._made: dict[int | None, list[Cluster]] = {}
        self._used: list[Cluster] = []

    def get(self, settings: Settings | None = None, *, major: int | None = None) -> Cluster:
        """Return a running cluster with these settings and nothing of earlier tests in it."""
        made = self._made.setdefault(major, [])
        for cluster in [one for one in made if one not in self._used]:
            try:
                cluster.start()
                reset(cluster)
                if cluster.settings != (wanted := {**_FAST, **(settings or {})}):
                    cluster.stop()
                    cluster.settings = wanted
                    cluster.start()
            except (ConsoleError, psycopg.Error):  # a test that failed may have left it in any state
                made.remove(cluster)
                cluster.close()
                continue
            self._used.append(cluster)
            return cluster
        cluster = Cluster(binaries_of(major), settings=settings, durable=False)
        made.append(cluster)
        self._used.append(cluster)
        cluster.initdb()
        cluster.start()
        return cluster

    def release(self) -> None:
        """Let every cluster be used again."""
        self._used.clear()

    def close(self) -> None:
        for cluster in (one for made in self._made.values() for one in made):
            cluster.close()
        self._made.clear()


def reset(cluster: Cluster) -> None:
    """Remove the sessions, objects, settings and statistics that tests left."""
    with session(cluster, name="test-reset") as connection:
        _run(connection, "set synchronous_commit = off; set lock_timeout = '60s'")
        _values(
            connection,
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
            " where backend_type in ('client backend', 'walsender') and pid <> pg_backend_pid()",
        )
        for database, gid in connection.execute("select database, gid from pg_prepared_xacts").fetchall():
            with session(cluster, dbname=str(database)) as inside:
                inside.execute(f"rollback prepared {_literal(gid)}".encode())
        for name in _values(connection, "select quote_ident(subname) from pg_subscription"):
            _run(connection, f"alter subscription {name} disable; alter subscription {name} set (slot_name = none)")
            _run(connection, f"drop subscription {name}")
        _values(
            connection,
            "select pg_terminate_backend(active_pid, 60000) from pg_replication_slots where active_pid is not null",
        )
        _values(connection, "select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        others = f"select quote_ident(datname) from pg_database where datname not in {_TEMPLATES}"
        for name in _values(connection, others):
            _run(connection, f"drop database {name} with (force)")
        for name in _values(connection, "select quote_ident(pubname) from pg_publication"):
            _run(connection, f"drop publication {name}")
        _drop_schemas(connection)
        for name in _values(
            connection, "select quote_ident(rolname) from pg_roles where rolname !~ '^(postgres$|pg_)'"
        ):
            _run(connection, f"drop owned by {name}; drop role {name}")
        _run(connection, "alter system reset all")
        _run(connection, "alter database postgres reset all; alter role postgres reset all")
        _run(connection, "alter role postgres password null")
        _run(connection, "select pg_reload_conf(), pg_stat_reset()")


def _drop_schemas(connection: Session) -> None:
    """Drop what is in the schema `public`, and every other schema of a test."""
    used = "select quote_ident(nspname) from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
    for name in _values(connection, used):
        _run(connection, f"drop schema {name} cascade")
    _run(connection, "create schema public; grant usage on schema public to public")
    if connection.info.server_version >= 150000:
        _run(connection, "alter schema public owner to pg_database_owner")
    else:
        _run(connection, "grant create on schema public to public")


def _run(connection: Session, sql: str) -> None:
    """Each statement in a transaction of its own."""
    for statement in sql.split("; "):
        connection.execute(statement.encode())


def _values(connection: Session, sql: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(sql.encode()).fetchall()]


def _literal(value: object) -> str:
    return psycopg.sql.quote(str(value))
