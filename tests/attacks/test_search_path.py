"""The owner of a database has functions earlier in search_path than PostgreSQL's: the console calls none of them.

What is called runs with the rights of whoever looks, who may be a superuser.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dba_console
from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.registry import ACTIONS
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection, perform, settle_action
from tests.actions.test_signal_backend import session_names
from tests.attacks.hostile_database import SQL, calls
from tests.background import session
from tests.cli.console import BUSY_HOST, Console
from tests.clusters import binaries_of
from tests.postgres.pgbouncer import running_pgbouncer
from tests.sql import query

DATABASE = "shop"
OWNER = "owner"
SHIPPED = Path(dba_console.__file__).parent / "runbooks" / "documents"
LIMIT_S = 120.0
PANELS = ("connections", "io", "memory", "safety", "progress", "locks", "replication", "disks", "sessions")


RUNBOOK = """# Changed

A check, a change and a command.

```toml {runbook}
id = "book"
needs = ["server", "psql"]
```

## Look

```sql {check}
select count(*) = 1000 from public.orders where note = note
```

```sh {check}
test "$(psql -XAtc "select length('abc')")" = 3
```

## Act

```sql {change confirm=ack}
update public.orders set note = 'changed' where id = 2
```
"""


@pytest.fixture(scope="module")
def hostile() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), settings={"autovacuum": "off"}, durable=False) as cluster:
        query(cluster, f"create role {OWNER} login")
        query(cluster, f"create database {DATABASE} owner {OWNER}")
        with psycopg.connect(cluster.dsn(dbname=DATABASE, user=OWNER), autocommit=True) as owner:
            owner.execute(SQL)
            owner.execute("create table public.orders (id integer primary key, note text)")
            owner.execute("insert into public.orders select g, 'x' from generate_series(1, 1000) g")
            owner.execute(f"alter database {DATABASE} set search_path = evil, pg_catalog, public")
        yield cluster


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path)
    made.write_config(BUSY_HOST)
    yield made
    for agent in made.run("attach", "--list", "--json", timeout=LIMIT_S).objects():
        os.kill(agent["pid"], signal.SIGTERM)


def test_the_hostile_database_harms_an_unprotected_client(hostile: Cluster) -> None:
    before = len(calls(hostile))
    with psycopg.connect(hostile.dsn(dbname=DATABASE)) as victim:
        victim.execute("select length('x'), 1::text from pg_class where relname = 'pg_class' limit 1")
    found = calls(hostile)[before:]
    assert {"function length", "operator name = name", "view pg_class", "type text"} <= set(found)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "DSN"),
    *(("show", panel, "DSN", "--json") for panel in PANELS),
    ("check", "DSN", "--watch", "4s"),
    ("doctor", "DSN"),
    ("findings", "list", "DSN"),
    ("record", "DSN", "--for", "4s"),
    ("dumps", "estimate", "DSN"),
    ("dumps", "sweep", "DSN", "-j", "1", "--to", "PLACE"),
    ("cluster", "show", "theirs"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_no_command_calls_code_of_the_owner(
    command: tuple[str, ...], hostile: Cluster, console: Console, tmp_path: Path
) -> None:
    before = len(calls(hostile))
    given = {"DSN": hostile.dsn(dbname=DATABASE), "PLACE": str(tmp_path)}
    console.write_config(f'[clusters.theirs.nodes.db1]\ndsn = "{given["DSN"]}"\n')
    done = console.run(*(given.get(word, word) for word in command), timeout=LIMIT_S)
    assert "Traceback" not in done.err and done.code in (0, 1, 2), done
    assert calls(hostile)[before:] == []


@pytest.mark.parametrize("book", sorted(path.stem for path in SHIPPED.glob("*.md")))
def test_no_shipped_runbook_calls_code_of_the_owner_in_a_rehearsal(
    book: str, hostile: Cluster, console: Console
) -> None:
    before = len(calls(hostile))
    done = console.run("runbook", "rehearse", book, "--dsn", hostile.dsn(dbname=DATABASE), timeout=LIMIT_S)
    assert "Traceback" not in done.err and "not shipped" not in done.out, done
    assert calls(hostile)[before:] == []


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_through_a_pooler_no_code_of_the_owner_is_called_either(mode: str, hostile: Cluster, console: Console) -> None:
    with running_pgbouncer(hostile, mode, admin=False, dbname=DATABASE) as dsn:
        before = len(calls(hostile))
        console.write_config(f'[clusters.theirs.nodes.db1]\ndsn = "{dsn}"\n')
        for command in (
            ("show", dsn, "--json"), ("doctor", dsn), ("dumps", "estimate", dsn), ("cluster", "show", "theirs")
        ):  # fmt: skip
            done = console.run(*command, timeout=LIMIT_S)
            assert done.code == 0, done
        with closing(ActingConnection(dsn)) as link:
            assert link.rows("select length('abc') = 3 as same, note::text from public.orders limit 1") == [
                {"same": True, "note": "x"}
            ]
            assert link.execute_change("update public.orders set note = upper(note) where id = 1").count == 1
        assert calls(hostile)[before:] == []


def test_no_action_calls_code_of_the_owner(hostile: Cluster) -> None:
    before = len(calls(hostile))
    with acting_connection(hostile, dbname=DATABASE) as link, session(hostile, name="victim") as victim:
        link.execute_change("update public.orders set note = lower(note) where id = 1")
        asked: dict[str, dict[str, Any]] = {
            "set-parameters": {"parameter": "work_mem", "value": "5MB"},
            "vacuum": {"table": "public.orders"},
            "signal-backend": {
                "verb": "terminate",
                "rows": session_names(link, victim.info.backend_pid),
                "wait": "60s",
            },
        }
        for name, settings in asked.items():
            action_preview, done = perform(ACTIONS[name], link, **settings)
            assert done.state == "ok", done.text
            assert settle_action(ACTIONS[name], link, action_preview, **settings).state == "ok"
        link.execute_change("alter system reset all", transaction=False)
    assert calls(hostile)[before:] == []


def test_unqualified_names_in_a_document_mean_pg_catalog(hostile: Cluster, console: Console) -> None:
    before = len(calls(hostile))
    console.write_config(BUSY_HOST)
    book = console.home / "book.md"
    book.write_text(RUNBOOK)
    done = console.run(
        "runbook", "run", str(book), "--dsn", hostile.dsn(dbname=DATABASE), "--yes", "--plain", timeout=LIMIT_S
    )
    assert done.code == 0, done
    assert calls(hostile)[before:] == []
    changed = "select note from public.orders where id operator(pg_catalog.=) 2"
    assert query(hostile, changed, dbname=DATABASE) == "changed"


def test_there_is_one_way_to_open_a_connection() -> None:
    package = Path(dba_console.__file__).parent
    opening = re.compile(r"psycopg\.connect|Connection\.connect\(|connect_start|PGconn\.connect\(")
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if opening.search(path.read_text())}
    # The ledger is an application on the practice cluster, and no connection of the console.
    assert found - {"demo/ledger.py"} == {"watch/probes/postgres/connect.py"}
