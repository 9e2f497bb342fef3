"""What the hosts of a cluster allow: stop and start, room on the disks, a host that survives the cutover. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.host_facts import HostState, MountSpace
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey
from dba_console.units import human_bytes

CRITICAL_PCT, LOW_PCT = 5.0, 10.0
"""Free space in per cent; those of the findings about disks."""
WAL_FLOOR = 1 << 30
"""PostgreSQL's default max_wal_size: what it may keep between two checkpoints."""


def check_control(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """The primary can be stopped and started from here."""
    host = found.hosts.get(primary.name)
    breaks = f"{primary.name} could not be stopped, fenced and started as a standby"
    fix = f"set ssh, data_directory and control in [clusters.{found.cluster}.nodes.{primary.name}]"
    if host is None:
        yield unknown("control", f"the host of {primary.name} was not asked", breaks=breaks)
    elif host.error:
        yield failed("control", f"{primary.name} cannot be stopped from here: {host.error}", breaks=breaks,
                     fix=host.hint or fix)  # fmt: skip
    else:
        yield ok("control", f"the data directory of {primary.name} on {host.name} can be read by its owner's rights")


def check_disks(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    host = found.hosts.get(target.name)
    if host is None or host.error or host.data is None or host.wal is None:
        why = "its host was not asked" if host is None else host.error
        yield unknown("disks", f"free space of {target.name} is not known: {why}",
                      breaks="a full disk stops the new primary",
                      fix=(host.hint if host else "") or f"set ssh of {target.name} in the configuration")  # fmt: skip
        return
    yield from _check_free_space("disk.data", "data", target, host.data)
    if host.wal.path != host.data.path:
        yield from _check_free_space("disk.wal", "WAL", target, host.wal)


def _check_free_space(name: str, what: str, node: NodeState, mount: MountSpace) -> Iterator[ClusterCheck]:
    pct = 100 * mount.free / mount.size if mount.size else 0.0
    text = f"{human_bytes(mount.free)} ({pct:.0f} %) of {human_bytes(mount.size)} free for {what} of {node.name}"
    breaks, fix = "a full disk stops the new primary", f"make room on {mount.path} of {node.name}"
    if pct < CRITICAL_PCT or mount.free < WAL_FLOOR:
        yield failed(name, text, breaks=breaks, fix=fix)
    elif pct < LOW_PCT:
        yield warning(name, text, breaks=breaks, fix=fix)
    else:
        yield ok(name, text)


def check_console_host(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Where the console runs: a host that is stopped ends the run with it."""
    primary_host, target_host = found.hosts.get(primary.name), found.hosts.get(target.name)
    if primary_host is None or primary_host.error or not primary_host.here:
        return
    if target_host is not None and target_host.here:
        return  # all on one host: no other one is better
    where = "another host" if target_host is None or target_host.error else target_host.name
    yield warning("driving", f"this console runs on the host of {primary.name}, which will be stopped",
                  breaks="if that host fails meanwhile, the cutover stands still",
                  fix=f"on {where}: dba-console runbook run cutover --input cluster={found.cluster} "
                      f"--input to={target.name}")  # fmt: skip


def replication_reachable(host: HostState | None) -> bool | None:
    """Whether a replication connection was opened from there; None where that was not tried."""
    return None if host is None or host.error else host.reaches
