"""Readiness checks of conditions that must hold in the minutes before a cutover: lag, load, archive, hosts, disks.

Pure. Each check returns its finding, what would break, and the command that fixes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, parse_lsn, unknown, warning
from dba_console.clusters.host_facts import MountSpace
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey
from dba_console.core.units import human_bytes, human_duration

READY_FILES = 16
"""WAL files not archived yet that make a stop slow: repmgr warns at this number (its `archive_ready_warning`)."""
ARCHIVE_S = 2.0
"""A longer time per WAL file is a large part of an outage."""
LAG_BYTES = 16 << 20
"""One WAL segment: is sent at once, so a smaller lag is normal."""
CLOCK_S = 2.0
"""With a larger clock difference the lines of two logs are in the wrong order."""


def check_lag(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if primary.lsn is None or target.lsn is None or target.replayed_lsn is None:
        yield unknown(
            "lag", f"the lag of {target.name} is unknown", breaks="missing WAL would be lost, or delay the cutover"
        )
        return
    written, received, replayed = (parse_lsn(lsn) for lsn in (primary.lsn, target.lsn, target.replayed_lsn))
    behind = max(0, written - min(received, replayed))
    text = (
        f"{target.name} lags by {human_bytes(max(0, written - received))} not received, "
        f"{human_bytes(max(0, received - replayed))} not replayed"
    )
    if behind > LAG_BYTES:
        yield failed(
            "lag",
            text,
            breaks="the write outage lasts until it has caught up",
            fix="wait, or find the cause of the lag",
        )
    else:
        yield ok("lag", text)


def check_replay(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if target.replay_paused:
        yield failed(
            "replay",
            f"replay is paused on {target.name}",
            breaks="it cannot be promoted before it has replayed all WAL",
            fix=f"on {target.name}: select pg_wal_replay_resume(); first compare its settings: if it paused because "
            "one is lower than on the primary, it shuts down when it is resumed; raise it and restart instead",
        )
    delay = target.settings.get("recovery_min_apply_delay")
    if delay not in (None, "0"):
        yield failed(
            "delay",
            f"{target.name} has recovery_min_apply_delay = {human_duration(int(delay) / 1000)}",
            breaks="it replays the last WAL only after that time",
            fix="alter system set recovery_min_apply_delay = 0, and reload",
        )
    work = target.work
    if work is not None and work["oldest_xact_s"] > 60 and target.sees_all:
        yield warning(
            "conflicts",
            f"a transaction on {target.name} has been open for {human_duration(work['oldest_xact_s'])}",
            breaks="replay may have to wait for it, or cancel it",
        )


def check_archive(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if primary.settings.get("archive_mode") == "off":
        return
    archive = primary.archive
    if archive is None or archive.get("ready") is None:
        yield unknown(
            "archive",
            f"the archive status of {primary.name} is unknown",
            breaks="the stop waits until all WAL is archived",
            fix="grant pg_monitor to the role",
        )
    elif archive["failing"]:
        yield failed(
            "archive",
            f"{primary.name} fails to archive {archive['last_failed_wal']}",
            breaks="its stop waits for the archiver without limit",
            fix="runbook archive-failing",
        )
    elif archive["ready"] >= READY_FILES:
        yield failed(
            "archive",
            f"{archive['ready']} WAL files of {primary.name} are not archived yet",
            breaks="its stop waits until they are",
            fix="wait, or find out why archiving is slow",
        )
    else:
        yield ok("archive", f"{archive['ready']} WAL files of {primary.name} wait for the archiver")
    if archive is not None and (seconds := archive.get("seconds") or 0.0) > ARCHIVE_S:
        yield warning(
            "archive.slow",
            f"the last WAL file of {primary.name} was archived {human_duration(seconds)} after it was complete",
            breaks="its stop archives the last file while clients wait: the outage is that much longer",
            fix="find out why archive_command is slow, or archive to a local directory first",
        )


def check_running_work(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if target.work is not None and (backups := target.work["base_backups"]):
        yield warning(
            "work.target",
            f"{backups} base backups of {target.name} are running",
            breaks="a promotion of the standby makes them fail",
            fix="wait until they end",
        )
    if primary.prepared:
        yield failed(
            "prepared",
            f"prepared transactions left open on {primary.name}: {primary.prepared}",
            breaks="they move to the new primary with their locks; their manager must find the new primary",
            fix="COMMIT PREPARED or ROLLBACK PREPARED, by the gid in pg_prepared_xacts",
        )
    work = primary.work
    if work is None or not primary.sees_all:
        yield unknown("work", f"this role may not see sessions of {primary.name}", fix="grant pg_monitor to the role")
        return
    found = [
        f"{number} {one if number == 1 else many}"
        for number, one, many in (
            (work["long_xacts"], "transaction open for more than a minute", "transactions open for more than a minute"),
            (work["dumps"], "session of a dump or restore", "sessions of dumps or restores"),
            (work["base_backups"], "base backup", "base backups"),
            (work["backups"], "session of a backup", "sessions of backups"),
            (work["index_builds"], "index build", "index builds"),
            (work["rewrites"], "VACUUM FULL or CLUSTER", "of VACUUM FULL or CLUSTER"),
        )
        if number
    ]
    if found:
        yield failed(
            "work",
            f"on {primary.name}: {', '.join(found)}",
            breaks="a pause waits for them, and a stop terminates them",
            fix="wait until they end, or terminate them",
        )
    else:
        yield ok("work", f"no long transaction, dump, backup or index build on {primary.name}")


def check_synchronous_standbys(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    """Check the synchronous standbys that commits wait for once the target is the primary."""
    names = target.settings.get("synchronous_standby_names")
    if not names:
        return
    needed, accepted = parse_synchronous_names(names)
    now = [one["application_name"] for one in target.standbys or () if one.get("state") == "streaming"]
    returning = {one.name: _standby_names(one) for one in found.nodes if one.reached and one is not target}
    returning = {name: own for name, own in returning.items() if not own & {*now}}
    present = sum(_is_accepted(one, accepted) for one in now)
    returning_names = [name for name, own in returning.items() if any(_is_accepted(one, accepted) for one in own)]
    text = f"{target.name} has synchronous_standby_names = {names}, which needs {needed}"
    if present >= needed:
        yield ok("synchronous", f"{text}: {', '.join(now)} are connected to it")
    elif present + len(returning_names) >= needed:
        yield warning(
            "synchronous",
            f"{text}, and {present} are connected to it",
            breaks=f"the first commit waits until {', '.join(returning_names)} is its standby: a longer outage",
            fix=f"until then: alter system set synchronous_standby_names = '' on {target.name}, and reload",
        )
    else:
        # Sessions may set synchronous_commit themselves and wait, even if the server's default does not.
        relaxed = target.settings.get("synchronous_commit") in ("off", "local")
        judge = warning if relaxed else failed
        yield judge(
            "synchronous",
            f"{text}: {present} are connected to it, {len(returning_names)} will return with such a name",
            breaks="the first commit after the promotion waits without limit",
            fix=f"set synchronous_standby_names of {target.name} to its standbys, and reload",
        )


def parse_synchronous_names(setting: str) -> tuple[int, tuple[str, ...]]:
    """Return how many standbys a commit waits for, and their names.

    >>> parse_synchronous_names('ANY 2 (db2, "DB 3", *)'), parse_synchronous_names("db2, db3")
    ((2, ('db2', 'DB 3', '*')), (1, ('db2', 'db3')))
    """
    match = re.fullmatch(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\((.*)\)\s*", setting, re.I | re.S)
    count, listed = (int(match[1]), match[2]) if match else (1, setting)
    found = re.findall(r'"((?:[^"]|"")*)"|([^\s,"]+)', listed)
    return count, tuple(quoted.replace('""', '"') or plain for quoted, plain in found)


def _is_accepted(name: str, accepted: tuple[str, ...]) -> bool:
    return "*" in accepted or name.lower() in {one.lower() for one in accepted}


def _standby_names(node: NodeState) -> set[str]:
    """Return the names of a node as a standby: application_name, else cluster_name, else walreceiver."""
    own = (node.upstream or {}).get("application_name")
    return {own or node.settings.get("cluster_name") or "walreceiver", node.name}


def check_synchronized_slots(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check synchronized_standby_slots (17 and later: logical walsenders wait for these slots), and the timeout after
    which a stop gives up on standbys (19)."""
    for node, when in ((primary, "its stop waits for them"), (target, "logical replication from it stops")):
        names = [one.strip() for one in node.settings.get("synchronized_standby_slots", "").split(",") if one.strip()]
        if not names:
            continue
        name = f"slots.waits.{node.name}"
        if node.slots is None:
            yield unknown(name, f"the slots of {node.name} are unknown", breaks=when)
            continue
        available = {
            one["name"] for one in node.slots if one["kind"] == "physical" and (one["active"] or node is target)
        }
        if missing := ", ".join(one for one in names if one not in available):
            what = "not active" if node is primary else "missing"
            yield failed(name, f"synchronized_standby_slots of {node.name} has slots that are {what}: {missing}",
                         breaks=when, fix=f"remove them from the setting of {node.name}, and reload")  # fmt: skip
        else:
            yield ok(name, f"every slot of synchronized_standby_slots of {node.name} exists")
    limit = primary.settings.get("wal_sender_shutdown_timeout")
    if limit not in (None, "-1"):
        yield failed("shutdown", f"{primary.name} has wal_sender_shutdown_timeout = {limit} ms",
                     breaks=f"its stop may end before {target.name} has received everything",
                     fix="alter system set wal_sender_shutdown_timeout = -1, and reload")  # fmt: skip


def check_clocks(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    if primary.clock_apart_s is None or target.clock_apart_s is None:
        return
    apart = abs(primary.clock_apart_s - target.clock_apart_s)
    if apart > CLOCK_S:
        yield warning(
            "clocks",
            f"the clocks of the nodes differ by {human_duration(apart)}",
            breaks="times in the database and in logs jump at the cutover",
            fix="check chrony or ntpd",
        )


# Checks of the hosts: stop and start, free disk space, and the host of the console. Pure.

CRITICAL_PCT, LOW_PCT = 5.0, 10.0
"""Free space in percent, as in the disk findings."""
WAL_FLOOR = 1 << 30
"""PostgreSQL's default max_wal_size: the WAL it may keep between two checkpoints."""


def check_control(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the primary can be stopped and started from here."""
    host = found.hosts.get(primary.name)
    breaks = f"{primary.name} could not be stopped, fenced and started as a standby"
    fix = f"set ssh, data_directory and control in [clusters.{found.cluster}.nodes.{primary.name}]"
    if host is None:
        yield unknown("control", f"the host of {primary.name} was not checked", breaks=breaks)
    elif host.error:
        yield failed("control", f"{primary.name} cannot be stopped from here: {host.error}", breaks=breaks,
                     fix=host.hint or fix)  # fmt: skip
    else:
        yield ok("control", f"the data directory of {primary.name} on {host.name} can be read as its owner")


def check_disks(found: Survey, target: NodeState) -> Iterator[ClusterCheck]:
    host = found.hosts.get(target.name)
    if host is None or host.error or host.data is None or host.wal is None:
        why = "its host was not checked" if host is None else host.error
        yield unknown("disks", f"the free space of {target.name} is unknown: {why}",
                      breaks="a full disk stops the new primary",
                      fix=(host.hint if host else "") or f"set ssh of {target.name} in the configuration")  # fmt: skip
        return
    yield from _check_free_space("disk.data", "data", target, host.data)
    if host.wal.path != host.data.path:
        yield from _check_free_space("disk.wal", "WAL", target, host.wal)


def _check_free_space(name: str, what: str, node: NodeState, mount: MountSpace) -> Iterator[ClusterCheck]:
    pct = 100 * mount.free / mount.size if mount.size else 0.0
    text = f"{human_bytes(mount.free)} ({pct:.0f} %) of {human_bytes(mount.size)} free for {what} of {node.name}"
    breaks, fix = "a full disk stops the new primary", f"free space on {mount.path} of {node.name}"
    if pct < CRITICAL_PCT or mount.free < WAL_FLOOR:
        yield failed(name, text, breaks=breaks, fix=fix)
    elif pct < LOW_PCT:
        yield warning(name, text, breaks=breaks, fix=fix)
    else:
        yield ok(name, text)


def check_console_host(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check where the console runs: the run ends if its host goes down."""
    primary_host, target_host = found.hosts.get(primary.name), found.hosts.get(target.name)
    if primary_host is None or primary_host.error or not primary_host.here:
        return
    if target_host is not None and target_host.here:
        return  # all on one host
    where = "another host" if target_host is None or target_host.error else target_host.name
    yield warning("driving", f"this console runs on the host of {primary.name}, the server that will be stopped",
                  breaks="if that host fails meanwhile, the cutover stops",
                  fix=f"on {where}: dba-console runbook run cutover --input cluster={found.cluster} "
                      f"--input to={target.name}")  # fmt: skip
