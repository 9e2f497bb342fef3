"""Facts about a node's host for the readiness checks: free space, cluster managers, access to the new primary.

Three short commands on each host, through its shell. Nothing is changed; of the process table only lines of cluster
managers leave the host.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.actions.identity import host_identity
from dba_console.clusters.host_scripts import CONTENT
from dba_console.clusters.node_host import last_line
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.patroni_members import (
    CONFIG,
    Member,
    configured_addresses,
    members_by_api,
    members_by_patronictl,
)
from dba_console.clusters.server_control import ServerControl
from dba_console.core.clock import Clock
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConsoleError, PermissionDenied, Refused, Unsupported
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult
from dba_console.core.target import conninfo

ANSWER_S = 5.0
CONNECT_S = 3
MANAGERS = "patroni|repmgrd|pg_autoctl"
_MANAGER = re.compile(rf"(?:^|[/ ])(?:{MANAGERS})(?:[ :]|$)")
_FACTS = f"""LC_ALL=C; export LC_ALL; cd "$1" || exit; echo "{CONTENT}"
cat /proc/sys/kernel/random/boot_id; sed -n '3p;4p' postmaster.pid
df -Pk . pg_wal/. | tail -n +2
ours() {{ {{ ps -eo uid=,args= 2>/dev/null || ps -o args= | sed 's/^/0 /'; }} | sed -nE "s/^ *($(id -u)|0) //p"; }}
beside=$(ours | sed -n 's!^\\(.* \\)\\{{0,1\\}}\\(/[^ ]*\\)/patroni .*!\\2!p' | head -n 1)
echo; PATH="$PATH:$2:$beside"; for one in patronictl repmgr pg_autoctl; do echo "$one=$(command -v $one)"; done
echo; ours | grep -E '{MANAGERS}' | grep -v grep
exit 0
"""
"""Lines 3 and 4 of postmaster.pid: start time of the server and port (PostgreSQL's pidfile.h).

Any account can start a process with a manager's name: only those of root and of the server's owner count, because their
command lines determine which program and file a cutover uses. The ps of busybox has no uid.
"""
_SPACE = f'LC_ALL=C; export LC_ALL; echo "{CONTENT}"; df -Pk "$1/." "$1/pg_wal/." | tail -n +2'
_TRY_REPLICATION = """LC_ALL=C; HOME=$(getent passwd "$(id -u)" | cut -d: -f6); PATH="$1:$PATH"; export LC_ALL HOME PATH
cd /
exec psql -XAtqw -d "$2" -c IDENTIFY_SYSTEM
"""
"""Runs as the server's user, so with its passfile; never prompts for a password."""
_FIND_PROGRAM = 'command -v "$1"'
_MISSING = 127


class MountSpace(Struct, frozen=True, kw_only=True):
    """Size and free space of a data directory's file system, in bytes."""

    path: str
    size: int
    free: int


class HostState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about one node's host. With `error` nothing else is known."""

    error: str = ""
    hint: str = ""
    name: str = ""
    here: bool = False
    """It is the host of the console."""
    data: MountSpace | None = None
    wal: MountSpace | None = None
    managers: tuple[str, ...] = ()
    """Command lines of cluster managers."""
    programs: dict[str, str] = {}
    """Program name -> path of the managers' programs."""
    members: tuple[Member, ...] = ()
    """Members of a Patroni cluster, as in `patronictl list`."""
    reaches: bool | None = None
    """Whether its server's user can open a replication connection to the new primary; None: not tried or unclear."""
    reaches_text: str = ""


def read_host(node: NodeState, config: NodeConfig, target: NodeState | None, clock: Clock) -> HostState:
    """Read a node's host; with `target` also try a replication connection to it from there. Never raises."""
    name = config.ssh or "this host"
    try:
        if node.data_directory is None:
            raise ConsoleError(
                f"the data directory of {node.name} is unknown",
                hint=f"grant pg_read_all_settings to the role, or set data_directory of {node.name}",
            )
        control = ServerControl(node.name, config, node.data_directory, None, clock)
        owner = control.owner()
        facts = ["sh", "-c", _FACTS, "sh", node.data_directory, _program_directory(control)]
        ended = control.host.run(facts, user=owner, timeout_s=ANSWER_S, repeatable=True)
        if ended.code != 0:
            raise ConsoleError(f"{control.host.name}: {last_line(ended)}")
        found = _parse_facts(ended.output, node, name)
        if node.role == "primary":
            check_stop(control)
        if target is None:
            return _with_members(found, node, control, owner)
        return _with_reachability(found, control, owner, target)
    except (ConsoleError, OSError) as error:
        message = error.message if isinstance(error, ConsoleError) else str(error)
        hint = error.hint if isinstance(error, ConsoleError) else None
        return HostState(error=clean(redact(message)), hint=clean(hint or ""), name=name)


def read_free_space(control: ServerControl) -> list[MountSpace]:
    """Return the file systems of the data directory and of pg_wal, each once. Raises ConsoleError if unreadable."""
    argv = ["sh", "-c", _SPACE, "sh", control.data_directory]
    ended = control.host.run(argv, user=control.owner(), timeout_s=ANSWER_S, repeatable=True)
    try:
        mounts = [_mount(line) for line in ended.output.rpartition(f"{CONTENT}\n")[2].splitlines()]
    except (ValueError, IndexError) as error:
        raise ConsoleError(f"free space of {control.name} cannot be read: {last_line(ended)}") from error
    return list({mount.path: mount for mount in mounts}.values())


def check_stop(control: ServerControl) -> None:
    """Raise ConsoleError if the stop command of the server is missing on the host, or the account may not run it."""
    try:
        argv = control.stop_command()
    except Refused:  # memory limit of this process: checked when a cutover begins
        return
    host, own = control.host, argv[argv.index("--") + 1 :] if argv[0] in ("sudo", "runuser") and "--" in argv else argv
    if host.run(["sh", "-c", _FIND_PROGRAM, "sh", own[0]], timeout_s=ANSWER_S, repeatable=True).code != 0:
        raise Unsupported(f"{clean(own[0])} is missing on {host.name}", hint="it is needed to stop the server")
    if argv[0] == "sudo":
        listed = host.run([*argv[:2], "-l", *argv[2:]], timeout_s=ANSWER_S, repeatable=True)
        if listed.code != 0:
            raise PermissionDenied(f"`{clean(shlex.join(argv))}` is not allowed: {last_line(listed)}")
    if own[:2] == ["systemctl", "stop"]:
        unit = host.run(["systemctl", "show", "-p", "LoadState", *own[2:]], timeout_s=ANSWER_S, repeatable=True)
        if unit.output.strip() != "LoadState=loaded":
            raise Unsupported(f"systemd on {host.name} has no unit {own[-1]}: {last_line(unit)}")


def _parse_facts(output: str, node: NodeState, name: str) -> HostState:
    """Raises ConsoleError if they are missing, or belong to another server."""
    answer = output.rpartition(f"{CONTENT}\n")[2]  # after the output of a login shell
    head, programs, processes = (*answer.split("\n\n", 2), "", "")[:3]
    try:
        boot_id, started, port, data_line, wal_line = head.split("\n")[:5]
        data, wal = _mount(data_line), _mount(wal_line)
        apart_s = abs(int(started) - node.server_start_us / 1e6)
    except (ValueError, IndexError):
        raise ConsoleError(f"{name} returned no facts about {node.data_directory}") from None
    if port.strip() != node.settings.get("port") or apart_s > 2:
        raise ConsoleError(
            f"{node.data_directory} on {name} belongs to another server than {node.name}",
            hint=f"set ssh and data_directory of {node.name}",
        )
    return HostState(
        name=name, here=boot_id.strip() == host_identity().boot_id, data=data, wal=wal,
        programs={name: path for name, _, path in (line.partition("=") for line in programs.split("\n")) if path},
        managers=tuple(clean(redact(line)) for line in map(str.strip, processes.split("\n")) if _is_manager(line)),
    )  # fmt: skip


def _program_directory(control: ServerControl) -> str:
    """Return the directory of the server's programs; / if unknown, which contains none."""
    try:
        return control.program("psql").rpartition("/")[0]
    except ConsoleError:
        return "/"


def _with_members(found: HostState, node: NodeState, control: ServerControl, owner: str) -> HostState:
    """Add the members of a Patroni cluster, if Patroni was detected."""
    if not ((node.details.managers or {}).get("patroni") or (node.work or {}).get("patroni")):
        return found
    config = next((match[0] for line in found.managers if (match := CONFIG.search(line)) is not None), None)
    lines = "" if config is None else configured_addresses(control.host, config, owner)
    members = members_by_api((host for host, _ in node.places), lines)
    if not members and config is not None and (program := found.programs.get("patronictl")):
        members = members_by_patronictl(control.host, program, config, owner)
    return msgspec.structs.replace(found, members=members)


def _is_manager(line: str) -> bool:
    """Whether a command line is a manager's program; a server whose data directory has its name does not count.

    >>> _is_manager("/usr/bin/python3 /usr/bin/patroni /etc/patroni/15.yml"), _is_manager("postgres -D /srv/patroni")
    (True, False)
    """
    program = line.split(" ", 1)[0].rpartition("/")[2]
    return _MANAGER.search(line) is not None and not program.startswith("postgres")


def _mount(line: str) -> MountSpace:
    """Parse a line of `df -Pk`: file system, 1024-byte blocks, used, available, capacity, mount point."""
    words = line.split()
    return MountSpace(path=" ".join(words[5:]), size=int(words[1]) * 1024, free=int(words[3]) * 1024)


def _with_reachability(found: HostState, control: ServerControl, owner: str, target: NodeState) -> HostState:
    upstream = {key: value for key, value in (target.upstream or {}).items() if key not in ("host", "hostaddr", "port")}
    options: dict[str, Any] = {
        **upstream, **target.replication, "replication": "true", "dbname": "replication",
        "connect_timeout": str(CONNECT_S), "application_name": "dba-console",
    }  # fmt: skip
    argv = ["sh", "-c", _TRY_REPLICATION, "sh", _program_directory(control), conninfo(options)]
    ended = control.host.run(argv, user=owner, timeout_s=ANSWER_S, repeatable=True)
    reaches, text = _reachability(ended, target)
    return msgspec.structs.replace(found, reaches=reaches, reaches_text=text)


def _reachability(ended: CommandResult, target: NodeState) -> tuple[bool | None, str]:
    printed = clean(redact(" ".join(ended.errors.split())))
    if ended.code == 0:
        identifier = ended.output.strip().rpartition("\n")[2].partition("|")[0].strip()
        if target.system_identifier is not None and identifier != target.system_identifier:
            return False, f"another cluster answers: system identifier {clean(identifier)}"
        return True, ""
    if ended.code == _MISSING:
        return None, "psql is not installed there"
    if "no password supplied" in ended.errors:
        return None, "it needs a password, and its server's user has none in a passfile"
    return False, printed or f"psql ended with code {ended.code}"
