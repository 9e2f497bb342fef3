"""`dba-console cluster check`: who may connect where after a cutover, on a real primary and its standby."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.cli.cluster_pair import TO_DB2, Pair, cluster_checks, set_value, wait_until_streaming
from tests.cli.console import Console
from tests.requirements import require_tool
from tests.sql import query, wait_for

pytestmark = pytest.mark.xdist_group("cluster")


@contextmanager
def hba_lines(cluster: Cluster, *lines: str) -> Iterator[None]:
    """pg_hba.conf of a running cluster begins with these lines; restored at the end."""
    path = cluster.data_directory / "pg_hba.conf"
    before = path.read_text()
    path.write_text("\n".join([*lines, before]))
    try:
        yield
    finally:
        path.write_text(before)


def config_without_ssh_host(pair: Pair) -> str:
    """A configuration by which the host of db1 is not found, so that nothing can be tried from there."""
    return pair.configured().replace(
        "[clusters.shop.nodes.db2]", 'data_directory = "/nowhere"\n[clusters.shop.nodes.db2]'
    )


def test_a_replication_connection_to_the_old_primary_is_tried(shop: Console, pair: Pair) -> None:
    access = cluster_checks(shop, ready=True)["access.db1"]
    assert access["text"] == "a replication connection as postgres from db1 to db2 succeeds"
    with hba_lines(pair.standby, "local replication all reject"):
        query(pair.standby, "select pg_reload_conf()")
        wait_until(lambda: checks_state(shop) == "failed")
        refused = cluster_checks(shop, ready=False)["access.db1"]
    query(pair.standby, "select pg_reload_conf()")
    wait_until(lambda: checks_state(shop) == "ok")
    assert "pg_hba.conf rejects replication connection" in refused["text"]


@pytest.mark.parametrize(
    ("rule", "state", "text"),
    [
        ("local replication all reject", "failed", "rejects it in line 1: local replication all reject"),
        ("local replication +admins trust", "unknown", "is unknown: line 1: local replication +admins trust"),
        ("local replication nobody reject", "ok", "local replication all trust"),
        ("local replication all md5", "warning", "but this was not tried"),
    ],
)
def test_if_it_cannot_be_tried_the_first_matching_hba_rule_decides(
    shop: Console, pair: Pair, rule: str, state: str, text: str
) -> None:
    shop.write_config(config_without_ssh_host(pair))
    with hba_lines(pair.standby, rule):
        found = cluster_checks(shop, ready=False)
    assert found["access.db1"]["state"] == state and text in found["access.db1"]["text"]
    assert found["control"]["state"] == "failed" and "cannot find data directory /nowhere" in found["control"]["text"]


def test_without_the_rights_to_read_hba_rules_only_a_trial_shows_it(shop: Console, pair: Pair) -> None:
    query(pair.primary, "create role watcher login in role pg_monitor")
    wait_for(pair.standby, "select 1 from pg_roles where rolname = 'watcher'")
    try:
        shop.write_config(pair.configured().replace("user=postgres", "user=watcher"))
        found = cluster_checks(shop, ready=True)
        shop.write_config(config_without_ssh_host(pair).replace("user=postgres", "user=watcher"))
        untried = cluster_checks(shop, ready=False)["access.db1"]
    finally:
        query(pair.primary, "drop role watcher")
    assert found["access.db1"]["state"] == "ok"
    assert untried["state"] == "unknown" and "grant select on pg_hba_file_rules" in untried["fix"]
    assert found["rewind.role"]["state"] == "warning" and "watcher" in found["rewind.role"]["fix"]


def checks_state(console: Console) -> str:
    [answer] = console.run(*TO_DB2, "--json").objects()
    return next(str(one["state"]) for one in answer["checks"] if one["id"] == "access.db1")


def test_a_role_that_may_not_replicate_is_refused(shop: Console, pair: Pair) -> None:
    upstream = query(pair.standby, "show primary_conninfo").replace("'", "''")
    set_value(pair.standby, "primary_conninfo", upstream.replace("user=postgres", "user=nobody"))
    try:
        found = cluster_checks(shop, ready=False)
    finally:
        set_value(pair.standby, "primary_conninfo", upstream)
        wait_until_streaming(pair.primary)
    assert found["role"]["fix"] == 'alter role "nobody" login replication'


def test_a_third_node_must_be_able_to_follow(shop: Console, pair: Pair) -> None:
    """One that follows the primary, and the same one behind the target."""
    third = make_standby(pair.primary, settings={"recovery_target_timeline": "current"})
    try:
        third.start()
        shop.write_config(pair.configured(f'[clusters.shop.nodes.db3]\ndsn = "{third.dsn()}"'))
        wait_until_streaming(pair.primary, 2)
        found = cluster_checks(shop, ready=False)
        assert found["follows.db3"]["text"] == "db3 has recovery_target_timeline = current"
        assert found["access.db3"]["state"] == "ok"
        third.restart({"recovery_target_timeline": "latest"})
        set_value(third, "primary_conninfo", pair.standby.dsn())
        wait_until_streaming(pair.standby)
        found = cluster_checks(shop, ready=True)
        assert found["follows.db3"]["text"] == "db3 already follows db2" and "access.db3" not in found
        set_value(pair.standby, "synchronous_standby_names", "walreceiver")
        try:
            assert "walreceiver are connected to it" in cluster_checks(shop, ready=True)["synchronous"]["text"]
        finally:
            set_value(pair.standby, "synchronous_standby_names", None)
    finally:
        third.close()


@pytest.mark.parametrize(("names", "state"), [("db7", "failed"), ("db1", "warning"), ("any 2 (*)", "failed")])
def test_synchronous_standby_names_that_hang_the_first_commit_are_refused(
    shop: Console, pair: Pair, names: str, state: str
) -> None:
    set_value(pair.standby, "synchronous_commit", "on")
    set_value(pair.standby, "synchronous_standby_names", names)
    try:
        found = cluster_checks(shop, ready=state == "warning")["synchronous"]
    finally:
        set_value(pair.standby, "synchronous_standby_names", None)
        set_value(pair.standby, "synchronous_commit", None)
    assert found["state"] == state and f"synchronous_standby_names = {names}" in found["text"]


def test_the_certificate_of_the_target_is_read_and_one_that_expires_soon_is_a_warning(
    shop: Console, pair: Pair
) -> None:
    """Both listen on TCP for this: there is no TLS on a unix socket."""
    for node in (pair.primary, pair.standby):
        create_certificate(node, days=3 if node is pair.standby else 300)
    try:
        for node in (pair.primary, pair.standby):
            node.restart({"listen_addresses": "127.0.0.1"})
            set_value(node, "ssl", "on")
        wait_until_streaming(pair.primary)
        places = {node: f"host=127.0.0.1 port={node.port} user=postgres" for node in (pair.primary, pair.standby)}
        with (
            hba_lines(pair.primary, "host all all 127.0.0.1/32 trust"),
            hba_lines(pair.standby, "host all all 127.0.0.1/32 trust"),
        ):
            for node in places:
                query(node, "select pg_reload_conf()")
            shop.write_config(pair.configured().replace(pair.primary.dsn(), places[pair.primary])
                              .replace(pair.standby.dsn(), places[pair.standby]))  # fmt: skip
            wait_until(lambda: shop.run("cluster", "show", "shop").out.count("no answer") == 0)
            found = cluster_checks(shop, ready=True)
    finally:
        for node in (pair.primary, pair.standby):
            set_value(node, "ssl", None)
            node.restart({"listen_addresses": ""})
        wait_until_streaming(pair.primary)
    assert found["tls"]["state"] == "warning" and "its certificate is valid for 2d" in found["tls"]["text"]
    assert found["access.db1"]["state"] == "warning" and "it needs a password" in found["access.db1"]["text"]


def create_certificate(node: Cluster, *, days: int) -> None:
    """Give the server a certificate of its own."""
    key, certificate = node.data_directory / "server.key", node.data_directory / "server.crt"
    subject = ["-subj", "/CN=db", "-days", str(days)]
    subprocess.run(
        [require_tool("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject,
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    for path in (key, certificate):
        node.account.chown(path)
