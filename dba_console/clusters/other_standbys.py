"""Whether the other standbys can go on behind the node that shall become the primary. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.replication_access import other_nodes
from dba_console.clusters.survey import Survey
from dba_console.clusters.upstream_node import find_upstream
from dba_console.samples.cluster import STANDBY_MINIMUM_SETTINGS


def check_other_standbys(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    for node in other_nodes(found, primary, target):
        if node.role == primary.role:
            continue  # a second primary is a condition of its own
        yield from _check_upstream(found, node, target)
        lower = [
            f"{name} {theirs} → {ours}"
            for name in STANDBY_MINIMUM_SETTINGS
            if None not in (theirs := target.settings.get(name), ours := node.settings.get(name))
            and int(ours or 0) < int(theirs or 0)
        ]
        if lower:
            yield warning(f"settings.{node.name}", f"{node.name} has less than {target.name}: {'; '.join(lower)}",
                          breaks=f"{node.name} stops its replay when it follows {target.name}",
                          fix=f"raise them on {node.name}, and restart it")  # fmt: skip


def _check_upstream(found: Survey, node: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    name, source = f"follows.{node.name}", find_upstream(found, node)
    latest = node.settings.get("recovery_target_timeline")
    breaks = f"{node.name} stays behind on the old timeline"
    if latest is None or source is None:
        what = "which node it follows" if source is None else "its recovery_target_timeline"
        yield unknown(name, f"{node.name}: {what} is not known", breaks=breaks,
                      fix="grant pg_monitor to the role; primary_conninfo needs an address of a dsn")  # fmt: skip
    elif latest != "latest":
        yield failed(name, f"{node.name} has recovery_target_timeline = {latest}", breaks=breaks,
                     fix=f"set it to latest on {node.name}, and restart it")  # fmt: skip
    elif source is target:
        yield ok(name, f"{node.name} follows {target.name} already")
    elif source.role == "standby":
        yield ok(name, f"{node.name} follows {source.name}, which is a standby")
    else:
        yield ok(name, f"{node.name} follows {source.name}, and has to be led to {target.name}")
