"""A primary and its standby as the cluster `shop`, shared by the tests that check and describe clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.cli.console import Console
from tests.clusters import binaries_of
from tests.sql import query

TO_DB2 = ("cluster", "check", "shop", "--to", "db2")


@dataclass(frozen=True)
class Pair:
    primary: Cluster
    standby: Cluster

    def configured(self, *more: str, password: str = "") -> str:
        user = f" user={password}" if password else ""
        nodes = [f'[clusters.shop.nodes.db1]\ndsn = "{self.primary.dsn()}{user}"',
                 f'[clusters.shop.nodes.db2]\ndsn = "{self.standby.dsn()}{user}"']  # fmt: skip
        return "\n".join([*nodes, *more]) + "\n"


@contextmanager
def running_pair() -> Iterator[Pair]:
    settings = {
        "max_prepared_transactions": "5", "wal_level": "logical", "wal_log_hints": "on",
        "wal_retrieve_retry_interval": "100ms",
    }  # fmt: skip
    with ExitStack() as around:
        primary = around.enter_context(Cluster(binaries_of(None), settings=settings, durable=False))
        standby = make_standby(primary, slot="to_db2")
        around.callback(standby.close)
        standby.start()
        wait_until_streaming(primary)
        yield Pair(primary, standby)


def wait_until_streaming(primary: Cluster, count: int = 1) -> None:
    wait_until(
        lambda: query(primary, f"select count(*) >= {count} from pg_stat_replication where state = 'streaming'") == "t"
    )


def cluster_checks(console: Console, *, ready: bool, command: tuple[str, ...] = TO_DB2) -> dict[str, dict[str, Any]]:
    """The conditions by their ids."""
    done = console.run(*command, "--json")
    assert done.code == (0 if ready else 7), done
    [answer] = done.objects()
    assert answer["ready"] is ready, answer
    return {one["id"]: one for one in answer["checks"]}


def set_value(cluster: Cluster, name: str, value: str | None) -> None:
    """Set it and wait until the server has it; None: as before."""
    command = f"alter system reset {name}" if value is None else f"alter system set {name} = '{value}'"
    before = query(cluster, f"show {name}")
    query(cluster, command)
    query(cluster, "select pg_reload_conf()")
    wait_until(lambda: query(cluster, f"show {name}") != before)
