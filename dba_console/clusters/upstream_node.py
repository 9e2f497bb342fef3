"""Which node of a cluster a standby follows, by the address its WAL receiver or its primary_conninfo names. Pure."""

from __future__ import annotations

from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey


def find_upstream(found: Survey, node: NodeState) -> NodeState | None:
    """Return the node that `node` receives WAL from; None where its address is unknown or fits no node, or several.

    A host has several names. Where none is known here, a port that only one node has decides.
    """
    receiver, upstream = node.receiver or {}, node.upstream or {}
    if receiver.get("sender_port"):
        hosts, port = {str(receiver["sender_host"])}, str(receiver["sender_port"])
    else:
        port = upstream.get("port", "5432")
        hosts = {one for key in ("host", "hostaddr") for one in upstream.get(key, "").split(",") if one}
    if not hosts:
        return None
    others = [one for one in found.nodes if one is not node]
    same_port = [one for one in others if any(port == its for _, its in one.places)]
    exact = [one for one in same_port if any((host, port) in one.places for host in hosts)]
    fits = exact or same_port
    return fits[0] if len(fits) == 1 else None


def find_followers(found: Survey, upstream: NodeState) -> list[NodeState]:
    """Return the standbys that receive WAL from this node."""
    return [node for node in found.nodes if node is not upstream and find_upstream(found, node) is upstream]
