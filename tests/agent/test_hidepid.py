"""A host whose /proc hides other users' processes: what does not depend on them is shown, the rest names the option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import environment
from tests.clusters import FreshCluster
from tests.requirements import require_tool
from tests.sql import query

HIDDEN = "hidepid=invisible"
"""As the kernel tells hidepid=2 (proc(5)), from 5.8 on."""
pytestmark = pytest.mark.root


def run_below_hidepid(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Lines of JSON of a command by somebody who is nobody here, below a /proc with hidepid."""
    nobody = [require_tool("unshare"), "--user", sys.executable, "-m", "dba_console", *arguments]
    # Members of group 0 would see all processes, and whoever is nobody by a user namespace is one still.
    script = 'mount -t proc -o hidepid=2,gid=65533 proc /proc && exec "$@"'
    command = [require_tool("unshare"), "--mount", "sh", "-c", script, "sh", *nobody]
    own = {**os.environ, **environment(directory)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=own)
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tcp_dsn(cluster: Cluster) -> str:
    query(cluster, "alter role postgres password 'pw'")
    return f"host=127.0.0.1 port={cluster.port} user=postgres dbname=postgres password=pw"


def test_over_an_address_of_this_host_what_needs_no_process_is_shown(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    [tick] = run_below_hidepid(tmp_path, "show", "--json", tcp_dsn(cluster))
    panels = tick["panels"]
    assert tick["target"]["local"] is True
    assert panels["io"]["iowait_pct"] is not None
    assert panels["memory"]["free_bytes"] is not None
    assert panels["disks"]["mounts"]
    assert HIDDEN in panels["sessions"]["note"]


def test_if_locality_cannot_be_proven_the_reason_names_the_option(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, "create role bare login password 'pw'")
    [tick] = run_below_hidepid(tmp_path, "show", "--json", tcp_dsn(cluster).replace("user=postgres", "user=bare"))
    assert tick["target"]["local"] is None
    assert f"/proc is mounted with {HIDDEN}" in tick["panels"]["io"]["note"]


def test_doctor_names_the_option_with_what_is_lost_and_the_fix(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    found = {check["id"]: check for check in run_below_hidepid(tmp_path, "doctor", "--json", tcp_dsn(cluster))}
    assert found["local"]["status"] == "ok"
    assert HIDDEN in found["processes"]["text"]
    assert HIDDEN in found["processes"]["fix"]
    assert found["process_io"]["lost"] and found["process_io"]["fix"]
