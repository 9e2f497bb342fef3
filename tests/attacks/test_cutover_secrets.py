"""A whole cutover of a cluster whose nodes and pooler have passwords, with hostile names, in a hostile database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
from psycopg import sql

from dba_console.demo.practice_cluster import PracticeCluster
from tests.attacks.hostile_database import VICTIM, calls, make_hostile
from tests.cli.console import own_console
from tests.cluster.test_cutover import HOLD, PROMOTE, connection_limits, primary, run_cutover, wait_for_client_commit
from tests.processes import shown_by_processes
from tests.requirements import require_tool

DATABASES = ('a"b', "it's; drop table x --", "line\nbreak", "%s %(n)s {to}", "\x1b[2J\x07", "-rf", "*")
SECRETS = {"db1": "Zq1hush", "db2": "Zq2hush", "db3": "Zq3hush", "pool": "Zq4hush", "rep": "Zq5hush", "hook": "Zq6hush"}


def _with_dsn(dsn: str, found: re.Match[str]) -> str:
    return found[1] + json.dumps(dsn)


@pytest.fixture
def hostile_practice() -> Iterator[PracticeCluster]:
    """A cluster whose nodes and pooler have passwords, with hostile names, in a database that is hostile as well."""
    require_tool("pgbouncer")
    with PracticeCluster() as ground:
        db1 = ground.nodes["db1"]
        make_hostile(db1)
        with psycopg.connect(db1.dsn(), autocommit=True) as owner:
            for name in DATABASES:
                owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        for name in ("db2", "db3"):
            with psycopg.connect(ground.nodes[name].dsn(), autocommit=True) as connection:
                [[given]] = connection.execute("show primary_conninfo")
                connection.execute(
                    sql.SQL("alter system set primary_conninfo = {}").format(f"{given} password={SECRETS['rep']}")
                )
                connection.execute("select pg_reload_conf()")
        text = ground.config_file.read_text()
        for name in ("db1", "db2", "db3"):
            dsn = ground.nodes[name].dsn(user=VICTIM, dbname="postgres", password=SECRETS[name])
            text = re.sub(rf"(nodes\.{name}\]\ndsn = ).*", partial(_with_dsn, dsn), text)
        text = re.sub(r'(poolers\..*\]\ndsn = ".*)"', rf'\1 password={SECRETS["pool"]}"', text)
        text += f'\n[clusters.demo.hooks.cron]\nrun = ["true", "--password={SECRETS["hook"]}"]\n'
        assert all(word in text for name, word in SECRETS.items() if name != "rep"), text
        ground.config_file.write_text(text)
        yield ground


@pytest.mark.xdist_group("cutover")
def test_a_cutover_with_hostile_names_in_a_hostile_database_leaks_no_secret(hostile_practice: PracticeCluster) -> None:
    hidden = {name: word for name, word in SECRETS.items() if name != "hook"}
    with own_console() as console, console.watching(hostile_practice.dsn, **hostile_practice.environment):
        with shown_by_processes(hidden.values()) as shown:
            done = run_cutover(console, hostile_practice, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
        assert done.code == 0, done
        assert not shown
        assert primary(hostile_practice) == ["db2"] and connection_limits(hostile_practice, "db2") == {-1}
        wait_for_client_commit(hostile_practice)
        kept = [path for path in console.home.rglob("*") if path.is_file()]
        assert any(path.name == "cutover.json" for path in kept)
        for word in SECRETS.values():
            assert word not in done.out + done.err
            assert [path for path in kept if word.encode() in path.read_bytes()] == []
    with psycopg.connect(hostile_practice.nodes["db2"].dsn(user=VICTIM, dbname="postgres")) as connection:
        connection.execute("select pg_is_in_recovery()")
    assert [len(calls(hostile_practice.nodes[name])) for name in ("db1", "db2")] == [0, 1], (
        "the one here, and none of ours"
    )
