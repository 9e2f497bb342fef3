"""`dba-console cluster check --failover`: the evidence about the primary, and what its standby lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.cli.cluster_pair import TO_DB2, Pair, cluster_checks, set_value, wait_until_streaming
from tests.cli.console import Console
from tests.sql import query, wait_for
from tests.standbys import held_in_recovery

pytestmark = pytest.mark.xdist_group("cluster")
FAILOVER = (*TO_DB2, "--failover")


@pytest.fixture(scope="module")
def third_cluster(pair: Pair) -> Iterator[Cluster]:
    standby = make_standby(pair.primary)
    try:
        standby.start()
        wait_until_streaming(pair.primary, 2)
        yield standby
    finally:
        standby.close()


@contextmanager
def killed_primary(pair: Pair) -> Iterator[None]:
    """The primary is killed, and no standby has a connection to it any more."""
    pair.primary.kill()
    try:
        wait_until(lambda: not query(pair.standby, "select 1 from pg_stat_wal_receiver"))
        yield
    finally:
        pair.primary.start()
        wait_until_streaming(pair.primary)


def test_a_primary_that_answers_is_never_failed_over(shop: Console) -> None:
    found = cluster_checks(shop, ready=False, command=FAILOVER)
    assert "db1 answers as the primary at 0/" in found["primary"]["text"]
    assert found["primary"]["fix"].endswith("run cutover --input cluster=shop --input to=db2")


def test_a_dead_primary_is_proved_from_this_host_and_from_the_standby(shop: Console, pair: Pair) -> None:
    assert shop.run("cluster", "show", "shop").code == 0
    with killed_primary(pair):
        found = cluster_checks(shop, ready=True, command=FAILOVER)
        plain = shop.run(*FAILOVER)
    assert found["primary"]["state"] == "ok" and "no server answers at the address of db1" in found["primary"]["text"]
    assert found["view.db2"]["text"] == "db2 receives no WAL: its WAL receiver has no connection"
    assert re.search(r"db1 was last seen [^ ]+ ago, at 0/", found["loss"]["text"]), found
    assert plain.out.startswith("READY for a failover of shop to db2"), plain


def test_the_loss_of_the_standby_is_a_number_and_a_standby_that_has_it_is_named(
    shop: Console, pair: Pair, third_cluster: Cluster
) -> None:
    upstream = query(pair.standby, "show primary_conninfo").replace("'", "''")
    set_value(pair.standby, "primary_conninfo", "")
    try:
        query(pair.primary, "create table lost as select generate_series(1, 1000)")
        wait_for_same(pair.primary, third_cluster)
        shop.run("cluster", "show", "shop")
        with killed_primary(pair):
            alone = cluster_checks(shop, ready=True, command=FAILOVER)
            shop.write_config(pair.configured(f'[clusters.shop.nodes.db3]\ndsn = "{third_cluster.dsn()}"'))
            found = cluster_checks(shop, ready=False, command=FAILOVER)
            wait_until(lambda: not query(third_cluster, "select 1 from pg_stat_wal_receiver"))
            other = cluster_checks(shop, ready=True, command=("cluster", "check", "shop", "--to", "db3", "--failover"))
    finally:
        set_value(pair.standby, "primary_conninfo", upstream)
        wait_until_streaming(pair.primary, 2)
    assert alone["loss"]["state"] == "warning" and re.search(r"db2 lacks \d{5,} bytes", alone["loss"]["text"])
    assert found["ahead"]["fix"] == "fail over to db3" and "more WAL than db2" in found["ahead"]["text"]
    assert "db3 lacks 0 bytes" in other["loss"]["text"] or other["loss"]["text"].startswith("db3 has all WAL up to 0/")


def test_a_standby_that_still_receives_from_the_primary_disproves_its_death(shop: Console, pair: Pair) -> None:
    """As after a cut between this host and the primary alone."""
    shop.write_config(pair.configured().replace(f"port={pair.primary.port}", "port=1"))
    query(pair.primary, "select pg_switch_wal()")  # a message to the standby
    found = cluster_checks(shop, ready=False, command=FAILOVER)
    assert found["view.db2"]["state"] == "failed" and "the primary was running then" in found["view.db2"]["breaks"]


def test_a_standby_connected_to_a_silent_primary_is_unknown_with_the_time_until_it_closes(
    shop: Console, pair: Pair
) -> None:
    age = "select date_part('epoch', clock_timestamp() - last_msg_receipt_time) > 5 from pg_stat_wal_receiver"
    pair.primary.sigstop()
    try:
        wait_until(lambda: query(pair.standby, age) == "t", what="silence")
        found = cluster_checks(shop, ready=False, command=FAILOVER)
    finally:
        pair.primary.sigcont()
    assert found["view.db2"]["state"] == "unknown", found
    assert re.search(r"^wait: db2 closes a silent connection in 5\d", found["view.db2"]["fix"]), found
    assert found["primary"]["text"].startswith("db1 does not answer (time-out)"), found


def test_a_standby_with_lower_settings_than_its_wal_requires_is_not_ready_and_is_not_told_to_resume(
    shop: Console, pair: Pair
) -> None:
    set_value_at_start(pair.primary, "max_connections", "150")
    try:
        wait_until(lambda: query(pair.standby, "select pg_is_wal_replay_paused()") == "t", what="the pause")
        pair.primary.kill()
        wait_until(lambda: not query(pair.standby, "select 1 from pg_stat_wal_receiver"))
        found = cluster_checks(shop, ready=False, command=FAILOVER)["promotable"]
    finally:
        set_value_at_start(pair.standby, "max_connections", "150")
        pair.primary.start()
        wait_until_streaming(pair.primary)
    assert found["state"] == "failed" and "max_connections 150 → 100" in found["text"], found
    assert found["fix"] == "raise them on db2, then restart it; do not resume replay before"


def set_value_at_start(cluster: Cluster, name: str, value: str) -> None:
    query(cluster, f"alter system set {name} = '{value}'")
    cluster.stop()
    cluster.start()


def test_a_primary_in_crash_recovery_is_recovering_and_shows_its_progress(shop: Console, pair: Pair) -> None:
    shop.run("cluster", "show", "shop")
    with held_in_recovery(pair.primary):
        found = cluster_checks(shop, ready=False, command=FAILOVER)["primary"]
    wait_until_streaming(pair.primary)
    assert found["state"] == "unknown" and found["text"].startswith("db1 is recovering from a crash: about "), found
    assert "of WAL replayed, " in found["text"] and found["fix"].startswith("wait: nothing is lost"), found


def test_a_primary_that_refuses_the_role_or_starts_up_is_alive(shop: Console, pair: Pair) -> None:
    shop.write_config(pair.configured().replace("user=postgres", "user=unknown_role", 1))
    assert (
        "db1 is running: it rejects this role" in cluster_checks(shop, ready=False, command=FAILOVER)["primary"]["text"]
    )


def wait_for_same(primary: Cluster, standby: Cluster) -> None:
    """The standby has received everything."""
    at = query(primary, "select pg_current_wal_flush_lsn()")
    wait_for(standby, f"select pg_last_wal_replay_lsn() >= '{at}'")
