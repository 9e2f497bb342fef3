"""Cluster managers Patroni, repmgr and pg_auto_failover: detection, commands, and their readiness checks. Pure.

An active manager promotes nodes and starts stopped servers automatically: a cutover beside it makes two primaries.
Detection needs no privileges: sessions by application_name, options that only its program sets, its roles and database;
and the process table of the hosts that can be reached.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.patroni_members import CONFIG
from dba_console.clusters.survey import Survey
from dba_console.core.errors import Refused

Kind = Literal["Patroni", "repmgr", "pg_auto_failover"]
SUPPORTED_KINDS: tuple[Kind, ...] = ("Patroni", "repmgr")
"""Managers whose switchover a cutover runs. That of pg_auto_failover was not tested."""
_STANDBY = re.compile(r"pgautofailover_standby_\d+")
"""Names of slots and standbys of pg_auto_failover (its documentation, "Architecture")."""


class Manager(Struct, frozen=True, kw_only=True):
    """A detected cluster manager, with its names of the nodes."""

    kind: Kind
    is_active: bool
    """Whether it may promote, start or stop a server automatically now."""
    evidence: str
    scope: str = ""
    """Patroni's name of the cluster."""
    members: dict[str, str] = {}
    """Node name -> its name in the manager."""
    config: dict[str, str] = {}
    """Node name -> configuration file on its host; for pg_auto_failover the data directory."""
    programs: dict[str, str] = {}
    """Node name -> path of the switchover program on its host."""

    @property
    def status(self) -> str:
        """The command that shows the manager's view of the cluster."""
        file = next(iter(self.config.values()), "FILE")
        return {
            "Patroni": f"patronictl -c {file} list",
            "repmgr": f"repmgr -f {file} service status",
            "pg_auto_failover": f"pg_autoctl show state --pgdata {file}",
        }[self.kind]


class ManagedCommand(Struct, frozen=True):
    """A command of a manager, and the node on whose host it must run, as the owner of the data directory."""

    node: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


def find_managers(found: Survey) -> list[Manager]:
    """Return the detected managers, active ones first."""
    managers = [one for one in (_patroni(found), _repmgr(found), _autofailover(found)) if one is not None]
    return sorted(managers, key=lambda one: not one.is_active)


def active_manager(found: Survey) -> Manager | None:
    """Return the active manager; None: none, or more than one."""
    active = [one for one in find_managers(found) if one.is_active]
    return active[0] if len(active) == 1 else None


def switchover_command(manager: Manager, from_: str, to: str) -> ManagedCommand:
    """Return the manager's switchover command to `to`. Raises Refused with the command to run in its hint."""
    target, leader = manager.members.get(to), manager.members.get(from_)
    node, complete = to, to in manager.config
    arguments: tuple[str, ...]
    if manager.kind == "Patroni":
        node = to if complete else next(iter(manager.config), to)
        program, config = "patronictl", manager.config.get(node, "CONFIG.yml")
        arguments = ("-c", config, "switchover", manager.scope or "SCOPE", "--leader", leader or "LEADER",
                     "--candidate", target or "CANDIDATE", "--force")  # fmt: skip
        complete = bool(manager.config and manager.scope and leader and target)
    elif manager.kind == "repmgr":
        program, config = "repmgr", manager.config.get(to, "/etc/repmgr.conf")
        arguments = ("-f", config, "standby", "switchover", "--siblings-follow")
    else:
        program, config = "pg_autoctl", manager.config.get(to, "PGDATA")
        arguments = ("perform", "promotion", "--pgdata", config)
    argv = (manager.programs.get(node, program), *arguments)
    command = ManagedCommand(node, argv)
    if not (complete and node in manager.programs):
        raise Refused(
            f"{manager.kind} manages this cluster, and the console cannot run its switchover: its program, "
            f"configuration or names were not found on the host of {node}",
            hint=f"on {node}: {command}",
        )
    return command


def pause_command(manager: Manager, to: str) -> ManagedCommand | None:
    """Return the command that pauses repmgr; None: it is another manager, or its configuration is unknown."""
    if manager.kind != "repmgr" or to not in manager.config:
        return None
    return ManagedCommand(to, (manager.programs.get(to, "repmgr"), "-f", manager.config[to], "service", "pause"))


def check_managers(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check the managers: an active one does a part of the cutover, or blocks it; others need work afterwards."""
    active = active_manager(found)
    for one in find_managers(found):
        name = f"managed.{one.kind.lower()}"
        try:
            own = switchover_command(one, primary.name, target.name)
            command, runs = f"on {own.node}: {own}", one.kind in SUPPORTED_KINDS and active == one
        except Refused as error:
            command, runs = error.hint or "", False
        if one.is_active and runs:
            yield ok(name, f"{one.kind} manages this cluster: {one.evidence}; a cutover runs its switchover, {command}")
        elif one.is_active:
            stop = pause_command(one, target.name)
            more = f"; or pause it, on {stop.node}: {stop}" if stop is not None else ""
            yield failed(name, f"{one.kind} manages this cluster: {one.evidence}",
                         breaks="it starts stopped servers and promotes automatically: two primaries",
                         fix=f"use its own switchover, {command}{more}")  # fmt: skip
        else:
            afterwards = {
                "repmgr": f"its table repmgr.nodes is wrong after the cutover: repmgr primary register --force on "
                          f"{target.name}, repmgr standby register --force on {primary.name}",
                "Patroni": "when it is started again, it acts on its state from before the cutover",
                "pg_auto_failover": "when it is started again, it acts on its state from before the cutover",
            }[one.kind]  # fmt: skip
            yield warning(name, f"{one.kind} is not active now: {one.evidence}", breaks=afterwards,
                          fix=f"or use its own switchover, {command}")  # fmt: skip


def _patroni(found: Survey) -> Manager | None:
    sessions = [node.name for node in found.nodes if node.work and node.work.get("patroni")]
    started = [node.name for node in found.nodes if (node.details.managers or {}).get("patroni")]
    lines = {name: own for name, host in found.hosts.items() if (own := [x for x in host.managers if "patroni" in x])}
    if not (sessions or started):
        return None
    parts = [f"connected to {', '.join(sessions)}"] if sessions else []
    parts += [f"its options started {', '.join(started)}"] if started else []
    parts += [f"it runs on the host of {', '.join(lines)}"] if lines else []
    config = {name: match[0] for name, own in lines.items() if (match := CONFIG.search("\n".join(own))) is not None}
    scope = next((node.settings["cluster_name"] for node in found.nodes if node.settings.get("cluster_name")), "")
    members: dict[str, str] = {}
    for host in found.hosts.values():
        for member in host.members:
            members |= {node.name: member.name for node in found.nodes if _is_at(node, member.host, member.port)}
    return Manager(
        kind="Patroni", is_active=bool(sessions or lines), evidence="; ".join(parts), scope=scope, config=config,
        members=members or _by_application_name(found), programs=_programs(found, "patronictl"),
    )  # fmt: skip


def _repmgr(found: Survey) -> Manager | None:
    rows = {node.name: node.details.repmgr for node in found.nodes if node.details.repmgr}
    sessions = [node.name for node in found.nodes if node.work and node.work.get("repmgr")]
    lines = [name for name, host in found.hosts.items() if any("repmgrd" in line for line in host.managers)]
    if not (rows or sessions or lines):
        return None
    # repmgrd keeps a session on its node: one without is that of another cluster on the host.
    answering = [node for node in found.nodes if node.reached]
    if not (rows or sessions) and answering and all(node.work and node.sees_all for node in answering):
        return None
    running = [name for name, one in rows.items() if one.get("running")]
    unpaused = [name for name in running if not rows[name].get("paused")]
    unreadable = [name for name, one in rows.items() if one.get("error")]
    members: dict[str, str] = {}
    config: dict[str, str] = {}
    for row in (row for one in rows.values() for row in one.get("nodes", ())):
        for node in found.nodes:
            if _is_at(node, row["host"], row["port"]):
                members[node.name], config[node.name] = row["name"], row["config"]
    if unpaused:
        evidence = f"repmgrd runs on {', '.join(unpaused)}"
    elif running:
        evidence = f"repmgrd is paused on {', '.join(running)}"
    elif unreadable and (sessions or lines):
        evidence = f"it is connected to {', '.join(sessions or lines)}, and whether repmgrd is paused is unknown"
    elif sessions or lines:
        evidence = f"it is connected to {', '.join(sessions or lines)}"
    else:
        evidence = "its extension is installed, and repmgrd does not run"
    is_active = bool(unpaused) or (not running and bool(lines or sessions))
    return Manager(
        kind="repmgr",
        is_active=is_active,
        evidence=evidence,
        members=members,
        config=config,
        programs=_programs(found, "repmgr"),
    )


def _autofailover(found: Survey) -> Manager | None:
    roles = [node.name for node in found.nodes if (node.details.managers or {}).get("autofailover")]
    streams = {
        str(row.get("application_name"))
        for node in found.nodes
        for row in node.standbys or ()
        if _STANDBY.fullmatch(str(row.get("application_name")))
    }
    sessions = [node.name for node in found.nodes if node.work and node.work.get("autofailover")]
    lines = [name for name, host in found.hosts.items() if any("pg_autoctl" in line for line in host.managers)]
    if not (roles or streams or sessions or lines):
        return None
    # pg_autoctl creates its role before it manages a server: without it, it is that of another cluster on the host.
    answering = [node for node in found.nodes if node.reached]
    if not (roles or streams or sessions) and answering and all(node.details.managers for node in answering):
        return None
    is_active = bool(streams or sessions or lines)
    if lines:
        evidence = f"pg_autoctl runs on the host of {', '.join(lines)}"
    elif streams:
        evidence = f"a standby is named {', '.join(sorted(streams))}"
    elif sessions:
        evidence = f"it is connected to {', '.join(sessions)}"
    else:
        evidence = "its role pgautofailover_replicator exists"
    config = {node.name: node.data_directory for node in found.nodes if node.data_directory and node.name in lines}
    return Manager(
        kind="pg_auto_failover",
        is_active=is_active,
        evidence=evidence,
        config=config,
        programs=_programs(found, "pg_autoctl"),
    )


def _is_at(node: NodeState, host: str, port: str) -> bool:
    return (host, port) in node.places


def _by_application_name(found: Survey) -> dict[str, str]:
    """Return member names by node: a standby of Patroni has its member name as application_name."""
    names = ((node.name, (node.upstream or {}).get("application_name")) for node in found.nodes)
    return {name: member for name, member in names if member}


def _programs(found: Survey, name: str) -> dict[str, str]:
    return {node: host.programs[name] for node, host in found.hosts.items() if name in host.programs}
