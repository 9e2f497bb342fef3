"""Real cluster managers: recognised while active, paused and ended; write outage of their switchovers.

Needs repmgr (postgresql-15-repmgr), etcd (etcd-server) and Patroni (from PyPI); missing ones are skipped.
MANAGERS_ROUNDS (5).
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from bench.console import own_directories
from bench.figure import Figure
from bench.switchovers import cutover_command
from dba_console.clusters.cluster_managers import (
    ManagedCommand,
    Manager,
    find_managers,
    pause_command,
    switchover_command,
)
from dba_console.clusters.cutover_plan import node_address
from dba_console.clusters.heartbeat import HeartbeatOutage, read_outage, start_heartbeat, stop_heartbeat
from dba_console.clusters.node_host import Host
from dba_console.clusters.pooler_admin import PoolerAdmin
from dba_console.clusters.pooler_file import change_file
from dba_console.clusters.survey import Survey, survey
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig, NodeConfig
from dba_console.demo.binaries import find_binaries
from dba_console.demo.ledger import LedgerVerdict
from dba_console.demo.practice_cluster import NAME as REPMGR
from dba_console.demo.temporary_server import Cluster, make_standby
from tests.patroni import NAME as PATRONI
from tests.patroni import PatroniCluster
from tests.repmgr import repmgr_cluster

LIMIT_S = 90.0
SETTLE_S = 2.0


def run(smoke: bool = False) -> list[Figure]:
    if smoke:
        return []  # neither is installed where smoke tests run
    figures = [_repmgr()] if find_binaries().has("repmgrd") else []
    for measured in (_repmgr_outages, _patroni):
        try:
            figures += measured()
        except (pytest.skip.Exception, pytest.fail.Exception) as error:
            print(f"skipped: {error}", file=sys.stderr)
    return figures


def _repmgr() -> Figure:
    """Time until repmgrd is recognised as running, paused by our command, running again, and ended."""
    binaries = find_binaries()
    with ExitStack() as around:
        settings = {"wal_log_hints": "on", "shared_preload_libraries": "repmgr"}
        first = around.enter_context(Cluster(binaries, settings=settings, durable=False))
        second = make_standby(first)
        around.callback(second.close)
        second.start()
        first.psql("create database repmgr")
        nodes = {"db1": first, "db2": second}
        for number, (name, node) in enumerate(nodes.items(), 1):
            file = first.base / f"{name}.conf"
            file.write_text(
                f"node_id={number}\nnode_name='pg{number}'\nconninfo='{node.dsn(dbname='repmgr')} connect_timeout=5'\n"
                f"data_directory='{node.data_directory}'\npg_bindir='{binaries.directory}'\nfailover=automatic\n"
                "promote_command='false'\nfollow_command='false'\n"
                f"repmgrd_pid_file='{first.base}/{name}.pid'\nlog_file='{first.base}/{name}.log'\n"
            )
            first.account.chown(file)
        first.run("repmgr", "-f", str(first.base / "db1.conf"), "primary", "register")
        _until(lambda: second.psql("select 1 from pg_database where datname = 'repmgr'"))
        first.run("repmgr", "-f", str(first.base / "db2.conf"), "standby", "register", "--force")
        for name in nodes:
            first.run("repmgrd", "-f", str(first.base / f"{name}.conf"), "-d")
        for name in nodes:
            around.callback(_end, first.base / f"{name}.pid")
        config = ClusterConfig(nodes={name: NodeConfig(dsn=node.dsn()) for name, node in nodes.items()})
        begun = time.monotonic()
        _until(lambda: _manager(config).is_active)
        assert str(switchover_command(_manager(config), "db1", "db2")).endswith("standby switchover --siblings-follow")
        pause = pause_command(_manager(config), "db2")
        assert pause is not None
        _execute(pause, first.account.name)
        assert not _manager(config).is_active
        _execute(ManagedCommand(pause.node, (*pause.argv[:-1], "unpause")), first.account.name)
        _until(lambda: _manager(config).is_active)
        for name in nodes:
            _end(first.base / f"{name}.pid")
        _until(lambda: "does not run" in _manager(config).evidence)
        return Figure("repmgrd recognised, paused, resumed and ended", time.monotonic() - begun, "s")


def _patroni() -> list[Figure]:
    """Switch over by `patronictl switchover` and by the runbook, in turns."""
    with PatroniCluster() as ground:
        nodes = {name: ground.dsn(name) for name in ground.config.nodes}

        def bare(old: str, new: str) -> ManagedCommand:
            return switchover_command(_manager(ground.config, new), old, new)

        found = _outages(ground.config, PATRONI, ground.config_file, nodes, bare, ground.account.name)
        return _figures("Patroni", found, ground.verdict())


def _repmgr_outages() -> list[Figure]:
    """Switch over by `repmgr standby switchover` and by the runbook, in turns, on three nodes."""
    with repmgr_cluster() as ground:
        nodes = {name: ground.nodes[name].dsn() for name in ("db1", "db2")}

        def bare(old: str, new: str) -> ManagedCommand:
            return switchover_command(_manager(ground.config, new), old, new)

        found = _outages(ground.config, REPMGR, ground.config_file, nodes, bare, ground.first_node.account.name)
        return _figures("repmgr", found, ground.verdict())


Found = dict[str, list[HeartbeatOutage]]


def _outages(
    config: ClusterConfig, cluster: str, file: Path, nodes: dict[str, str],
    bare: Callable[[str, str], ManagedCommand], user: str,
) -> Found:  # fmt: skip
    """Return the outage of each switchover by a heartbeat through the pooler, bare command and runbook in turns."""
    seen: Found = {"bare": [], "ours": []}
    with own_directories(), _environment("DBA_CONSOLE_CONFIG", str(file)):
        for number in range(int(os.environ.get("MANAGERS_ROUNDS", "5"))):
            for way in ("bare", "ours") if number % 2 else ("ours", "bare"):
                for _ in range(2):
                    _until(lambda: _streams(nodes) == len(nodes) - 1)
                    old = next(name for name, dsn in nodes.items() if _is_primary(dsn))
                    new = next(name for name in nodes if name != old)
                    seen[way].append(_seen(config, cluster, way, old, new, bare, user))
                    print(f"{way} to {new}: no writes for {seen[way][-1].write_s} s", file=sys.stderr, flush=True)
    return seen


def _seen(
    config: ClusterConfig, cluster: str, way: str, old: str, new: str,
    bare: Callable[[str, str], ManagedCommand], user: str,
) -> HeartbeatOutage:  # fmt: skip
    assert config.clients is not None
    command = bare(old, new) if way == "bare" else None  # built before, because that takes time and holds no clients
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        start_heartbeat(Path(place), config.clients, SYSTEM)
        time.sleep(SETTLE_S)
        if command is None:
            done = subprocess.run(cutover_command(new, cluster), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        else:
            _execute(command, user)
            (name, pooler), *_ = config.poolers.items()
            leads = [node_address(config.nodes[node]) for node in (old, new)]
            change_file(name, pooler, pooler.databases, leads[0], leads[1], SYSTEM)
            PoolerAdmin(name, pooler, SYSTEM).reload(dict.fromkeys(pooler.databases, leads[1]))
        time.sleep(SETTLE_S)
        stop_heartbeat(Path(place))
        return read_outage(Path(place))


def _figures(kind: str, found: Found, kept: LedgerVerdict) -> list[Figure]:
    figures = []
    for way, what in (("bare", f"{kind}'s own command"), ("ours", f"runbook cutover on {kind}")):
        writes = [one.write_s or 0.0 for one in found[way]]
        reads = [one.read_s or 0.0 for one in found[way]]
        errors = sum(sum(one.errors.values()) for one in found[way]) / len(writes)
        text = (
            f"worst {max(writes):.3g} s; reads {statistics.median(reads):.3g} s; {len(writes)} switchovers, "
            f"{errors:.3g} errors at the heartbeat each"
        )
        figures.append(Figure(f"{what}: write outage, median", statistics.median(writes), "s", None, text))
    figures.append(Figure("the same: acknowledged commits lost", len(kept.lost), "commits", 0, kept.sentence()))
    return figures


def _is_primary(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute("select not pg_is_in_recovery()").fetchone() == (True,)


def _streams(nodes: dict[str, str]) -> int:
    """Return the number of streaming standbys."""
    found = 0
    for dsn in nodes.values():
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                receiver = "select 1 from pg_stat_wal_receiver where status = 'streaming' and pg_is_in_recovery()"
                found += connection.execute(receiver).fetchone() is not None
        except psycopg.OperationalError:
            continue
    return found


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _manager(config: ClusterConfig, to: str = "db2") -> Manager:
    found: Survey = survey("shop", config, SYSTEM, to=to)
    [manager] = find_managers(found)
    return manager


def _execute(command: ManagedCommand | None, user: str) -> None:
    assert command is not None
    ended = Host(None, SYSTEM).run(command.argv, user=user, timeout_s=LIMIT_S)
    assert ended.code == 0, f"{command}: {ended.output}{ended.errors}"


def _end(file: Path) -> None:
    if file.exists():
        try:
            os.kill(int(file.read_text()), signal.SIGTERM)
        except ProcessLookupError:
            return


def _until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.2)
