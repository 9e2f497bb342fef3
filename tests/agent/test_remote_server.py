"""A server whose processes are not visible: SQL panels are live, without numbers of this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import environment
from tests.requirements import require_tool

OF_THE_HOST = ("io", "memory", "disks")
OF_THE_SERVER = ("connections", "safety", "progress", "locks", "replication", "sessions")


@pytest.fixture(scope="module")
def shown(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`show --json` from a pid namespace of its own: what a console in another container sees of the server."""
    apart = [require_tool("unshare"), "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    command = [*apart, sys.executable, "-m", "dba_console", "show", "--json", cluster.dsn()]
    own = {**os.environ, **environment(tmp_path_factory.mktemp("console"))}
    done = subprocess.run(command, capture_output=True, timeout=120, check=True, env=own)
    return dict(json.loads(done.stdout.splitlines()[0]))


@pytest.mark.root
def test_host_panels_are_empty_and_give_the_reason(shown: dict[str, Any]) -> None:
    assert shown["target"]["local"] is not True
    for name in OF_THE_HOST:
        panel = shown["panels"][name]
        assert panel["status"] == "unsupported"
        assert "not proven to be this host" in panel["note"]
        assert "host_panels = true" in panel["note"]
    assert shown["panels"]["io"]["devices"] == shown["panels"]["disks"]["mounts"] == []
    assert [shown["panels"]["memory"][name] for name in ("total_bytes", "free_bytes", "cached_bytes")] == [None] * 3
    rows = shown["panels"]["sessions"]["rows"]
    assert {(row["cpu_pct"], row["rss_bytes"], row["process_state"]) for row in rows} == {(None, None, None)}


@pytest.mark.root
def test_what_sql_returns_is_complete(shown: dict[str, Any]) -> None:
    panels = shown["panels"]
    assert {name: panels[name]["status"] for name in OF_THE_SERVER} == dict.fromkeys(OF_THE_SERVER, "ok")
    assert panels["connections"]["source"] == "sql"
    assert panels["connections"]["used"] >= 1
    assert panels["safety"]["xid_age"] > 0
    assert panels["replication"]["role"] == "primary"
