"""Failover where Patroni or repmgr runs the cluster: it is refused with the manager's own command, and only the manager
promotes a node."""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
import pytest

from bench.failover_operator import Hands, Walk, console, walk
from dba_console.demo.practice_cluster import NAME as REPMGR
from dba_console.demo.temporary_server import child_processes, send_signals
from tests.background import wait_until
from tests.patroni import NAME as PATRONI
from tests.patroni import PatroniCluster
from tests.repmgr import repmgr_cluster

MANAGER_S = 90.0
"""Time in which Patroni replaces its primary."""


class Managed(NamedTuple):
    """A cluster with a manager, and its primary killed."""

    cluster: str
    environment: Mapping[str, str]
    nodes: Mapping[str, str]
    """Connection string of each node."""
    names: str
    """Pattern of the command that the refusal names."""
    promote: Callable[[], object]
    """The manager, or its command, replaces the primary."""


@contextmanager
def patroni() -> Iterator[Managed]:
    with PatroniCluster() as ground:
        nodes = {name: ground.dsn(name) for name in ground.config.nodes}
        [(server,)] = ground.ask("db1", "select pg_read_file('postmaster.pid')")
        pid = int(str(server).split()[0])
        ground.patroni["db1"].kill()
        send_signals([psutil.Process(pid), *child_processes(pid)], signal.SIGKILL)

        def by_itself() -> None:
            wait_until(lambda: primaries({"db2": nodes["db2"]}), MANAGER_S, what="Patroni's failover")

        yield Managed(PATRONI, ground.environment, nodes, r"patronictl .*failover", by_itself)


@contextmanager
def repmgr() -> Iterator[Managed]:
    with repmgr_cluster() as ground:
        nodes = {name: node.dsn(dbname="shop") for name, node in ground.nodes.items()}
        ground.first_node.kill()
        file = ground.directory / "repmgr" / "db2.conf"

        def command() -> None:
            ground.nodes["db2"].run("repmgr", "-f", str(file), "standby", "promote")

        yield Managed(REPMGR, ground.environment, nodes, r"repmgr .*standby promote", command)


MANAGERS = {"patroni": patroni, "repmgr": repmgr}


class ManagedOutcome(NamedTuple):
    walked: Walk
    before: list[str]
    """Primaries after the run."""
    after: list[str]
    """Primaries after the manager has done its work."""
    names_command: bool
    seconds: float


def play_managed(name: str) -> ManagedOutcome | str:
    """Run the failover beside the manager; a text: why it could not be tried here."""
    try:
        with MANAGERS[name]() as ground, tempfile.TemporaryDirectory(prefix="fo-", dir="/tmp") as place:
            begun = time.monotonic()
            with console(ground.environment, Path(place) / "operator") as running:
                walked = walk(running, "failover", "db2", Hands(patience_s=5.0), ground.cluster)
            seconds, before = time.monotonic() - begun, primaries(ground.nodes)
            ground.promote()
            texts = [walked.ending, *(one.question.text for one in walked.asked)]
            named = any(re.search(ground.names, text) for text in texts)
            return ManagedOutcome(walked, before, primaries(ground.nodes), named, seconds)
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return str(error)


def primaries(nodes: Mapping[str, str]) -> list[str]:
    """The nodes that accept writes."""
    found = []
    for name, dsn in nodes.items():
        with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True, connect_timeout=3) as connection:
            if connection.execute("select pg_is_in_recovery()").fetchone() == (False,):
                connection.execute("create table if not exists probe (n int)")
                found.append(name)
    return found
