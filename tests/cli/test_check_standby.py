"""`check` without an agent on standbys: nothing wrong passes as OK because it was not watched for long enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import session
from tests.cli.console import BUSY_HOST, Console
from tests.clusters import binaries_of
from tests.sql import query, wait_for
from tests.standbys import copied_standby

LAGGING = (
    BUSY_HOST
    + """
[findings.wal]
lag_bytes = 1048576
lag_bytes_s = 0.0
"""
)
BEHIND = "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) >= 2097152"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its streaming standby, whose replay waits for whoever reads."""
    with Cluster(binaries_of(None), durable=False) as primary, copied_standby(primary) as standby:
        query(primary, "create table t as select 1 as n")
        standby.restart({"max_standby_streaming_delay": "-1"})
        yield primary, standby


@contextmanager
def lagging(primary: Cluster, standby: Cluster) -> Iterator[None]:
    """Replay stands behind a reader, without being paused."""
    wait_for(standby, "select to_regclass('public.t')", what="the table on the standby")
    with session(standby, name="reader") as reader:
        reader.execute("begin")
        reader.execute("select * from public.t")
        query(primary, "alter table public.t add column if not exists m int")
        query(primary, "select pg_logical_emit_message(false, 'test', repeat('x', 4194304))")
        wait_for(standby, BEHIND, what="a standby that is behind")
        yield


def test_a_lagging_standby_is_watched_until_the_verdict_is_certain(
    console: Console, pair: tuple[Cluster, Cluster]
) -> None:
    primary, standby = pair
    console.write_config(LAGGING)
    with lagging(primary, standby):
        done = console.run("check", standby.dsn())
        short = console.run("check", "--watch", "1s", standby.dsn())
        listed = console.run("findings", "list", "--watch", "1s", standby.dsn())
    assert (done.code, "[replication-lag, runbook standby-lag]" in done.out.splitlines()[0]) == (1, True), (
        done.out + done.err
    )
    assert short.code == 3
    assert short.out.startswith("DBACONSOLE UNKNOWN - undecided after ")
    assert "replication-lag must last" in short.out.splitlines()[0]
    assert "undecided: replication-lag" in listed.out


def test_a_healthy_standby_is_ok_and_unevaluated_rules_are_named(
    console: Console, pair: tuple[Cluster, Cluster]
) -> None:
    primary, standby = pair
    wait_for(primary, "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
    console.write_config(LAGGING)
    done = console.run("check", standby.dsn())
    assert done.code == 0, done.out + done.err
    assert "; not evaluated in " in done.out.splitlines()[0]
    assert "standby-gone" in done.out.splitlines()[0]


def test_a_standby_that_receives_nothing_is_never_ok(console: Console, pair: tuple[Cluster, Cluster]) -> None:
    primary, standby = pair
    console.write_config(LAGGING)
    standby.reload({"primary_conninfo": "host=/nowhere"})
    try:
        wait_for(standby, "select not exists (select from pg_stat_wal_receiver)", what="the receiver to end")
        done = console.run("check", standby.dsn())
    finally:
        standby.reload({"primary_conninfo": primary.dsn()})
    assert done.code in (1, 3), done.out + done.err
    assert "wal-receiver-down" in done.out.splitlines()[0]


def test_a_nonexistent_role_is_a_warning_in_word_code_and_numbers(
    console: Console, pair: tuple[Cluster, Cluster]
) -> None:
    primary, _ = pair
    console.write_config(BUSY_HOST)
    done = console.run("check", primary.dsn(user="nobody_at_all"))
    first = done.out.splitlines()[0]
    assert (done.code, first.split(" - ")[0]) == (1, "DBACONSOLE WARNING"), done.out
    assert "warning: PostgreSQL refuses the console" in first
    assert "critical=0 warning=1" in first
    assert "?" not in done.out
