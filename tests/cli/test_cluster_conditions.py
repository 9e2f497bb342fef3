"""`dba-console cluster check`: what differs between the nodes, poolers that cannot be changed, and cluster managers."""

from __future__ import annotations

import psycopg
import pytest

from dba_console.clusters.cluster_managers import Manager, pause_command, switchover_command
from dba_console.core.errors import Refused
from tests.cli.cluster_pair import Pair, cluster_checks, set_value
from tests.cli.console import Console
from tests.postgres.pgbouncer import PgBouncer

pytestmark = pytest.mark.xdist_group("cluster")


def test_settings_that_would_change_with_the_primary_are_named_with_both_values(shop: Console, pair: Pair) -> None:
    changed = {"default_transaction_read_only": "on", "work_mem": "7MB", "restore_command": "false"}
    for name, value in changed.items():
        set_value(pair.standby, name, value)
    try:
        found = cluster_checks(shop, ready=False)
    finally:
        for name in changed:
            set_value(pair.standby, name, None)
    assert found["settings.default_transaction_read_only"]["breaks"] == "clients could not write"
    assert "work_mem 4MB → 7MB" in found["settings.other"]["text"]
    assert "db2 has a restore_command, db1 has none" in found["restore_command"]["text"]
    assert found["collations"]["text"].endswith("their order depends on no library")


def test_free_disk_space_and_the_way_to_stop_the_primary_have_their_numbers(shop: Console) -> None:
    found = cluster_checks(shop, ready=True)
    assert " free for data of db2" in found["disk.data"]["text"] and " %) of " in found["disk.data"]["text"]
    assert found["control"]["state"] == "ok" and "driving" not in found, "both nodes are on this host"


def test_a_pooler_needs_a_role_that_may_pause_and_a_writable_file(shop: Console, pair: Pair) -> None:
    def configured(pooler: PgBouncer, file: object) -> str:
        place = f'[clusters.shop.poolers.main]\ndsn = "{pooler.dsn("pgbouncer")}"\ndatabases = ["shop"]\n'
        return pair.configured(place + f'config = "{file}"')

    leads = f"shop = {PgBouncer.database_line(pair.primary)} user=postgres dbname=postgres"
    settings = {"pool_mode": "transaction", "admin_users": "postgres", "stats_users": "nobody"}
    with PgBouncer(pair.primary, "conditions", leads, **settings) as pooler:
        shop.write_config(configured(pooler, pooler.ini))
        good = cluster_checks(shop, ready=True)
        shop.write_config(
            configured(pooler, "/nowhere.ini").replace("user=postgres dbname=pgb", "user=nobody dbname=pgb")
        )
        bad = cluster_checks(shop, ready=False)
    assert {good[f"pooler.main.{what}"]["state"] for what in ("admin", "config", "shop")} == {"ok"}
    assert bad["pooler.main.admin"]["fix"] == "add it to admin_users of main, and RELOAD"
    assert bad["pooler.main.config"]["text"].endswith("/nowhere.ini does not exist on this host")


def test_patroni_is_recognised_by_its_session(shop: Console, pair: Pair) -> None:
    with psycopg.connect(pair.primary.dsn(application_name="Patroni heartbeat")):
        found = cluster_checks(shop, ready=False)["managed.patroni"]
    assert found["state"] == "failed" and "connected to db1" in found["text"]
    assert " switchover " in found["fix"] and "--candidate" in found["fix"]


def test_a_repmgr_session_may_be_repmgrd(shop: Console, pair: Pair) -> None:
    with psycopg.connect(pair.standby.dsn(application_name="repmgr")):
        found = cluster_checks(shop, ready=False)["managed.repmgr"]
    assert found["state"] == "failed" and "standby switchover --siblings-follow" in found["fix"]


def test_a_manager_switches_over_by_its_own_node_names_or_shows_the_command() -> None:
    patroni = Manager(
        kind="Patroni", is_active=True, evidence="", scope="shop", members={"db1": "pg1", "db2": "pg2"},
        config={"db2": "/etc/patroni/15.yml"}, programs={"db2": "/usr/bin/patronictl"},
    )  # fmt: skip
    own = switchover_command(patroni, "db1", "db2")
    command = "/usr/bin/patronictl -c /etc/patroni/15.yml switchover shop --leader pg1 --candidate pg2 --force"
    assert (own.node, str(own)) == ("db2", command)
    repmgr = Manager(kind="repmgr", is_active=True, evidence="", config={"db2": "/etc/repmgr.conf"})
    with pytest.raises(Refused) as refused:
        switchover_command(repmgr, "db1", "db2")
    assert refused.value.hint == "on db2: repmgr -f /etc/repmgr.conf standby switchover --siblings-follow"
    assert str(pause_command(repmgr, "db2")) == "repmgr -f /etc/repmgr.conf service pause"
