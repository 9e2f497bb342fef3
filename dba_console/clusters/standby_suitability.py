"""Readiness checks that take days to fix: whether a standby can become the primary, and the primary its standby.

Pure. Each check returns its finding, what would break, and the command that fixes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.replication_access import other_nodes
from dba_console.clusters.subject.readings import STANDBY_MINIMUM_SETTINGS
from dba_console.clusters.survey import Survey, ahead_of, find_upstream


def check_identity_and_version(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    one, other = primary.system_identifier, target.system_identifier
    if one is None or other is None:
        unreadable = primary.name if one is None else target.name
        yield unknown(
            "identity",
            f"this role may not read the system identifier of {unreadable}",
            fix="grant execute on function pg_control_system(), pg_control_checkpoint() to the role",
        )
    elif one != other:
        yield failed(
            "identity",
            f"{target.name} is another cluster: system identifier {other}, {primary.name} has {one}",
            breaks="it has other data",
            fix="correct the dsn, or rebuild the standby",
        )
    else:
        yield ok("identity", f"both have the system identifier {one}")
    majors = [(node.version_num or 0) // 10000 for node in (primary, target)]
    versions = f"{primary.name} {primary.version}, {target.name} {target.version}"
    if majors[0] != majors[1]:
        yield failed(
            "version", f"major versions differ: {versions}", breaks="a physical standby needs the same major version"
        )
    elif primary.version_num != target.version_num:
        yield warning(
            "version",
            f"minor versions differ: {versions}",
            breaks="bugs that are fixed on one remain on the other",
            fix="update the older one first",
        )
    else:
        yield ok("version", f"both are {primary.version}")


def check_streaming(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the target streams WAL from the primary itself, on its timeline."""
    receiver = target.receiver or {}
    lost = "it would miss the last writes of the primary"
    source = f"{receiver.get('sender_host') or '?'}:{receiver.get('sender_port') or '?'}"
    if target.receiver is not None and receiver.get("status") is None:
        yield unknown("streaming", f"this role may not see the WAL receiver of {target.name}", breaks=lost,
                      fix="grant pg_monitor to the role")  # fmt: skip
    elif receiver.get("status") != "streaming":
        state = receiver.get("status") or "no WAL receiver"
        yield failed("streaming", f"{target.name} does not stream: {state}", breaks=lost,
                     fix="check primary_conninfo and the standby's log")  # fmt: skip
    elif receiver.get("received_tli") != primary.timeline:
        theirs = receiver.get("received_tli")
        yield failed("streaming", f"{target.name} follows timeline {theirs}, {primary.name} is on {primary.timeline}",
                     breaks="its history diverged from the primary's",
                     fix="recovery_target_timeline = 'latest', or rebuild it")  # fmt: skip
    elif not any(one.get("state") == "streaming" for one in primary.standbys or ()):
        yield failed("streaming", f"{target.name} streams from {source}, and {primary.name} has no standby",
                     breaks="it follows another server",
                     fix="set its primary_conninfo to the primary")  # fmt: skip
    elif str(receiver.get("sender_port")) != primary.settings.get("port"):
        port = primary.settings.get("port", "?")
        yield warning("streaming", f"{target.name} streams from {source}, {primary.name} listens on port {port}",
                      breaks="it may follow a third server and be behind it",
                      fix="set its primary_conninfo to the primary")  # fmt: skip
    else:
        yield ok("streaming", f"{target.name} streams from {source}, timeline {primary.timeline}")


def check_settings(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    lower, higher, unseen = [], [], []
    for name in STANDBY_MINIMUM_SETTINGS:
        ours, theirs = primary.settings.get(name), target.settings.get(name)
        if ours is None or theirs is None:
            unseen.append(name)
        elif int(theirs) < int(ours):
            lower.append(f"{name} {ours} → {theirs}")
        elif int(theirs) > int(ours):
            higher.append(f"{name} {ours} → {theirs}")
    if unseen:
        yield unknown("settings", f"settings unknown: {', '.join(unseen)}")
    if lower:
        yield failed(
            "settings",
            f"{target.name} has lower settings: {'; '.join(lower)}",
            breaks="after the cutover it allows fewer clients than now",
            fix=f"raise them on {target.name} and restart it",
        )
    if higher:
        yield warning(
            "settings.back",
            f"{target.name} has higher settings: {'; '.join(higher)}",
            breaks=f"{primary.name} could not follow it as a standby",
            fix=f"raise them on {primary.name}; the restart they need is part of the cutover",
        )
    if not (unseen or lower or higher):
        yield ok("settings", "settings that must not be lower on a standby are equal")
    ours, theirs = (node.settings.get("shared_preload_libraries") for node in (primary, target))
    if ours != theirs and None not in (ours, theirs):
        yield failed(
            "libraries",
            f"shared_preload_libraries differ: {primary.name} {ours or '(none)'}, {target.name} {theirs or '(none)'}",
            breaks="features of these libraries are missing after the cutover",
            fix="make them equal, and restart",
        )


def check_extensions(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if primary.used is None or target.available is None:
        yield unknown("extensions", "the extensions are unknown")
        return
    missing = sorted(set(primary.used) - set(target.available))
    if missing:
        yield failed(
            "extensions",
            f"{target.name} has no files of: {', '.join(missing)}",
            breaks="every use of them fails after the cutover",
            fix=f"install their packages on {target.name}",
        )
    else:
        yield ok("extensions", f"the files of every extension of the checked database exist ({len(primary.used)})")


def check_rewind(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    for node in (primary, target):
        hints = node.settings.get("wal_log_hints") == "on" or node.checksums
        pages = node.settings.get("full_page_writes") == "on"
        if not node.settings:
            yield unknown(f"rewind.{node.name}", f"the settings of {node.name} are unknown")
        elif not (hints and pages):
            lacks = "wal_log_hints = on or data checksums" if not hints else "full_page_writes = on"
            yield warning(
                f"rewind.{node.name}",
                f"pg_rewind needs {lacks} on {node.name}",
                breaks="a node with a diverged history would need a new copy",
                fix=f"set it on {node.name}, and restart",
            )
    rights = target.details.rewind
    if rights is None:
        yield unknown("rewind.role", f"whether the role may read files of {target.name} is unknown")
    elif not rights["may"]:
        yield warning(
            "rewind.role",
            f"role {rights['role']} may not read the files of {target.name}",
            breaks=f"pg_rewind could not rejoin {primary.name} if its history diverges",
            fix=f"grant execute on function pg_ls_dir(text, boolean, boolean), pg_stat_file(text, boolean), "
            f'pg_read_binary_file(text), pg_read_binary_file(text, bigint, bigint, boolean) to "{rights["role"]}"',
        )
    if primary.settings.get("archive_mode") != target.settings.get("archive_mode"):
        yield warning(
            "archive_mode",
            f"archive_mode differs: {primary.name} {primary.settings.get('archive_mode')}, "
            f"{target.name} {target.settings.get('archive_mode')}",
            breaks="the new primary would archive differently from the old one",
            fix="make it equal, and restart",
        )


def check_free_slots(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the new primary has free walsenders and slots for the old one and every other standby."""
    needed = len(primary.standbys or ()) or 1
    for what, used, most in (
        ("walsenders", target.walsenders_used, target.settings.get("max_wal_senders")),
        ("slots", target.slots_used, target.settings.get("max_replication_slots")),
    ):
        if used is None or most is None:
            yield unknown(what, f"the free {what} of {target.name} are unknown")
        elif (free := int(most) - used) < needed:
            setting = "max_wal_senders" if what == "walsenders" else "max_replication_slots"
            yield failed(
                what,
                f"{target.name} has {free} of {most} {what} free, {needed} are needed",
                breaks=f"{primary.name} could not return as its standby",
                fix=f"raise {setting}, and restart",
            )
        else:
            yield ok(what, f"{target.name} has {free} of {most} {what} free")


def check_logical_slots(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if primary.slots is None:
        yield unknown("slots.logical", f"the slots of {primary.name} are unknown")
        return
    synced = {
        one["name"] for one in target.slots or () if one["synced"] and not one["temporary"] and not one["invalidated"]
    }
    logical = [one["name"] for one in primary.slots if one["kind"] == "logical" and not one["temporary"]]
    lost = [name for name in logical if name not in synced]
    if lost:
        yield failed(
            "slots.logical",
            f"logical slots missing on {target.name}: {', '.join(lost)}",
            breaks="their subscribers lose their position, and must copy their tables again",
            fix="17 and later: failover = true on the subscription, sync_replication_slots = on; before: drop the "
            "subscription first, and create it again",
        )
    elif logical:
        yield ok("slots.logical", f"{len(logical)} logical slots are synced to {target.name}")


# Whether the other standbys can follow the new primary. Pure.


def check_other_standbys(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    for node in other_nodes(found, primary, target):
        if node.role == primary.role:
            continue  # a second primary is another check
        yield from _check_upstream(found, node, target)
        lower = [
            f"{name} {theirs} → {ours}"
            for name in STANDBY_MINIMUM_SETTINGS
            if None not in (theirs := target.settings.get(name), ours := node.settings.get(name))
            and int(ours or 0) < int(theirs or 0)
        ]
        if lower:
            text = f"{node.name} has lower settings than {target.name}: {'; '.join(lower)}"
            yield warning(f"settings.{node.name}", text,
                          breaks=f"{node.name} stops its replay when it follows {target.name}",
                          fix=f"raise them on {node.name}, and restart it")  # fmt: skip


def check_positions(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that no standby is further than the primary, which `survey` reads after it."""
    for node in found.nodes:
        if node is not primary and (text := ahead_text(primary, node)):
            yield failed(f"differs.{node.name}", text,
                         breaks="it has replayed WAL that the primary does not have: its data are wrong",
                         fix=f"rebuild {node.name}: pg_rewind, or a new base backup")  # fmt: skip


def ahead_text(primary: NodeState, standby: NodeState) -> str:
    """Return that a standby has replayed more than the primary has written; empty: it has not."""
    if not ahead_of(primary, standby):
        return ""
    return (
        f"{standby.name} has replayed up to {standby.replayed_lsn}, further than {primary.name} has written "
        f"({primary.lsn}): their data differ"
    )


def _check_upstream(found: Survey, node: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    name, source = f"follows.{node.name}", find_upstream(found, node)
    latest = node.settings.get("recovery_target_timeline")
    breaks = f"{node.name} stays behind on the old timeline"
    if latest is None or source is None:
        what = "which node it follows" if source is None else "its recovery_target_timeline"
        yield unknown(name, f"{node.name}: {what} is unknown", breaks=breaks,
                      fix="grant pg_monitor to the role; primary_conninfo must use an address of a dsn")  # fmt: skip
    elif latest != "latest":
        yield failed(name, f"{node.name} has recovery_target_timeline = {latest}", breaks=breaks,
                     fix=f"set it to latest on {node.name}, and restart it")  # fmt: skip
    elif source is target:
        yield ok(name, f"{node.name} already follows {target.name}")
    elif source.role == "standby":
        yield ok(name, f"{node.name} follows {source.name}, which is a standby")
    else:
        yield ok(name, f"{node.name} follows {source.name}, and will be reconnected to {target.name}")
