"""Conditions of a promotion after a failure: can the standby be promoted, would it work as a primary, what can be kept
down, pointed elsewhere or fetched. Pure.

The cluster is down already: what only makes the new primary worse than the old one is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from dba_console.clusters import current_conditions, cutover_readiness, standby_suitability
from dba_console.clusters.cluster_check import ClusterCheck, failed, lsn_text, ok, parse_lsn, unknown, warning
from dba_console.clusters.cluster_managers import Manager, find_managers
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.primary_evidence import silent_primary
from dba_console.clusters.survey import Survey
from dba_console.clusters.wal_files import SEGMENT, segment_end
from dba_console.core.config import ClusterConfig
from dba_console.core.units import human_bytes, human_duration

MUCH_BYTES = 16 << 20
"""WAL to replay that takes a noticeable time: one segment."""
_LOCAL = ("/", "@", "localhost", "127.", "::1")


def failover_conditions(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Return the checks of a target that answers as a standby."""
    yield from _check_promotable(found, target)
    yield from _check_replay(found, target)
    yield from _check_archive_position(found, target)
    yield from _check_poolers(found)
    yield from as_warnings(_check_works_as_primary(found, target))
    old = silent_primary(found)
    if old is not None:
        yield from as_warnings(standby_suitability.check_other_standbys(found, old, target))
    yield from as_warnings(current_conditions.check_synchronous_standbys(found, target))
    yield from as_warnings(current_conditions.check_disks(found, target))


def check_fence(found: Survey, config: ClusterConfig) -> Iterator[ClusterCheck]:
    """Check that the old primary can be kept down from here."""
    old = silent_primary(found)
    if old is None:
        return
    if fence_directory(found, config, old.name) is None:
        yield warning("fence", f"the data directory of {old.name} is unknown: it cannot be kept down from here",
                      breaks=f"you must cut off {old.name} yourself, and its WAL cannot be fetched",
                      fix=f"set data_directory, and ssh, in [clusters.{found.cluster}.nodes.{old.name}]")  # fmt: skip


def fence_directory(found: Survey, config: ClusterConfig, name: str) -> str | None:
    """Return the data directory of a node that does not answer: configured, or recorded when it was last primary."""
    recorded = found.seen.data_directory if found.seen is not None and found.seen.node == name else None
    return config.nodes[name].data_directory or recorded


def as_warnings(checks: Iterable[ClusterCheck]) -> Iterator[ClusterCheck]:
    for one in checks:
        yield one if one.state == "ok" else structs.replace(one, state="warning")


def _check_promotable(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Compare with the values that its WAL requires: with lower ones the server stops instead of being promoted."""
    required = {**(found.seen.settings if found.seen is not None else {}), **target.required}
    lower = [
        f"{name} {needed} → {own}"
        for name, needed in required.items()
        if (own := target.settings.get(name)) is not None and int(own) < int(needed)
    ]
    if lower:
        yield failed("promotable", f"{target.name} has lower settings than its primary had: {'; '.join(lower)}",
                     breaks="it cannot be promoted, and pg_wal_replay_resume() would shut it down",
                     fix=f"raise them on {target.name}, then restart it; do not resume replay before")  # fmt: skip
    elif required:
        yield ok("promotable", f"the settings of {target.name} are high enough for the WAL of its primary")
    elif target.replay_paused:
        yield unknown("promotable", f"replay is paused on {target.name}, and the settings its WAL requires are unknown",
                      breaks="if they are higher than its own, it cannot be promoted, and resuming shuts it down",
                      fix=f"pg_controldata on {target.name}: compare the max_… settings")  # fmt: skip


def _check_replay(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    if target.lsn is None or target.replayed_lsn is None:
        return
    left = max(0, parse_lsn(target.lsn) - parse_lsn(target.replayed_lsn))
    text = f"{target.name} has {human_bytes(left)} to replay before it accepts writes"
    delay = target.settings.get("recovery_min_apply_delay", "0")
    if target.replay_paused:
        text += "; its replay is paused, and the promotion resumes it"
    if delay != "0":
        text += f"; recovery_min_apply_delay is {human_duration(int(delay) / 1000)}, and the promotion ends the delay"
    if left >= MUCH_BYTES or delay != "0" or target.replay_paused:
        yield warning("replay", text, breaks="clients wait until it is replayed",
                      fix="choose a standby with less to replay, if one has as much WAL")  # fmt: skip
    else:
        yield ok("replay", text)


def _check_archive_position(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the archive has no WAL that the target lacks."""
    archived = found.seen.last_archived if found.seen is not None else None
    ends = [parse_lsn(lsn) for lsn in (target.lsn, target.replayed_lsn) if lsn is not None]
    size = int(target.settings.get("wal_segment_size", SEGMENT))
    end = None if archived is None else segment_end(archived, target.timeline, size)
    if end is None or not ends or end <= max(ends):
        return
    restores = (target.details.configured or {}).get("restore_command")
    wait = f"wait until {target.name} has replayed it"
    yield unknown("archive.wal", f"the archive has WAL up to {lsn_text(end)}, {target.name} to {lsn_text(max(ends))}",
                  breaks="its commits would be lost",
                  fix=wait if restores else f"set restore_command of {target.name}, reload, then {wait}")  # fmt: skip


def check_managers(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Check the managers: an active one chooses the new primary, whatever this target is like."""
    for one in find_managers(found):
        if one.is_active:
            yield failed(f"managed.{one.kind.lower()}", f"{one.kind} manages this cluster: {one.evidence}",
                         breaks="it may promote another node: two primaries",
                         fix=_manager_command(one, target.name))  # fmt: skip


def _manager_command(one: Manager, to: str) -> str:
    """Return what to do: the manager's failover, or its pause before a failover by hand."""
    file = one.config.get(to) or next(iter(one.config.values()), "FILE")
    scope, member = one.scope or "SCOPE", one.members.get(to, to)
    failover, pause = {
        "Patroni": (
            f"patronictl -c {file} failover {scope} --candidate {member}",
            f"patronictl -c {file} pause {scope} --wait",
        ),
        "repmgr": (f"on {to}: repmgr -f {file} standby promote", f"repmgr -f {file} service pause"),
        "pg_auto_failover": (
            f"on {to}: pg_autoctl perform promotion --pgdata {file}",
            "stop pg_autoctl on every node",
        ),
    }[one.kind]
    return f"find out why it has not failed over: {one.status}. Then {failover}; to do it here, first {pause}"


def _check_poolers(found: Survey) -> Iterator[ClusterCheck]:
    for pooler in found.poolers:
        if not pooler.reached:
            yield warning(f"pooler.{pooler.name}", f"pooler {pooler.name} does not answer: {pooler.error}",
                          breaks="its clients cannot be held, and it is not pointed to the new primary",
                          fix=f"repoint {pooler.name} by hand before its clients come")  # fmt: skip


def _check_works_as_primary(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Check the target alone; its old primary cannot be asked."""
    configured = target.details.configured
    if configured is not None:
        for name, required in cutover_readiness.REQUIRED_VALUES.items():
            if configured.get(name, required) != required:
                yield failed(f"settings.{name}", f"{target.name} has {name} = {configured[name]}",
                             breaks="clients could not write" if "read_only" in name else "data may be lost",
                             fix=f"alter system set {name} = {required} on {target.name}, and reload")  # fmt: skip
        remote = any(not one.replication.get("host", "/").startswith(_LOCAL) for one in found.nodes)
        if remote and not cutover_readiness.listens_for_other_hosts(configured):
            yield failed("settings.listen", f"{target.name} has listen_addresses = "
                         f"{configured.get('listen_addresses') or '(empty)'}",
                         breaks="clients of other hosts cannot connect",
                         fix=f"set listen_addresses of {target.name}, and restart it before the promotion")  # fmt: skip
    alone = (target, target)
    for check in (cutover_readiness.check_archiving, cutover_readiness.check_collations,
                  standby_suitability.check_extensions):  # fmt: skip
        yield from (one for one in check(*alone) if one.state != "ok")
