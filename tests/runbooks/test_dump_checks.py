"""The checks of `dump` and `dump-jobs`, compared with what pg_dump does on the oldest and newest server."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.runs.commands import command_environment, script_argv
from dba_console.core.errors import ConsoleError
from dba_console.demo.binaries import find_binaries
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.runbooks.library import SHIPPED
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.requirements import lacking, require_root
from tests.servers import MAJORS
from tests.standbys import copied_standby

MOMENT = "preconditions"
DUMPER = "dump 'er'"
"""No superuser, and short of patience by its own settings, which pg_dump sets aside for itself."""
SHOP = "the 'shop'"
PREPARED = "odd 'gid'"
ENDS = (MAJORS[0], MAJORS[-1])
"""What the catalogs between them have, one of these has: 15 to 17 were tried when this was written."""
_ROLE = f"""
create role "{DUMPER}" login in role pg_monitor;
alter role "{DUMPER}" set lock_timeout = '1ms';
alter role "{DUMPER}" set statement_timeout = '20s';
create role other
"""
_SHOP = f"""
create table "Items" (id int primary key, note text);
insert into "Items" select i, 'n' from generate_series(1, 10) i;
create sequence numbers;
create table parted (id int, day date) partition by range (day);
create table "parted 2026" partition of parted for values from ('2026-01-01') to ('2027-01-01');
create materialized view seen as select count(*) from "Items";
create table of_extension (id int);
create table marked (id int);
alter extension plpgsql add table of_extension;
alter extension plpgsql add table marked;
update pg_extension set extconfig = array['marked'::regclass::oid], extcondition = array[''] where extname = 'plpgsql';
grant usage on schema public to "{DUMPER}";
grant select on "Items", numbers, parted, "parted 2026", marked to "{DUMPER}"
"""


@pytest.fixture(scope="module", params=ENDS, ids=[f"pg{major}" for major in ENDS])
def shop(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings: dict[str, str | int] = {"max_prepared_transactions": 5, "autovacuum": "off"}
    with Cluster(binaries_of(request.param), settings=settings, durable=False) as made:
        made.psql(_ROLE)
        made.psql(f'create database "{SHOP}"')
        made.psql(_SHOP, dbname=SHOP)
        yield made


def run_check(
    cluster: Cluster, block: str, *, runbook: str = "dump", user: str = DUMPER, dsn: str = "", **run_as: str
) -> subprocess.CompletedProcess[str]:
    """A check of the document, run by bash as a run does it."""
    _, found = compile_text((SHIPPED / f"{runbook}.md").read_text(), runbook).block(block)
    env = command_environment(server_environment(dsn or cluster.dsn(user=user), read_only=True))
    env |= {"RB_database": SHOP, "RB_globals": "0", "RB_format": "directory", "RB_same_disk": "0", "RB_to": "/no/x"}
    env |= {name: value for name, value in run_as.items() if name.startswith("RB_")}
    return subprocess.run(
        script_argv(found.body), env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        user=run_as.get("owner"),
    )  # fmt: skip


def dump_error(cluster: Cluster, *how: str, user: str = DUMPER) -> str:
    """What pg_dump, of the server's version or later, stops with; empty where it comes to its end."""
    try:
        program = find_binaries(["pg_dump"], at_least=cluster.major).program("pg_dump")
    except ConsoleError as error:
        lacking(error.message)
    command = [str(program), *how, "-f", "/dev/null", "-d", cluster.dsn(user=user, dbname=SHOP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stderr if done.returncode else ""


def execute(cluster: Cluster, sql: str) -> None:
    cluster.psql(sql, dbname=SHOP)


LACKING = {
    "row security": (
        'alter table "Items" enable row level security', 'alter table "Items" disable row level security',
        'row security applies: public."Items"', "row-level security",
    ),
    "row security its owner is held to": (
        f'alter table "parted 2026" owner to "{DUMPER}"; alter table "parted 2026" enable row level security;'
        'alter table "parted 2026" force row level security',
        'alter table "parted 2026" disable row level security; alter table "parted 2026" no force row level security;'
        f'alter table "parted 2026" owner to postgres; grant select on "parted 2026" to "{DUMPER}"',
        'row security applies: public."parted 2026"', "row-level security",
    ),
    "row security of an extension's table": (
        "alter table marked enable row level security", "alter table marked disable row level security",
        "row security applies: public.marked", "row-level security",
    ),
    "a schema": (
        f'create schema "odd ""one"; create table "odd ""one".t (i int); grant select on "odd ""one".t to "{DUMPER}"',
        'drop schema "odd ""one" cascade',
        'no USAGE on the schema: "odd ""one".t', "permission denied for schema",
    ),
    "a table": (
        f'revoke select on "Items" from "{DUMPER}"', f'grant select on "Items" to "{DUMPER}"',
        'no SELECT: public."Items"', "permission denied for table",
    ),
    "a partitioned table": (
        f'revoke select on parted from "{DUMPER}"', f'grant select on parted to "{DUMPER}"',
        "no SELECT: public.parted", "permission denied for table",
    ),
    "an extension's table that is dumped": (
        f'revoke select on marked from "{DUMPER}"', f'grant select on marked to "{DUMPER}"',
        "no SELECT: public.marked", "permission denied for table",
    ),
    "a sequence": (
        f'revoke select on numbers from "{DUMPER}"', f'grant select on numbers to "{DUMPER}"',
        "no SELECT: public.numbers", "sequence",
    ),
    "a large object of somebody else": (
        "select lo_create(4711); alter large object 4711 owner to other", "select lo_unlink(4711)",
        "no SELECT on large objects: 1 of", "permission denied for large object",
    ),
    "a large object its owner may not read": (
        f'select lo_create(4711); alter large object 4711 owner to "{DUMPER}";'
        f'revoke all on large object 4711 from "{DUMPER}"',
        "select lo_unlink(4711)",
        "no SELECT on large objects: 1 of", "permission denied for large object",
    ),
}  # fmt: skip
"""What is missing, its fix, the message of the check, the message of pg_dump."""
HEALTHY = {
    "nothing special": ("select 1", "select 1"),
    "row security of a partitioned table, which is not read itself": (
        "alter table parted enable row level security", "alter table parted disable row level security",
    ),
    "row security its owner is not held to": (
        f'alter table "Items" enable row level security; alter table "Items" owner to "{DUMPER}"',
        'alter table "Items" disable row level security; alter table "Items" owner to postgres;'
        f'grant select on "Items" to "{DUMPER}"',
    ),
    "a role that bypasses row security": (
        f'alter table "Items" enable row level security; alter role "{DUMPER}" bypassrls',
        f'alter table "Items" disable row level security; alter role "{DUMPER}" nobypassrls',
    ),
    "a role that may read all data": (
        f'revoke select on "Items" from "{DUMPER}"; create schema unused; create table unused.t (i int);'
        f'grant pg_read_all_data to "{DUMPER}"',
        f'grant select on "Items" to "{DUMPER}"; drop schema unused cascade; revoke pg_read_all_data from "{DUMPER}"',
    ),
    "large objects that are granted": (
        f'select lo_create(4711), lo_create(4712), lo_create(4713); alter large object 4712 owner to "{DUMPER}";'
        f'grant select on large object 4711 to public; grant other to "{DUMPER}";'
        "grant select on large object 4713 to other",
        f'select lo_unlink(4711), lo_unlink(4712), lo_unlink(4713); revoke other from "{DUMPER}"',
    ),
    "large objects as they were before 9.0": (
        f"select lo_create(4711); alter role \"{DUMPER}\" set lo_compat_privileges = on",
        f"select lo_unlink(4711); alter role \"{DUMPER}\" reset lo_compat_privileges",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LACKING)
def test_what_would_stop_pg_dump_is_named_before_it_starts(shop: Cluster, what: str) -> None:
    breaks, mends, message, stops = LACKING[what]
    execute(shop, breaks)
    try:
        assert stops in dump_error(shop), "pg_dump does not mind: the check has no reason to"
        done = run_check(shop, f"{MOMENT}/rights")
        assert done.returncode == 1 and message in done.stdout, done
    finally:
        execute(shop, mends)


@pytest.mark.parametrize("what", HEALTHY)
def test_what_pg_dump_can_dump_is_not_blocked(shop: Cluster, what: str) -> None:
    breaks, mends = HEALTHY[what]
    execute(shop, breaks)
    try:
        done = run_check(shop, f"{MOMENT}/rights")
        assert (done.returncode, dump_error(shop)) == (0, ""), done
    finally:
        execute(shop, mends)


def test_a_superuser_may_dump_everything(shop: Cluster) -> None:
    execute(shop, 'alter table "Items" enable row level security; select lo_create(4711)')
    execute(shop, "alter large object 4711 owner to other")
    try:
        assert (run_check(shop, f"{MOMENT}/rights", user="postgres").returncode, dump_error(shop, user="postgres")) == (
            0,
            "",
        )
    finally:
        execute(shop, 'alter table "Items" disable row level security; select lo_unlink(4711)')


def test_a_statement_the_server_rejects_fails_the_check(shop: Cluster) -> None:
    for block in ("rights", "locks", "disk"):
        done = run_check(shop, f"{MOMENT}/{block}", RB_database="no such database")
        assert done.returncode not in (0, 1) and "does not exist" in done.stderr, (block, done)


@pytest.mark.parametrize("runbook", ["dump", "dump-jobs"])
def test_a_prepared_transaction_that_locks_a_table_is_named(shop: Cluster, runbook: str) -> None:
    quoted = PREPARED.replace("'", "''")
    execute(shop, f"begin; lock table \"Items\" in access exclusive mode; prepare transaction '{quoted}'")
    try:
        assert "LOCK TABLE public" in dump_error(shop, "--lock-wait-timeout=100"), "pg_dump does not wait for it"
        done = run_check(shop, f"{MOMENT}/locks", runbook=runbook)
        assert done.returncode == 1, done
        assert re.match(
            rf'public."Items": held for 00:\S+ by prepared transaction \'{quoted}\' of postgres ', done.stdout
        )
    finally:
        execute(shop, f"rollback prepared '{quoted}'")
    assert run_check(shop, f"{MOMENT}/locks", runbook=runbook).returncode == 0


@pytest.mark.parametrize("runbook", ["dump", "dump-jobs"])
def test_a_lock_counts_only_on_dumped_objects(shop: Cluster, runbook: str) -> None:
    """`other` may not see since when: what is not known counts as long."""
    execute(shop, "alter role other login")
    with session(shop, dbname=SHOP) as one, session(shop, dbname=SHOP) as two:
        one.execute("begin")
        one.execute("create temp table scratch (i int)")
        one.execute("create table not_there_yet (i int)")
        assert run_check(shop, f"{MOMENT}/locks", runbook=runbook, user="other").returncode == 0
        one.execute('lock table "Items" in share row exclusive mode')
        assert run_check(shop, f"{MOMENT}/locks", runbook=runbook, user="other").returncode == 0, (
            "a dump goes on beside it"
        )
        two.execute("begin")
        two.execute("lock table parted in access exclusive mode")
        done = run_check(shop, f"{MOMENT}/locks", runbook=runbook, user="other")
        assert done.returncode == 1 and "public.parted: held for ? by process" in done.stdout, done
        two.execute("rollback")
        one.execute("rollback")
    execute(shop, "alter role other nologin")


def test_what_a_dump_will_not_contain_is_listed(shop: Cluster) -> None:
    execute(shop, "create subscription elsewhere connection 'dbname=nowhere' publication p with (connect = false)")
    try:
        listed = run_check(shop, "dump-it/left-out").stdout
        assert "1 subscriptions: only a superuser dumps them" in listed, listed
        assert "rows of 1 tables of extension plpgsql" in listed
        assert "roles, passwords, tablespaces" in listed and "pg_restore --create" in listed
        assert "subscriptions" not in run_check(shop, "dump-it/left-out", user="postgres").stdout
        assert "properties of the database: encoding" in run_check(shop, "dump-it/left-out", RB_format="plain").stdout
    finally:
        execute(shop, "alter subscription elsewhere set (slot_name = none); drop subscription elsewhere")


def test_the_compression_is_queried_from_pg_dump_itself_which_may_be_a_script(shop: Cluster, tmp_path: Path) -> None:
    """As Debian's /usr/bin/pg_dump is one."""
    program = find_binaries(["pg_dump"], at_least=shop.major).program("pg_dump")
    script_of = tmp_path / "pg_dump"
    script_of.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    script_of.chmod(0o755)
    done = run_check(shop, "how-it-will-be-done/run-3", RB_compression="auto", RB_programs=str(tmp_path))
    assert done.returncode == 0 and done.stderr == "", done
    how = done.stdout.strip()
    assert how in ({"1"} if shop.major < 16 else {"zstd:1", "gzip:1"})
    assert dump_error(shop, "--no-sync", "--format=custom", f"--compress={how}") == ""
    without = tmp_path / "without"
    without.mkdir()
    (without / "pg_dump").write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "pg_dump (PostgreSQL) 18.1" ;;\n'
        '*) echo "pg_dump: error: this build does not support compression with ZSTD" >&2; exit 1 ;; esac\n'
    )
    (without / "pg_dump").chmod(0o755)
    done = run_check(shop, "how-it-will-be-done/run-3", RB_compression="auto", RB_programs=str(without))
    assert (done.returncode, done.stdout) == (0, "gzip:1\n"), done


def test_a_disk_that_cannot_be_checked_is_not_mistaken_for_another_one(disk_directory: Path) -> None:
    require_root()
    with Cluster(settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        cluster.psql("create role reader login password 'r' in role pg_monitor")
        cluster.psql(f'create database "{SHOP}"')
        dsn = f"host=127.0.0.1 port={cluster.port} user=reader password=r dbname=postgres"
        done = run_check(cluster, f"{MOMENT}/disk", dsn=dsn, owner="nobody", RB_to="/proc/x")
        assert done.returncode == 1 and "on a disk the server writes to: not known" in done.stdout, done
        meant = run_check(cluster, f"{MOMENT}/disk", dsn=dsn, owner="nobody", RB_to="/proc/x", RB_same_disk="1")
        assert meant.returncode == 0
        away = run_check(cluster, f"{MOMENT}/disk", dsn=dsn, RB_to="/proc/x")
        assert away.returncode == 0 and "on a disk the server writes to: no\n" in away.stdout, away
        place = disk_directory / "odd space"
        place.mkdir()
        cluster.account.chown(place)
        disk_directory.chmod(0o711)  # the server's user passes through
        cluster.psql(f"create tablespace elsewhere location '{place}'")
        beside = run_check(cluster, f"{MOMENT}/disk", dsn=dsn, RB_to=f"{place}/x")
        assert beside.returncode == 1 and f"on the same disk: {place}\n" in beside.stdout, beside


def test_a_standby_is_dumped_if_replay_waits_for_the_dump_or_is_paused() -> None:
    _, found = compile_text((SHIPPED / "dump.md").read_text(), "dump").block(f"{MOMENT}/standby")

    def replay_does_not_conflict(cluster: Cluster) -> bool:
        return cluster.psql(found.body).startswith("t|")

    def delays(streaming: str, archive: str) -> None:
        with session(standby) as asking:
            standby.reload({"max_standby_streaming_delay": streaming, "max_standby_archive_delay": archive})
            now = "select setting from pg_settings where name ~ '^max_standby_.*_delay' order by name"
            wanted = [(f"{given.removesuffix('s')}000" if given != "-1" else given,) for given in (archive, streaming)]
            wait_until(lambda: asking.execute(now).fetchall() == wanted, what="the new delays")

    with Cluster(durable=False) as primary, copied_standby(primary) as standby:
        assert replay_does_not_conflict(primary)
        assert not replay_does_not_conflict(standby)
        delays("-1", "30s")
        assert not replay_does_not_conflict(standby), "WAL that does not come by streaming counts by another delay"
        delays("-1", "-1")
        assert replay_does_not_conflict(standby)
        delays("30s", "30s")
        standby.psql("select pg_wal_replay_pause()")
        assert replay_does_not_conflict(standby)
