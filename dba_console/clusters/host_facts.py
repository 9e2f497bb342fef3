"""What a check reads of a node's host: free space, cluster managers, and whether it reaches the new primary.

Three short commands on each host, through its shell. Nothing is changed; of the process table only lines of cluster
managers leave the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.actions.identity import host_identity
from dba_console.clock import Clock
from dba_console.clusters.control import ServerControl
from dba_console.clusters.host import Host, last_line
from dba_console.clusters.node import NodeState
from dba_console.clusters.pgbouncer_ini import repointed
from dba_console.clusters.plan import conninfo
from dba_console.config import NodeConfig, PoolerConfig
from dba_console.errors import ConsoleError
from dba_console.harmless import clean
from dba_console.redact import redact
from dba_console.short_command import Ended

ANSWER_S = 5.0
CONNECT_S = 3
MANAGERS = "patroni|repmgrd|pg_autoctl"
_FACTS = f"""LC_ALL=C; export LC_ALL; cd "$1" || exit
cat /proc/sys/kernel/random/boot_id; sed -n '3p;4p' postmaster.pid
df -Pk . pg_wal/. | tail -n +2
echo; ps -eo args= | grep -E '{MANAGERS}' | grep -v grep
exit 0
"""
"""Lines 3 and 4 of postmaster.pid: start of the server and port (PostgreSQL's pidfile.h)."""
_REACHES = """LC_ALL=C; HOME=$(getent passwd "$(id -u)" | cut -d: -f6); PATH="$1:$PATH"; export LC_ALL HOME PATH; cd /
exec psql -XAtqw -d "$2" -c IDENTIFY_SYSTEM
"""
"""As the server's own user, so with its passfile; never a question for a password."""
_MISSING = 127


class Mount(Struct, frozen=True, kw_only=True):
    """A file system of a data directory, in bytes."""

    path: str
    size: int
    free: int


class HostState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one node's host. Where `error` is set, only that."""

    error: str = ""
    hint: str = ""
    name: str = ""
    here: bool = False
    """Whether it is the host the console runs on."""
    data: Mount | None = None
    wal: Mount | None = None
    managers: tuple[str, ...] = ()
    """Command lines of cluster managers."""
    reaches: bool | None = None
    """Whether its server's user can open a replication connection to the new primary; None: not tried or unclear."""
    reaches_text: str = ""


def read_host(node: NodeState, config: NodeConfig, target: NodeState | None, clock: Clock) -> HostState:
    """Read a node's host; with `target` also try a replication connection to it from there. Never raises."""
    name = config.ssh or "this host"
    if node.data_directory is None:
        return HostState(
            error=f"the data directory of {node.name} is not known", name=name,
            hint=f"grant pg_read_all_settings to the role, or set data_directory of {node.name}",
        )  # fmt: skip
    try:
        control = ServerControl(node.name, config, node.data_directory, None, clock)
        owner = control.owner()
        ended = control.host.run(
            ["sh", "-c", _FACTS, "sh", node.data_directory], user=owner, timeout_s=ANSWER_S, repeatable=True
        )
        if ended.code != 0:
            return HostState(error=f"{control.host.name}: {last_line(ended)}", name=name)
        found = _facts(ended.output, node, name)
        if found.error or target is None:
            return found
        return _reached(found, control, owner, target)
    except (ConsoleError, OSError) as error:
        message = error.message if isinstance(error, ConsoleError) else str(error)
        hint = error.hint if isinstance(error, ConsoleError) else None
        return HostState(error=clean(redact(message)), hint=clean(hint or ""), name=name)


def pooler_file_error(config: PoolerConfig, databases: Sequence[str], clock: Clock) -> str:
    """Return why the file of a pooler cannot be changed; empty where it can. Never raises."""
    if config.config is None:
        return ""
    host = Host(config.ssh, clock)
    try:
        content = host.read(config.config)
        if content is None:
            return f"{config.config} is not there"
        repointed(content.decode("utf-8", "surrogateescape"), databases, "localhost", "5432")
        directory = config.config.rpartition("/")[0] or "/"
        if host.run(["test", "-w", config.config, "-a", "-w", directory]).code != 0:
            return f"{config.config} or its directory on {host.name} may not be written by {host.account()}"
    except (ConsoleError, OSError) as error:
        return clean(redact(str(error).partition("\n")[0]))
    return ""


def _facts(output: str, node: NodeState, name: str) -> HostState:
    head, _, processes = output.partition("\n\n")
    lines = head.split("\n")
    if len(lines) < 5:
        return HostState(error=f"{name} gives no facts of {node.data_directory}", name=name)
    boot_id, started, port, data, wal = lines[:5]
    if port.strip() != node.settings.get("port") or abs(int(started) - node.server_start_us / 1e6) > 2:
        return HostState(
            error=f"{node.data_directory} on {name} belongs to another server than {node.name}", name=name,
            hint=f"set ssh and data_directory of {node.name}",
        )  # fmt: skip
    return HostState(
        name=name, here=boot_id.strip() == host_identity().boot_id, data=_mount(data), wal=_mount(wal),
        managers=tuple(clean(redact(line.strip())) for line in processes.split("\n") if line.strip()),
    )  # fmt: skip


def _mount(line: str) -> Mount:
    """A line of `df -Pk`: file system, blocks of 1024 bytes, used, available, capacity, mount point."""
    words = line.split()
    return Mount(path=" ".join(words[5:]), size=int(words[1]) * 1024, free=int(words[3]) * 1024)


def _reached(found: HostState, control: ServerControl, owner: str, target: NodeState) -> HostState:
    given = {key: value for key, value in (target.upstream or {}).items() if key not in ("host", "hostaddr", "port")}
    wanted: dict[str, Any] = {
        **given, **target.replication, "replication": "true", "dbname": "replication",
        "connect_timeout": str(CONNECT_S), "application_name": "dba-console",
    }  # fmt: skip
    try:
        directory = control.program("psql").rpartition("/")[0]
    except ConsoleError:
        directory = "/"
    argv = ["sh", "-c", _REACHES, "sh", directory, conninfo(wanted)]
    ended = control.host.run(argv, user=owner, timeout_s=ANSWER_S, repeatable=True)
    reaches, text = _judged(ended, target)
    return msgspec.structs.replace(found, reaches=reaches, reaches_text=text)


def _judged(ended: Ended, target: NodeState) -> tuple[bool | None, str]:
    said = clean(redact(" ".join(ended.errors.split())))
    if ended.code == 0:
        identifier = ended.output.partition("|")[0].strip()
        if target.system_identifier is not None and identifier != target.system_identifier:
            return False, f"another cluster answers: system identifier {clean(identifier)}"
        return True, ""
    if ended.code == _MISSING:
        return None, "psql is not installed there"
    if "no password supplied" in ended.errors:
        return None, "it asks for a password, which its server's user does not have in a passfile"
    return False, said or f"psql ended with code {ended.code}"
