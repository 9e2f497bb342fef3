"""The panel of the cluster on the command line: from an agent, read by the command itself, and from a recording."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.cli.console import Console


@pytest.fixture
def shop(console: Console, cluster: Cluster) -> Console:
    console.write_config(
        f'[clusters.shop.nodes.db1]\ndsn = "{cluster.dsn()}"\n'
        '[clusters.shop.nodes.db2]\ndsn = "host=127.0.0.1 port=1 password=hushhush"\n'
        '[clusters.shop.poolers.main]\ndsn = "host=127.0.0.1 port=1 password=hushhush"\n'
    )
    return console


def assert_cluster_panel(panel: dict[str, Any]) -> None:
    one, other = panel["nodes"]
    assert (panel["status"], panel["name"], panel["primary"]) == ("ok", "shop", "db1")
    assert (one["role"], one["timeline"], one["error"], other["role"]) == ("primary", 1, None, None)
    assert one["age_s"] is not None and one["lsn"] and one["system_identifier"] and one["version"]
    assert "Connection refused" in other["error"] and other["since"].endswith("Z") and other["lag_bytes"] is None
    assert "Connection refused" in panel["poolers"][0]["error"]


def test_without_an_agent_the_command_queries_the_nodes_itself(shop: Console, cluster: Cluster) -> None:
    [tick] = shop.run("show", "cluster", "--json", cluster.dsn()).objects()
    assert_cluster_panel(tick["panels"]["cluster"])


def test_an_agent_records_what_each_node_answered(shop: Console, cluster: Cluster) -> None:
    with shop.watching(cluster.dsn()) as agent:
        agent.until(lambda frame: frame.cluster.primary == "db1" and frame.cluster.nodes[1].error, "both nodes")
        shown = shop.run("show", "cluster", cluster.dsn())
        agent.end()
    assert "cluster shop · primary db1 · nodes 2 · 1 not answering" in shown.out, shown
    assert "! db2: no answer since" in shown.out and "hushhush" not in shown.out + shown.err
    [tick] = shop.run("replay", "last", "--at", "-0s", "--show", "cluster", "--json").objects()
    assert_cluster_panel(tick["panels"]["cluster"])


def test_if_no_cluster_is_configured_the_panel_says_so(console: Console, cluster: Cluster) -> None:
    [tick] = console.run("show", "--json", cluster.dsn()).objects()
    panel = tick["panels"]["cluster"]
    assert (panel["status"], panel["nodes"]) == ("unsupported", []) and "[clusters.NAME]" in panel["note"]
