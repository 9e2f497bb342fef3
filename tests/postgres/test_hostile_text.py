"""Hostile names and query texts: shown in the encoding of their own database, never a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import session
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import query

HOSTILE = 'a[b]c[/d] "q" \\ \x1b[31mred\x07 \u202eltr 漢字 \N{PILE OF POO}'


def _query_in(cluster: Cluster, dbname: str, sql: bytes) -> str:
    """The text our probe, connected to postgres, sees of a session in `dbname` that ran `sql` byte for byte."""
    with session(cluster, dbname=dbname, name="speaker") as speaker, connected_probe(cluster) as probe:
        # As its database is encoded, so that not the least is converted on the way.
        encoding = query(cluster, f"select pg_encoding_to_char(encoding) from pg_database where datname = '{dbname}'")
        speaker.execute(f"set client_encoding = '{encoding}'".encode())
        speaker.pgconn.exec_(sql)
        pid = speaker.info.backend_pid
        return str(next(row.query for row in reading(probe, "pg.activity").rows if row.pid == pid))


@contextmanager
def database(cluster: Cluster, encoding: str) -> Iterator[str]:
    name = "in_" + encoding.lower()
    query(cluster, f"create database {name} template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'")
    try:
        yield name
    finally:
        query(cluster, f"drop database {name} with (force)")


@pytest.mark.pg(14, 18)
@pytest.mark.parametrize(
    ("encoding", "raw", "shown"),
    [
        ("LATIN1", b"select 'caf\xe9'", "select 'café'"),
        ("EUC_JP", "select '漢字'".encode("euc_jp"), "select '漢字'"),
        ("WIN1251", "select 'да'".encode("cp1251"), "select 'да'"),
        ("SQL_ASCII", b"select 'caf\xe9 \xff\xfe'", "select 'caf\\xe9 \\xff\\xfe'"),
        ("UTF8", "select '漢字 \U0001f4a9'".encode(), "select '漢字 \U0001f4a9'"),
        ("MULE_INTERNAL", b"select 'x'", "select 'x'"),
    ],
)
def test_a_query_is_read_in_the_encoding_of_its_own_database(
    server: Cluster, encoding: str, raw: bytes, shown: str
) -> None:
    with database(server, encoding) as name:
        assert _query_in(server, name, raw) == shown


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP", "SQL_ASCII"])
def test_a_probe_reads_everything_from_a_database_of_any_encoding(cluster: Cluster, encoding: str) -> None:
    with database(cluster, encoding) as name, session(cluster) as other:
        other.execute("select '漢字'")
        with connected_probe(cluster, dbname=name) as probe:
            parts = read(probe)
            texts = {row.query for row in parts["pg.activity"].decode().rows}
    assert {part.status for part in parts.values()} == {"ok"} | ({"unsupported"} if cluster.major < 16 else set())
    assert "select '漢字'" in texts


def test_brackets_escapes_and_wide_characters_pass_unchanged(cluster: Cluster) -> None:
    text = f"select $q${HOSTILE}$q$"
    assert _query_in(cluster, "postgres", text.encode()) == text


def test_names_with_any_characters_pass_unchanged(cluster: Cluster) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    query(cluster, f"create role {quoted} login")
    query(cluster, f"create database {quoted} owner {quoted}")
    try:
        with (
            session(cluster, user=HOSTILE, dbname=HOSTILE) as other,
            connected_probe(cluster, dbname=HOSTILE, user=HOSTILE) as probe,
        ):
            pid = other.info.backend_pid
            parts = read(probe)
        row = next(row for row in parts["pg.activity"].decode().rows if row.pid == pid)
        server = parts["pg.server"].decode()
    finally:
        query(cluster, f"drop database {quoted} with (force)")
        query(cluster, f"drop role {quoted}")
    assert (row.user, row.database) == (HOSTILE, HOSTILE)
    assert (server.current_user, server.database) == (HOSTILE, HOSTILE)
    assert HOSTILE in {database.name for database in parts["pg.databases"].decode().rows}


def test_a_password_in_a_query_is_not_shown(cluster: Cluster) -> None:
    query(cluster, "create role carol")
    try:
        shown = _query_in(cluster, "postgres", b"alter role carol password 'swordfish'")
    finally:
        query(cluster, "drop role carol")
    assert shown == "alter role carol password '********'"


def test_a_hostile_application_name_is_sanitized(cluster: Cluster) -> None:
    with psycopg.connect(cluster.dsn(), application_name=HOSTILE) as other, connected_probe(cluster) as probe:
        pid = other.info.backend_pid
        row = next(row for row in reading(probe, "pg.activity").rows if row.pid == pid)
    # The server itself lets only ASCII through there.
    assert row.application.isascii()
