"""create-database: a database made like another one, in everything that is not in its dump; and
set-database-properties: one restored under another name, with what its dump contains of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.create_database import read_definition
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools.archive_listing import listing_lines, read_listing
from tests.actions.connections import acting_connection, perform, preview_action, settle_action, undo_action
from tests.actions.quoting import quoted
from tests.attacks.hostile_database import VICTIM, calls, make_hostile
from tests.clusters import binaries_of
from tests.sql import query

MAKE = ACTIONS["create-database"]
SET = ACTIONS["set-database-properties"]
OLD = "the \"old\" 'one'; drop"
NEW = "the \"new\" 'one'"
SECRET = "hush-hush-4712"
_ROLES = """
create role "the owner" login;
create role "app; user" login;
create role makes login createdb;
create role plain login;
"""
_GIVEN = [
    "alter database {} owner to \"the owner\"", "alter database {} connection limit 7",
    "alter database {} is_template true", "comment on database {} is 'it''s the shop'",
    "revoke all on database {} from public", "grant connect on database {} to \"app; user\" with grant option",
    "grant temporary on database {} to public", "revoke create on database {} from \"the owner\"",
    "alter database {} set search_path = \"$user\", \"odd, schema\", public",
    f"alter database {{}} set app.jwt_secret = '{SECRET}'", "alter database {} set work_mem = '77MB'",
    "alter role \"app; user\" in database {} set statement_timeout = '12s'",
]  # fmt: skip
_LOOKS = """
select pg_encoding_to_char(encoding), datcollate, datctype, to_jsonb(d) - 'oid' - 'datname' - 'datacl' - 'datfrozenxid'
  - 'datminmxid' - 'datlastsysoid' - 'dathasloginevt', shobj_description(oid, 'pg_database'),
  (select array_agg(x order by x) from (select grantee::regrole::text || privilege_type || is_grantable x
                                        from aclexplode(datacl)) a),
  (select array_agg(x order by x) from (select setrole::regrole::text || c x
                                        from pg_db_role_setting, unnest(setconfig) c where setdatabase = d.oid) s)
from pg_database d where datname = %s
"""


def database_properties(cluster: Cluster, name: str) -> tuple[object, ...]:
    """All that belongs to the database itself."""
    with psycopg.connect(cluster.dsn()) as session:
        found = session.execute(_LOOKS, [name]).fetchone()
    assert found is not None
    return found


def original_database(cluster: Cluster, *how: str) -> None:
    """The database that is to be made once more."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as session:
        session.execute(f"create database {quoted(OLD)} template template0 {' '.join(how)}".encode())
        for text in _GIVEN:
            session.execute(text.format(quoted(OLD)).encode())


@pytest.fixture(scope="module")
def prepared_cluster() -> Iterator[Cluster]:
    """A cluster with the old database in another tablespace; nothing of a hostile owner is called."""
    with Cluster(binaries_of(None), durable=False) as cluster:
        make_hostile(cluster)
        space = cluster.base / "space"
        space.mkdir()
        owner = cluster.data_directory.stat()
        os.chown(space, owner.st_uid, owner.st_gid)
        with psycopg.connect(cluster.dsn(), autocommit=True) as session:
            session.execute(_ROLES)
            session.execute(f"create tablespace \"an other\" location '{space}'".encode())
        original_database(cluster, "encoding 'LATIN1' locale 'C' tablespace \"an other\"")
        yield cluster
        assert calls(cluster) == []


@pytest.fixture
def connection(prepared_cluster: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(prepared_cluster, user=VICTIM) as connection:
        yield connection
        connection.execute_change(f"drop database if exists {quoted(NEW)}", transaction=False)


def test_it_matches_the_original_in_everything_a_dump_does_not_contain(
    prepared_cluster: Cluster, connection: ActingConnection
) -> None:
    connection.execute_change(f"alter database {quoted(OLD)} is_template false")
    action_preview, done = perform(MAKE, connection, database=NEW, like=OLD)
    assert done.state == "ok", done.text
    assert database_properties(prepared_cluster, NEW) == database_properties(prepared_cluster, OLD)
    assert (
        SECRET not in action_preview.exact
        and "work_mem" in action_preview.exact
        and "TEMPLATE template0" in action_preview.exact
    )
    assert preview_action(MAKE, connection, database=NEW, like=OLD).done
    assert settle_action(MAKE, connection, action_preview, database=NEW, like=OLD).state == "ok"


def test_a_closed_database_admits_only_superusers_until_it_is_opened(
    prepared_cluster: Cluster, connection: ActingConnection
) -> None:
    _, done = perform(MAKE, connection, database=NEW, like=OLD, closed=True)
    assert done.state == "ok", done.text
    with pytest.raises(psycopg.OperationalError, match="too many connections"):
        psycopg.connect(prepared_cluster.dsn(user="the owner", dbname=NEW))
    psycopg.connect(prepared_cluster.dsn(dbname=NEW)).close()
    action_preview, done = perform(MAKE, connection, database=NEW, like=OLD)
    assert action_preview.exact.endswith("CONNECTION LIMIT 7") and action_preview.count == 1 and done.state == "ok"


def test_after_a_stop_it_continues_from_what_exists(connection: ActingConnection, prepared_cluster: Cluster) -> None:
    asked = parse_settings(MAKE.name, {"database": NEW, "like": OLD})
    action_preview = MAKE.preview(asked, ActionContext(connection=connection))
    done = MAKE.act(asked, action_preview, ActionContext(connection=connection), PlainControl(stop=lambda: True))
    assert done.state == "stopped" and done.undo is not None, done.text
    found = settle_action(MAKE, connection, action_preview, database=NEW, like=OLD)
    assert found.state == "failed" and found.again, found.text
    again, done = perform(MAKE, connection, database=NEW, like=OLD)
    assert "CREATE DATABASE" not in again.exact and done.state == "ok", done.text
    assert database_properties(prepared_cluster, NEW) == database_properties(prepared_cluster, OLD)


def test_its_undo_drops_the_created_database_and_no_other_of_that_name(
    connection: ActingConnection, prepared_cluster: Cluster
) -> None:
    _, done = perform(MAKE, connection, database=NEW, like=OLD)
    connection.execute_change(f"alter database {quoted(NEW)} rename to elsewhere")
    connection.execute_change(f"create database {quoted(NEW)}", transaction=False)
    assert undo_action(MAKE, connection, done, database=NEW, like=OLD).state == "failed"
    connection.execute_change(f"drop database {quoted(NEW)}", transaction=False)
    connection.execute_change(f"alter database elsewhere rename to {quoted(NEW)}")
    assert undo_action(MAKE, connection, done, database=NEW, like=OLD).state == "ok"
    assert query(prepared_cluster, "select count(*) from pg_database where datname ~ 'new'") == "0"


def test_what_can_no_longer_be_changed_is_refused(connection: ActingConnection, prepared_cluster: Cluster) -> None:
    connection.execute_change(f"create database {quoted(NEW)} template template0 encoding 'UTF8'", transaction=False)
    reported = preview_action(MAKE, connection, database=NEW, like=OLD).refusal
    assert reported is not None and "encoding, tablespace cannot be changed" in reported, reported
    assert preview_action(MAKE, connection, database=NEW).done, "nothing it is to be like: it is there"
    assert "database gone, to copy" in str(preview_action(MAKE, connection, database="x", like="gone").refusal)


def test_a_role_without_createdb_is_refused_and_one_with_it_creates_its_own(prepared_cluster: Cluster) -> None:
    with acting_connection(prepared_cluster, user="plain") as connection:
        assert "may not create databases" in str(preview_action(MAKE, connection, database=NEW).refusal)
    with acting_connection(prepared_cluster, user="makes") as connection:
        _, done = perform(MAKE, connection, database="mine", dumped=" ENCODING = 'UTF8' LOCALE = 'C'", closed=True)
        assert done.state == "ok", done.text
        made = read_definition(connection, "mine")
        assert made is not None and (made.encoding, made.lc_collate, made.owner) == ("UTF8", "C", "makes")
        assert made.connection_limit == -1, "it could not get in itself"
        assert undo_action(MAKE, connection, done, database="mine").state == "ok"
        reported = MAKE.act(
            settings := parse_settings(MAKE.name, {"database": NEW, "like": OLD}),
            MAKE.preview(settings, ActionContext(connection=connection)),
            ActionContext(connection=connection),
            PlainControl(),
        )
        assert reported.state == "failed" and "CREATE DATABASE" in reported.text, reported.text


def test_locale_and_provider_match_the_original_on_each_version(server: Cluster) -> None:
    """ICU from 15 on with its rules from 16 on, builtin from 17 on; where the build has them."""
    ways = ["locale 'C'"]
    if server.binaries.major >= 15:
        ways.append("locale 'C' locale_provider icu icu_locale 'de-AT'")
    if server.binaries.major >= 16:
        ways.append("locale 'C' locale_provider icu icu_locale 'en' icu_rules '&a < g'")
    if server.binaries.major >= 17:
        ways.append("locale 'C' locale_provider builtin builtin_locale 'C.UTF-8'")
    for how in ways:
        with acting_connection(server) as connection:
            connection.execute_change(
                f"create database looked_at template template0 encoding 'UTF8' {how}", transaction=False
            )
            connection.execute_change("alter database looked_at set work_mem = '9MB'")
            try:
                _, done = perform(MAKE, connection, database="like_it", like="looked_at")
                assert done.state == "ok", done.text
                assert database_properties(server, "like_it") == database_properties(server, "looked_at")
            finally:
                connection.execute_change("drop database if exists like_it", transaction=False)
                connection.execute_change("drop database looked_at", transaction=False)


@pytest.fixture
def restored(connection: ActingConnection) -> Iterator[ActingConnection]:
    connection.execute_change(f"create database {quoted(NEW)} template template0", transaction=False)
    yield connection
    connection.execute_change(f"alter database {quoted(NEW)} is_template false")


def dump(cluster: Cluster, path: Path, how: str) -> str:
    program = str(cluster.binaries.program("pg_dump"))
    subprocess.run([program, how, "-f", str(path), "-d", cluster.dsn(dbname=OLD)], check=True, capture_output=True)
    return str(path)


@pytest.mark.parametrize("how", ["-Fd", "-Fc"])
def test_a_database_restored_under_another_name_gets_all_that_belongs_to_it(
    prepared_cluster: Cluster,
    restored: ActingConnection,
    tmp_path: Path,
    how: str,
) -> None:
    with psycopg.connect(prepared_cluster.dsn(), autocommit=True) as session:
        session.execute(f'set role "app; user"; grant connect on database {quoted(OLD)} to makes'.encode())
        session.execute(f"reset role; alter database {quoted(OLD)} set app.path = 'a\\b''c; d\nnew line'".encode())
        session.execute(f"alter database {quoted(OLD)} set datestyle = 'ISO, DMY'".encode())
    archive = dump(prepared_cluster, tmp_path / "dump", how)
    shown, done = perform(SET, restored, database=NEW, archive=archive)
    assert done.state == "ok", done.text
    assert SECRET not in f"{shown} {done}" and "new" in shown.exact and OLD.replace('"', '""') not in shown.exact
    old, new = database_properties(prepared_cluster, OLD), database_properties(prepared_cluster, NEW)
    assert new[4:] == old[4:], "comment, grants, settings"
    assert isinstance(old[3], dict) and isinstance(new[3], dict)
    assert {name for name in old[3] if new[3].get(name) != old[3][name]} <= {"encoding", "dattablespace"}
    listed = "\n".join(listing_lines(read_listing(Path(archive))))
    assert "owner the owner" in listed and "CONNECTION LIMIT = 7" in listed and SECRET not in listed, listed
    assert preview_action(SET, restored, database=NEW, archive=archive).done
    assert settle_action(SET, restored, shown, database=NEW, archive=archive).state == "ok"


def test_what_cannot_be_set_here_is_left_out_and_named(
    prepared_cluster: Cluster,
    restored: ActingConnection,
    tmp_path: Path,
) -> None:
    with psycopg.connect(prepared_cluster.dsn(), autocommit=True) as session:
        for text in ("create role gone", f"grant create on database {quoted(OLD)} to gone"):
            session.execute(text.encode())
        archive = dump(prepared_cluster, tmp_path / "dump", "-Fc")
        session.execute(f"revoke all on database {quoted(OLD)} from gone; drop role gone".encode())
    restored.execute_change(f"alter database {quoted(NEW)} connection limit 0")
    shown, done = perform(SET, restored, database=NEW, archive=archive, owner=False, closed=True)
    assert done.state == "ok" and "gone" in shown.text and "OWNER TO" not in shown.exact, (shown, done)
    assert "CONNECTION LIMIT" not in shown.exact and "REVOKE CONNECT" in shown.exact, shown.exact
