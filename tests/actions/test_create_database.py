"""create-database: a database made like another one, in everything that is not in its dump."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.create_database import read_definition
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.cluster import Cluster
from tests.actions.connections import acting, look, perform, settled, undone
from tests.attacks.hostile_database import VICTIM, besiege, calls
from tests.clusters import binaries_of
from tests.sql import query
from tests.standbys import copied_standby

MAKE = ACTIONS["create-database"]
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


def looks(cluster: Cluster, name: str) -> tuple[object, ...]:
    """All that belongs to the database itself."""
    with psycopg.connect(cluster.dsn()) as session:
        found = session.execute(_LOOKS, [name]).fetchone()
    assert found is not None
    return found


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def old_one(cluster: Cluster, *how: str) -> None:
    """The database that is to be made once more."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as session:
        session.execute(f"create database {quoted(OLD)} template template0 {' '.join(how)}".encode())
        for text in _GIVEN:
            session.execute(text.format(quoted(OLD)).encode())


@pytest.fixture(scope="module")
def ready() -> Iterator[Cluster]:
    """A cluster with the old database in another tablespace; nothing of a hostile owner is called."""
    with Cluster(binaries_of(None), durable=False) as cluster:
        besiege(cluster)
        space = cluster.base / "space"
        space.mkdir()
        owner = cluster.data_directory.stat()
        os.chown(space, owner.st_uid, owner.st_gid)
        with psycopg.connect(cluster.dsn(), autocommit=True) as session:
            session.execute(_ROLES)
            session.execute(f"create tablespace \"an other\" location '{space}'".encode())
        old_one(cluster, "encoding 'LATIN1' locale 'C' tablespace \"an other\"")
        yield cluster
        assert calls(cluster) == []


@pytest.fixture
def link(ready: Cluster) -> Iterator[ActingConnection]:
    with acting(ready, user=VICTIM) as link:
        yield link
        link.execute_change(f"drop database if exists {quoted(NEW)}", transaction=False)


def test_it_matches_the_original_in_everything_a_dump_does_not_contain(ready: Cluster, link: ActingConnection) -> None:
    link.execute_change(f"alter database {quoted(OLD)} is_template false")
    action_preview, done = perform(MAKE, link, database=NEW, like=OLD)
    assert done.state == "ok", done.text
    assert looks(ready, NEW) == looks(ready, OLD)
    assert (
        SECRET not in action_preview.exact
        and "work_mem" in action_preview.exact
        and "TEMPLATE template0" in action_preview.exact
    )
    assert look(MAKE, link, database=NEW, like=OLD).done
    assert settled(MAKE, link, action_preview, database=NEW, like=OLD).state == "ok"


def test_a_closed_database_admits_only_superusers_until_it_is_opened(ready: Cluster, link: ActingConnection) -> None:
    _, done = perform(MAKE, link, database=NEW, like=OLD, closed=True)
    assert done.state == "ok", done.text
    with pytest.raises(psycopg.OperationalError, match="too many connections"):
        psycopg.connect(ready.dsn(user="the owner", dbname=NEW))
    psycopg.connect(ready.dsn(dbname=NEW)).close()
    action_preview, done = perform(MAKE, link, database=NEW, like=OLD)
    assert action_preview.exact.endswith("CONNECTION LIMIT 7") and action_preview.count == 1 and done.state == "ok"


def test_after_a_stop_it_continues_from_what_exists(link: ActingConnection, ready: Cluster) -> None:
    asked = parse_settings(MAKE.name, {"database": NEW, "like": OLD})
    action_preview = MAKE.preview(asked, ActionContext(connection=link))
    done = MAKE.act(asked, action_preview, ActionContext(connection=link), PlainControl(stop=lambda: True))
    assert done.state == "stopped" and done.undo is not None, done.text
    found = settled(MAKE, link, action_preview, database=NEW, like=OLD)
    assert found.state == "failed" and found.again, found.text
    again, done = perform(MAKE, link, database=NEW, like=OLD)
    assert "CREATE DATABASE" not in again.exact and done.state == "ok", done.text
    assert looks(ready, NEW) == looks(ready, OLD)


def test_its_undo_drops_the_created_database_and_no_other_of_that_name(link: ActingConnection, ready: Cluster) -> None:
    _, done = perform(MAKE, link, database=NEW, like=OLD)
    link.execute_change(f"alter database {quoted(NEW)} rename to elsewhere")
    link.execute_change(f"create database {quoted(NEW)}", transaction=False)
    assert undone(MAKE, link, done, database=NEW, like=OLD).state == "failed"
    link.execute_change(f"drop database {quoted(NEW)}", transaction=False)
    link.execute_change(f"alter database elsewhere rename to {quoted(NEW)}")
    assert undone(MAKE, link, done, database=NEW, like=OLD).state == "ok"
    assert query(ready, "select count(*) from pg_database where datname ~ 'new'") == "0"


def test_what_can_no_longer_be_changed_is_refused(link: ActingConnection, ready: Cluster) -> None:
    link.execute_change(f"create database {quoted(NEW)} template template0 encoding 'UTF8'", transaction=False)
    told = look(MAKE, link, database=NEW, like=OLD).refusal
    assert told is not None and "encoding, tablespace cannot be changed" in told, told
    assert look(MAKE, link, database=NEW).done, "nothing it is to be like: it is there"
    assert "database gone, to copy" in str(look(MAKE, link, database="x", like="gone").refusal)


def test_a_role_without_createdb_is_refused_and_one_with_it_creates_its_own(ready: Cluster) -> None:
    with acting(ready, user="plain") as link:
        assert "may not create databases" in str(look(MAKE, link, database=NEW).refusal)
    with acting(ready, user="makes") as link:
        _, done = perform(MAKE, link, database="mine", dumped=" ENCODING = 'UTF8' LOCALE = 'C'", closed=True)
        assert done.state == "ok", done.text
        made = read_definition(link, "mine")
        assert made is not None and (made.encoding, made.lc_collate, made.owner) == ("UTF8", "C", "makes")
        assert made.connection_limit == -1, "it could not get in itself"
        assert undone(MAKE, link, done, database="mine").state == "ok"
        told = MAKE.act(
            settings := parse_settings(MAKE.name, {"database": NEW, "like": OLD}),
            MAKE.preview(settings, ActionContext(connection=link)),
            ActionContext(connection=link),
            PlainControl(),
        )
        assert told.state == "failed" and "CREATE DATABASE" in told.text, told.text


def test_on_a_standby_nothing_is_created() -> None:
    primary = Cluster(binaries_of(None), durable=False)
    with primary, copied_standby(primary) as standby, acting(standby) as link:
        assert "standby" in str(look(MAKE, link, database=NEW).refusal)


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
        with acting(server) as link:
            link.execute_change(
                f"create database looked_at template template0 encoding 'UTF8' {how}", transaction=False
            )
            link.execute_change("alter database looked_at set work_mem = '9MB'")
            try:
                _, done = perform(MAKE, link, database="like_it", like="looked_at")
                assert done.state == "ok", done.text
                assert looks(server, "like_it") == looks(server, "looked_at")
            finally:
                link.execute_change("drop database if exists like_it", transaction=False)
                link.execute_change("drop database looked_at", transaction=False)
