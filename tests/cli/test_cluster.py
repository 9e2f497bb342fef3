"""`dba-console cluster`: a real primary and its standby, checked for a cutover."""

from __future__ import annotations

import json
import re

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cli.cluster_pair import TO_DB2, Pair, cluster_checks, set_value
from tests.cli.console import Console
from tests.postgres.pgbouncer import running_pgbouncer
from tests.sql import query

pytestmark = pytest.mark.xdist_group("cluster")


def test_a_standby_that_follows_its_primary_is_ready_and_every_condition_has_its_numbers(shop: Console) -> None:
    found = cluster_checks(shop, ready=True)
    assert {one["state"] for one in found.values()} == {"ok"}, found
    assert "B not received, " in found["lag"]["text"] and found["lag"]["text"].endswith("B not replayed")
    assert "system identifier" in found["identity"]["text"]
    assert "10 of 10 walsenders" in found["walsenders"]["text"]
    plain = shop.run(*TO_DB2)
    assert plain.code == 0 and plain.out.startswith("READY for a cutover of shop to db2\n"), plain


def test_every_node_is_shown_with_role_position_and_timeline(shop: Console, pair: Pair) -> None:
    [shown] = shop.run("cluster", "show", "shop", "--json").objects()
    one, other = shown["nodes"]
    assert (one["role"], other["role"], one["timeline"], other["timeline"]) == ("primary", "standby", 1, 1)
    assert one["system_identifier"] == other["system_identifier"]
    plain = shop.run("cluster", "show", "shop")
    assert plain.code == 0 and "db1" in plain.out and "0 B" in plain.out, plain


def test_a_node_that_does_not_answer_has_a_state_and_hides_no_other(shop: Console, pair: Pair) -> None:
    shop.write_config(pair.configured('[clusters.shop.nodes.db3]\ndsn = "host=127.0.0.1 port=1"'))
    shown = shop.run("cluster", "show", "shop")
    assert "db3   no answer" in shown.out and "Connection refused" in shown.out and "primary" in shown.out
    assert cluster_checks(shop, ready=False)["reached.db3"]["state"] == "failed"


def test_paused_replay_is_refused_with_the_command_that_resumes_it(shop: Console, pair: Pair) -> None:
    query(pair.standby, "select pg_wal_replay_pause()")
    try:
        found = cluster_checks(shop, ready=False)
    finally:
        query(pair.standby, "select pg_wal_replay_resume()")
    assert "select pg_wal_replay_resume()" in found["replay"]["fix"]
    assert "it shuts down when it is resumed" in found["replay"]["fix"]


def test_a_delayed_standby_is_refused(shop: Console, pair: Pair) -> None:
    set_value(pair.standby, "recovery_min_apply_delay", "7s")
    try:
        assert "recovery_min_apply_delay = 7.0s" in cluster_checks(shop, ready=False)["delay"]["text"]
    finally:
        set_value(pair.standby, "recovery_min_apply_delay", None)


def test_what_a_stop_would_wait_for_or_terminate_is_named(shop: Console, pair: Pair) -> None:
    with psycopg.connect(pair.primary.dsn(application_name="pg_dump")) as dump:
        dump.execute("select 1")
        assert "1 session of a dump or restore" in cluster_checks(shop, ready=False)["work"]["text"]


def test_a_recently_prepared_transaction_is_not_an_obstacle(shop: Console, pair: Pair) -> None:
    query(pair.primary, "begin; create table p (); prepare transaction 'p'")
    try:
        assert "prepared" not in cluster_checks(shop, ready=True)
    finally:
        query(pair.primary, "rollback prepared 'p'")


def test_a_logical_slot_that_would_be_left_behind_is_refused(shop: Console, pair: Pair) -> None:
    query(pair.primary, "select pg_create_logical_replication_slot('of_billing', 'pgoutput')")
    try:
        assert "of_billing" in cluster_checks(shop, ready=False)["slots.logical"]["text"]
    finally:
        query(pair.primary, "select pg_drop_replication_slot('of_billing')")


def test_the_current_primary_and_an_unknown_node_are_refused(shop: Console) -> None:
    already = shop.run("cluster", "check", "shop", "--to", "db1")
    assert already.code == 7 and "db1 is already the primary" in already.out
    none = shop.run("cluster", "check", "shop", "--to", "db7")
    assert none.code == 7 and "use one of: db1, db2" in none.out
    other = shop.run("cluster", "show", "shoq")
    assert other.code == 2 and "configured: shop" in other.err


def test_a_primary_of_another_server_is_named_with_its_identifier(shop: Console, pair: Pair, cluster: Cluster) -> None:
    shop.write_config(pair.configured(f'[clusters.shop.nodes.db3]\ndsn = "{cluster.dsn()}"'))
    [primary] = [one for one in cluster_checks(shop, ready=False).values() if one["id"] == "primary"]
    assert re.search(r"system identifier of db1 is \d+, db3 is \d+", primary["text"]), primary["text"]


def test_a_role_without_read_rights_makes_the_result_unknown_and_never_ready(shop: Console, pair: Pair) -> None:
    query(pair.primary, "create role bare login")
    wait_until(lambda: query(pair.standby, "select 1 from pg_roles where rolname = 'bare'"))
    shop.write_config(pair.configured().replace("user=postgres", "user=bare"))
    found = cluster_checks(shop, ready=False)
    assert {found["work"]["state"], found["streaming"]["state"]} == {"unknown"}
    assert found["work"]["fix"] == "grant pg_monitor to the role"


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_is_shown_and_one_in_session_mode_cannot_be_drained(shop: Console, pair: Pair, mode: str) -> None:
    with running_pgbouncer(pair.primary, mode, admin=True) as pooled:
        admin = pooled.replace("dbname=postgres", "dbname=pgbouncer")
        shop.write_config(pair.configured(f'[clusters.shop.poolers.main]\ndsn = "{admin}"\ndatabases = ["postgres"]'))
        with psycopg.connect(pooled, autocommit=True) as client:
            client.execute("select 1")
            found = cluster_checks(shop, ready=mode == "transaction")["pooler.main.postgres"]
            shown = shop.run("cluster", "show", "shop")
    assert (found["state"], mode in found["text"]) == ("failed" if mode == "session" else "ok", True)
    assert "main" in shown.out and mode in shown.out


def test_the_time_since_ready_is_remembered_and_restarts_after_an_interruption(shop: Console, pair: Pair) -> None:
    [first] = shop.run(*TO_DB2, "--json").objects()
    [again] = shop.run(*TO_DB2, "--json").objects()
    assert first["since"] == again["since"], "a look that finds the same"
    query(pair.standby, "select pg_wal_replay_pause()")
    try:
        [paused] = shop.run(*TO_DB2, "--json").objects()
    finally:
        query(pair.standby, "select pg_wal_replay_resume()")
    [resumed] = shop.run(*TO_DB2, "--json").objects()
    assert first["since"] < paused["since"] < resumed["since"]
    assert paused["changed"] == ["db2 replay running → paused"]


def test_the_setting_that_ended_the_readiness_is_named_with_both_values(shop: Console, pair: Pair) -> None:
    assert shop.run(*TO_DB2).out.splitlines()[1].startswith("ready for ")
    set_value(pair.standby, "recovery_min_apply_delay", "7s")
    try:
        for _ in range(2):
            plain = shop.run(*TO_DB2).out.splitlines()
            assert plain[1].startswith("not ready since ") and plain[1].endswith(
                ": db2 recovery_min_apply_delay 0 → 7000"
            )
    finally:
        set_value(pair.standby, "recovery_min_apply_delay", None)


def test_an_unusable_readiness_history_costs_the_time_and_not_the_answer(shop: Console, pair: Pair) -> None:
    shop.run(*TO_DB2)
    files = list((shop.home / "state" / "dba-console" / "clusters").iterdir())
    for kept in files:
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.write_text('{"cluster": "shop", "periods": [')
    assert shop.run(*TO_DB2).code == 0
    kept.parent.chmod(0o777)
    done = shop.run(*TO_DB2)
    assert done.code == 0 and "cannot save this check" in done.err, done


def test_no_password_of_a_node_or_pooler_is_shown(shop: Console, pair: Pair) -> None:
    shop.write_config(
        '[clusters.shop.nodes.db1]\ndsn = "host=127.0.0.1 port=1 password=hushhush"\n'
        '[clusters.shop.poolers.main]\ndsn = "postgresql://ann:hushhush@127.0.0.1:1/pgbouncer"\n'
    )
    for words in (("show", "shop"), ("check", "shop", "--to", "db1"), ("show", "shop", "--json")):
        done = shop.run("cluster", *words)
        assert "hushhush" not in json.dumps([done.out, done.err])
