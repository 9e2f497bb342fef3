"""Two primaries, standbys that cannot follow, nodes and poolers that are not there: on real clusters."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from dba_console.clusters.cutover_mark import mark_statement, removal_statement
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.pooler_state import open_admin
from dba_console.clusters.subject.readings import CutoverMark
from dba_console.clusters.subject.rules import RULES
from dba_console.clusters.survey import survey
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig, Config, NodeConfig, PoolerConfig
from dba_console.demo.temporary_server import Cluster, make_standby
from dba_console.watch.frames.derive import derive
from dba_console.watch.probes.postgres.simple_query import simple_query
from tests.background import wait_until
from tests.clusters import FreshCluster, binaries_of
from tests.findings.collector import LocalAgent, local_agent
from tests.postgres.pgbouncer import running_pgbouncer
from tests.sql import query, wait_for
from tests.standbys import held_in_recovery

NAMES = tuple(rule.name for rule in RULES)
STREAMING = "select count(*) = {} from pg_stat_replication where state = 'streaming'"
Make = Callable[[int], list[Cluster]]


@pytest.fixture
def replicated() -> Iterator[Make]:
    """A primary and its standbys, each with a slot, all streaming."""
    with ExitStack() as around:

        def make(count: int) -> list[Cluster]:
            primary = around.enter_context(Cluster(binaries_of(None), durable=False))
            made = [primary]
            for number in range(2, count + 1):
                standby = make_standby(primary, slot=f"to_db{number}")
                around.callback(standby.close)
                standby.start()
                made.append(standby)
            wait_for(primary, STREAMING.format(count - 1))
            return made

        yield make


def configured(*clusters: Cluster, pooler: str | None = None) -> Config:
    nodes = {f"db{number}": NodeConfig(dsn=cluster.dsn()) for number, cluster in enumerate(clusters, 1)}
    admin = None if pooler is None else pooler.replace("dbname=postgres", "dbname=pgbouncer")
    poolers = {} if admin is None else {"main": PoolerConfig(dsn=admin, databases=["postgres"])}
    return Config(clusters={"shop": ClusterConfig(nodes=nodes, poolers=poolers)})


def promote_standby(standby: Cluster) -> None:
    query(standby, "select pg_promote()")


def no_findings(agent: LocalAgent, *names: str) -> None:
    assert [row.text for name in names for row in agent.open(name)] == []


def test_a_standby_promoted_while_its_primary_runs_is_split_brain_within_five_seconds(replicated: Make) -> None:
    db1, db2, db3 = replicated(3)
    with (
        running_pgbouncer(db1, "transaction", admin=True) as pooled,
        client_of(pooled),
        local_agent(db1.dsn(), *NAMES, config=configured(db1, db2, db3, pooler=pooled)) as agent,
    ):
        no_findings(agent, *NAMES)
        promote_standby(db2)
        found = agent.until("split-brain", severity="critical", within_s=5)
        assert found.runbook == "split-brain"
        assert found.text.startswith("Split brain in shop: db1 and db2 both answer as primary of system identifier")
        assert "db1 on timeline 1 at 0/" in found.text and "db2 on timeline 2 at 0/" in found.text
        assert "standby db3 is on timeline 1" in found.text
        assert "clients of pooler main (postgres) are routed to db1" in found.text
        assert "started again" not in found.text
        query(db1, "create table only_here ()")
        wait_until(lambda: query(db3, "select 1 from pg_class where relname = 'only_here'"))
        no_findings(agent, "dead-timeline")
        db1.stop()
        dead = agent.until("dead-timeline", severity="critical", within_s=5)
    assert (dead.subject, dead.runbook) == ("db3", "standby-rebuild")
    assert "that timeline ended at 0/" in dead.text


def test_a_cutover_is_not_split_brain_and_a_restarted_old_primary_is(replicated: Make) -> None:
    db1, db2 = replicated(2)
    with local_agent(db2.dsn(), *NAMES, config=configured(db1, db2)) as agent:
        for cluster in (db1, db2):
            wait_for(cluster, "select 1 from pg_stat_activity where application_name = 'dba-console'")
        db1.stop()
        promote_standby(db2)
        agent.tick(5)
        no_findings(agent, *NAMES)
        assert agent.until("node-unreachable", within_s=20).severity == "warning"
        db1.start()
        found = agent.until("split-brain", within_s=5)
        assert "db1 is an old primary that was started again" in found.text
        db1.stop()
        agent.until_gone("split-brain", within_s=20)


def test_primaries_of_two_clusters_under_one_name_are_not_split_brain(
    cluster: Cluster, fresh_cluster: FreshCluster
) -> None:
    with local_agent(cluster.dsn(), *NAMES, config=configured(cluster, fresh_cluster())) as agent:
        agent.tick(10)
        no_findings(agent, *NAMES)


def test_two_names_of_one_server_are_not_split_brain(cluster: Cluster) -> None:
    with local_agent(cluster.dsn(), *NAMES, config=configured(cluster, cluster)) as agent:
        agent.tick(6)
        no_findings(agent, *NAMES)
        [text] = derive(agent.picture, agent.history).cluster.differences
    assert text == "db2 and db1 are the same server"


def test_a_standby_that_stays_behind_on_the_old_timeline_is_a_warning_until_it_follows(replicated: Make) -> None:
    db1, db2, db3 = replicated(3)
    with local_agent(db2.dsn(), "dead-timeline", config=configured(db1, db2, db3)) as agent:
        db1.stop()
        promote_standby(db2)
        agent.tick(5)
        no_findings(agent, "dead-timeline")
        found = agent.until("dead-timeline", within_s=20)
        assert (found.severity, found.subject) == ("warning", "db3") and "it does not follow" in found.text
        query(db3, f"alter system set primary_conninfo = '{db2.dsn().replace(chr(39), chr(39) * 2)}'")
        query(db3, "alter system set primary_slot_name = ''")
        query(db3, "select pg_reload_conf()")
        wait_for(db2, STREAMING.format(1))
        agent.until_gone("dead-timeline", within_s=30)


def test_a_cluster_without_a_primary_is_critical_with_what_each_standby_has(replicated: Make) -> None:
    db1, db2 = replicated(2)
    with local_agent(db2.dsn(), *NAMES, config=configured(db1, db2)) as agent:
        db1.stop()
        agent.tick(5)
        no_findings(agent, *NAMES)
        found = agent.until("no-primary", severity="critical", within_s=20)
        offered = (found.evidence["cluster"], found.evidence["to"])
        assert offered == ("shop", "db2"), "as the inputs of its runbook"
        assert found.text.startswith("No node of shop is primary; db1 was primary, at 0/")
        assert "standby db2 has received up to 0/" in found.text and found.runbook == "failover"
        db1.start()
        agent.until_gone("no-primary", within_s=10)


def test_a_primary_that_recovers_from_a_crash_is_waited_for(replicated: Make) -> None:
    db1, db2 = replicated(2)
    with local_agent(db2.dsn(), *NAMES, config=configured(db1, db2)) as agent:
        agent.tick(2)
        with held_in_recovery(db1):
            found = agent.until("no-primary", severity="critical", within_s=40)
        assert (found.advice or "").startswith("db1 is recovering from a crash, or starting: wait")


def test_a_primary_only_this_host_cannot_reach_is_not_reported_as_gone(replicated: Make) -> None:
    db1, db2 = replicated(2)
    unreached = configured(db1, db2)
    unreached.clusters["shop"].nodes["db1"] = NodeConfig(dsn="host=127.0.0.1 port=1")
    with local_agent(db2.dsn(), *NAMES, config=unreached) as agent:
        assert agent.until("node-unreachable", within_s=20).subject == "db1"
        agent.tick(10)
        no_findings(agent, "no-primary")


def test_a_pooler_left_paused_is_a_warning_with_its_duration(cluster: Cluster) -> None:
    with (
        running_pgbouncer(cluster, "transaction", admin=True) as pooled,
        client_of(pooled),
        local_agent(cluster.dsn(), *NAMES, config=configured(cluster, pooler=pooled)) as agent,
    ):
        admin(pooled, b"PAUSE postgres")
        agent.tick(50)
        no_findings(agent, "pooler-paused")
        found = agent.until("pooler-paused", within_s=15)
        assert found.severity == "warning" and "Pooler main has had postgres paused for" in found.text
        admin(pooled, b"RESUME postgres")
        agent.until_gone("pooler-paused", within_s=5)


def test_clients_that_a_cutover_holds_are_critical_with_its_operator_and_the_command_that_releases_them(
    cluster: Cluster,
) -> None:
    mark = CutoverMark(
        run="20261124T1-cutover", host="console-host", operator="mara", cluster="shop", kind="cutover", old="db1",
        to="db2", system_identifier="7", role="postgres", begun_us=SYSTEM.wall_us() - 20_000_000, stage="held",
        held_since_us=SYSTEM.wall_us() - 5_000_000, limits={"shop": -1}, poolers={"main": ("shop",)},
    )  # fmt: skip
    query(cluster, mark_statement(mark))
    try:
        with local_agent(cluster.dsn(), *NAMES, config=configured(cluster)) as agent:
            agent.tick(2)
            no_findings(agent, "clients-held")
            found = agent.until("clients-held", within_s=20)
            assert found.severity == "critical" and "a cutover of shop from db1 to db2 by mara" in found.text, found
            assert "on console-host, `dba-console runbook resume 20261124T1-cutover`" in (found.advice or ""), found
            assert 'RESUME "shop"; ALTER DATABASE "shop" CONNECTION LIMIT -1' in (found.advice or ""), found
            query(cluster, removal_statement(mark))
            agent.until_gone("clients-held", within_s=5)
    finally:
        query(cluster, removal_statement(mark))


def test_a_standby_that_is_further_than_its_primary_differs_from_it(replicated: Make) -> None:
    """The primary is an older copy of itself, as after a restored snapshot of its disk."""
    primary, standby = replicated(2)
    primary.stop()
    older = primary.data_directory.with_name("older")
    shutil.copytree(primary.data_directory, older, symlinks=True)
    for path in [older, *older.rglob("*")]:
        primary.account.chown(path)
    primary.start()
    query(primary, "create table later as select generate_series(1, 1000)")
    wait_until(lambda: query(standby, "select count(*) from pg_tables where tablename = 'later'") == "1")
    with local_agent(primary.dsn(), *NAMES, config=(config := configured(primary, standby))) as agent:
        agent.tick(2)
        no_findings(agent, "standby-differs")
    assert survey("shop", config.clusters["shop"], SYSTEM).node("db2") is not None
    primary.stop("immediate")
    shutil.rmtree(primary.data_directory)
    older.rename(primary.data_directory)
    primary.start()
    with local_agent(primary.dsn(), *NAMES, config=config) as agent:
        found = agent.until("standby-differs", within_s=20)
        assert found.severity == "critical" and "Standby db2 has replayed up to 0/" in found.text, found
        now = survey("shop", config.clusters["shop"], SYSTEM, to="db2")
        checks = {one.id: one for one in cutover_readiness(now, "db2")}
        assert checks["differs.db2"].state == "failed", checks


@contextmanager
def client_of(pooled: str) -> Iterator[None]:
    """A client of the pooler: without one PgBouncer does not list a database that its configuration does not name."""
    with psycopg.connect(pooled, autocommit=True) as client:
        client.execute("select 1")
        yield


def admin(pooled: str, command: bytes) -> None:
    connection = open_admin(PoolerConfig(dsn=pooled.replace("dbname=postgres", "dbname=pgbouncer")), SYSTEM)
    simple_query(connection, command, 10.0, SYSTEM)
    connection.finish()
