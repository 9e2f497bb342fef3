"""Which processes of cluster managers on a host belong to this cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dba_console.clusters.cluster_managers import find_managers
from dba_console.clusters.failover_readiness import failover_readiness
from dba_console.clusters.host_facts import HostState
from dba_console.clusters.node_state import Details, NodeState
from dba_console.clusters.survey import Survey
from dba_console.core.config import ClusterConfig, NodeConfig

NO_TRACES = {"patroni": False, "autofailover": False}


def survey(line: str, *, sees_all: bool = True, traces: dict[str, Any] | None = NO_TRACES, **work: Any) -> Survey:
    nodes = tuple(
        NodeState(name=name, role="standby", sees_all=sees_all, work={"repmgr": False, **work},
                  details=Details(managers=traces))
        for name in ("db1", "db2")
    )  # fmt: skip
    return Survey(cluster="shop", nodes=nodes, hosts={"db1": HostState(name="host1", managers=(line,))})


@pytest.mark.parametrize(
    ("line", "own"),
    [("repmgrd -f /etc/repmgr.conf", {"repmgr": True}), ("pg_autoctl run", {"autofailover": True})],
)
def test_a_manager_of_another_cluster_on_the_host_does_not_block_this_one(line: str, own: dict[str, Any]) -> None:
    assert find_managers(survey(line)) == []
    [its] = find_managers(survey(line, **own))
    assert its.is_active


@pytest.mark.parametrize("line", ["repmgrd -f /etc/repmgr.conf", "pg_autoctl run"])
def test_a_manager_counts_as_active_where_its_traces_cannot_be_seen(line: str) -> None:
    [found] = find_managers(survey(line, sees_all=False, traces=None))
    assert found.is_active


def test_a_refused_failover_names_the_manager_before_what_is_wrong_with_the_target() -> None:
    found = survey("repmgrd -f /etc/repmgr.conf", repmgr=True)
    nodes = tuple(replace(node, timeline=1, lsn=lsn) for node, lsn in zip(found.nodes, ("0/2", "0/1"), strict=True))
    config = ClusterConfig(nodes={node.name: NodeConfig(dsn="") for node in nodes})
    checks = failover_readiness(replace(found, nodes=nodes), "db2", config)
    named = [one.id for one in checks if one.state == "failed"]
    assert named.index("managed.repmgr") < named.index("ahead"), named
