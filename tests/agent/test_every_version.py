"""What scripts rely on, through a real agent, on every major version: each field is there, and known where it can be.

Names are those of the contract. Fields a kernel may lack (pressure, NUMA) must be there and may be null.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import agent
from tests.background import idle_in_transaction, session, wait_until, waiting_for_lock
from tests.clusters import binaries_of
from tests.servers import MAJORS

KNOWN = {
    "connections": "max reserved_superuser reserved_role usable used active idle idle_in_transaction waiting "
    "by_application by_user by_database source",
    "io": "iowait_pct procs_blocked read_bytes_per_s write_bytes_per_s devices",
    "memory": "total_bytes free_bytes available_bytes cached_bytes dirty_bytes writeback_bytes swap_used_bytes "
    "swap_in_per_s swap_out_per_s cached_change_bytes_per_s free_change_bytes_per_s reclaim_kswapd_bytes_per_s "
    "reclaim_direct_bytes_per_s alloc_stalls_per_s refault_bytes_per_s",
    "safety": "data_checksums checksum_failures checksum_databases xid_age xid_stop_age xid_pct mxid_age mxid_pct "
    "databases tables horizon",
    "progress": "operations",
    "locks": "waiting longest_wait_s trees",
    "replication": "role slots wal_bytes_per_s archive_age_s archive_failed_count archive_ready_count "
    "last_archived_wal",
    "disks": "mounts",
    "sessions": "rows",
    "events": "rows",
    "cluster": "name primary nodes",
    "server": "version system_identifier data_directory port started uptime_s config_loaded checkpoints_timed "
    "checkpoints_requested sessions_total autovacuum_workers autovacuum_max_workers",
}
"""Fields that have a value, and lists that have rows, on the server that `busy` makes."""

MAY_BE_UNKNOWN = {
    "connections": "growth_per_min full_in_s",
    "io": "psi_some_avg10 psi_full_avg10",
    "memory": "compact_stalls_per_s drop_pagecache_count psi_some_avg10 psi_full_avg10 zone_reclaim_mode thp "
    "huge_pages_total huge_pages_used numa_nodes",
    "safety": "checksum_last_failure xids_per_s autovacuum_freeze_in_s warn_in_s stop_in_s",
    "replication": "lag_bytes lag_s standbys last_failed_wal",
    "disks": "warnings",
    "server": "restarted settings io io_method io_workers slrus sessions_per_s autovacuum",
}
"""Trends of minutes, standbys that are not there, failures that never were, and what not every kernel has."""


@dataclass(frozen=True)
class ShownFrame:
    """A busy server, the process ids of what makes it busy, and what `show --json` printed of it."""

    cluster: Cluster
    pids: dict[str, int]
    frame: dict[str, Any]

    @property
    def panels(self) -> dict[str, Any]:
        return dict(self.frame["panels"])


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownFrame]:
    settings = {"archive_mode": "on", "archive_command": "true"}
    with (
        Cluster(binaries_of(request.param), settings=settings, durable=False) as cluster,
        busy_activity(cluster) as pids,
        agent(
            cluster.dsn(),
            place := tmp_path_factory.mktemp("agent"),
            extra={"DBA_CONSOLE_CONFIG": write_cluster_config(cluster, place)},
        ) as running,
    ):
        running.watch().until(
            lambda frame: (
                frame.locks.trees
                and frame.progress.operations
                and frame.cluster.primary
                # Rates need two readings of their part.
                and frame.replication.wal_bytes_per_s is not None
            ),
            what="a busy server",
        )
        yield ShownFrame(cluster, pids, show_json(cluster))


def test_every_field_of_the_contract_is_present_and_known(shown: ShownFrame) -> None:
    cluster, target, panels = shown.cluster, shown.frame["target"], shown.panels
    assert (target["role"], target["timeline"], target["local"]) == ("primary", 1, True)
    assert target["server_version"] // 10000 == cluster.major
    assert target["system_identifier"] == cluster.psql("select system_identifier from pg_control_system()")
    assert {name: panel["status"] for name, panel in panels.items()} == dict.fromkeys(KNOWN, "ok")
    assert unknown(panels) == []
    assert absent(panels) == []
    assert [name for name, value in shown.frame["self"].items() if value is None] == ["recording_note"]
    assert unexpected_log_lines(cluster) == []


def test_rows_are_the_same_on_every_version(shown: ShownFrame) -> None:
    pids, panels = shown.pids, shown.panels
    [tree] = panels["locks"]["trees"]
    assert (tree["pid"], tree["state"]) == (pids["holder"], "idle in transaction")
    [waiter] = tree["waiters"]
    assert (waiter["pid"], waiter["application"], waiter["mode"]) == (pids["waiter"], "waiter", "AccessExclusiveLock")
    [copy] = panels["progress"]["operations"]
    assert (copy["kind"], copy["pid"], copy["database"], copy["grade"]) == ("copy", pids["copy"], "postgres", "unknown")
    [slot] = panels["replication"]["slots"]
    assert (slot["name"], slot["kind"], slot["active"], slot["wal_status"]) == ("kept", "physical", False, "reserved")
    assert slot["retained_bytes"] > 0
    assert any(row["kind"] == "backend" and row["xid_age"] is not None for row in panels["safety"]["horizon"])
    holder = next(row for row in panels["sessions"]["rows"] if row["pid"] == pids["holder"])
    assert holder["process_state"] == "S"
    assert holder["rss_bytes"] > 0
    counted = shown.cluster.major >= 18
    assert holder["read_source"] == ("pg_stat_get_backend_io" if counted else "/proc")
    assert holder["write_source"] == "/proc"
    workers = [row for row in panels["sessions"]["rows"] if row["backend_type"] == "io worker"]
    assert bool(workers) == counted
    assert {(row["state"], row["user"], row["read_source"]) for row in workers} <= {(None, None, "/proc")}
    data = [mount for mount in panels["disks"]["mounts"] if "data" in mount["holds"]]
    assert [("wal" in mount["holds"], mount["used_bytes"] > 0) for mount in data] == [(True, True)]


def write_cluster_config(cluster: Cluster, directory: Path) -> str:
    """A configuration that has the server as the one node of a cluster."""
    file = directory / "shop.toml"
    file.write_text(f'[clusters.shop.nodes.db1]\ndsn = "{cluster.dsn()}"\n')
    return str(file)


@contextmanager
def busy_activity(cluster: Cluster) -> Iterator[dict[str, int]]:
    """A server with a bit of everything: a lock wait, a copy, a slot, an archived file. Gives the processes' ids."""
    cluster.psql("create table public.accounts (id int)")
    cluster.psql("select pg_create_physical_replication_slot('kept', true)")
    cluster.psql("select pg_switch_wal()")
    archived = "select last_archived_wal from pg_stat_archiver where last_archived_wal is not null"
    to_archive = "select from pg_ls_archive_statusdir() where name like '%.ready'"
    with session(cluster) as other:
        wait_until(lambda: other.execute(archived).rowcount, 60, what="an archived file")
        wait_until(lambda: other.execute(to_archive).rowcount == 0, 60, what="an archiver that is done")
    with (
        idle_in_transaction(
            cluster, "insert into public.accounts select pg_current_xact_id()::text::int", name="holder"
        ) as a,
        waiting_for_lock(cluster, "truncate public.accounts") as b,
        copying(cluster) as c,
    ):
        yield {"holder": a, "waiter": b, "copy": c}


@contextmanager
def copying(cluster: Cluster) -> Iterator[int]:
    """A COPY that goes on, row by row, until the block ends."""
    connection = session(cluster, name="copier")

    def run() -> None:
        try:
            connection.execute("copy (select n, pg_sleep(0.01) from generate_series(1, 1000000) n) to '/dev/null'")
        except psycopg.Error:
            pass  # cancelled at the end

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        with session(cluster) as other:
            under_way = "select from pg_stat_progress_copy"
            wait_until(lambda: other.execute(under_way).rowcount, 60, what="a copy under way")
        yield connection.info.backend_pid
    finally:
        connection.cancel_safe()
        thread.join(10)
        connection.close()


def show_json(cluster: Cluster) -> dict[str, Any]:
    """What `show --json` prints, read from the running agent."""
    command = [sys.executable, "-m", "dba_console", "show", "--json", cluster.dsn()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    [line] = done.stdout.splitlines()
    return dict(json.loads(line))


def unknown(panels: dict[str, Any]) -> list[str]:
    return [
        f"{name}.{field}"
        for name, fields in KNOWN.items()
        for field in fields.split()
        if panels[name].get(field) in (None, [])
    ]


def absent(panels: dict[str, Any]) -> list[str]:
    return [
        f"{name}.{field}"
        for name, fields in MAY_BE_UNKNOWN.items()
        for field in fields.split()
        if field not in panels[name]
    ]


def unexpected_log_lines(cluster: Cluster) -> list[str]:
    """Lines of the server's log that a monitor should not cause; the test's own sessions end by being cancelled."""
    lines = [line for line in cluster.log_text().splitlines() if "due to user request" not in line]
    return [line for line in lines if any(word in line for word in ("ERROR", "FATAL", "WARNING"))]
