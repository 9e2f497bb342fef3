"""Doctor checks of the host, its tools, the sessions directory, file ownership, the server and the role."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dba_console.cli.doctor.check import DoctorCheck, missing, ok, unknown
from dba_console.cli.formatting import split_note
from dba_console.core.errors import ExitCode
from dba_console.core.paths import trust_problem
from dba_console.core.units import human_bytes
from dba_console.watch.frames.picture import Picture
from dba_console.watch.probes.host.file_systems import hidepid_option
from dba_console.watch.samples.host import (
    MEMORY_FILE_SYSTEMS,
    NETWORK_FILE_SYSTEMS,
    ControlFile,
    HostSettings,
    Mount,
    Pressure,
    Processes,
)
from dba_console.watch.samples.postgres import Server

HOST = "host"


def check_host(picture: Picture, *, euid: int) -> Iterator[DoctorCheck]:
    """Check access to the postmaster's processes and to kernel statistics; `euid` is the console's user id."""
    yield _processes(picture)
    yield _process_io(picture)
    yield _pressure(picture)
    yield _delay_accounting(picture)
    yield _control_file(picture)
    yield _root(euid)


def _processes(picture: Picture) -> DoctorCheck:
    processes = picture.now("host.processes", Processes)
    if processes is not None:
        text = f"/proc shows the postmaster (pid {processes.postmaster}) and its {processes.total} processes"
        return ok(HOST, "processes", text)
    hidden = hidepid_option()
    lost = "CPU, I/O and state of each backend; the count of connections when no slot is free"
    return missing(
        HOST, "processes", _note(picture, "host.processes", "the postmaster was not found in /proc"), lost=lost,
        fix=f"run as root or as the server's user, or mount /proc without {hidden}" if hidden else
        "run on the server's host",
    )  # fmt: skip


def _process_io(picture: Picture) -> DoctorCheck:
    processes = picture.now("host.processes", Processes)
    if processes is None or not processes.rows:
        return unknown(
            HOST, "process_io", "/proc/PID/io: unknown without the postmaster",
            lost="bytes read and written by each backend", fix="run as root or as the server's user",
        )  # fmt: skip
    if any(row.read_bytes is not None for row in processes.rows):
        return ok(HOST, "process_io", "/proc/PID/io of the backends can be read")
    return missing(
        HOST, "process_io", "/proc/PID/io of the backends cannot be read by this user",
        lost="bytes read and written by each backend", fix="sudo dba-console, or run it as the server's user",
    )  # fmt: skip


def _pressure(picture: Picture) -> DoctorCheck:
    pressure = picture.now("host.pressure", Pressure)
    if pressure is not None and pressure.io_some is not None:
        return ok(HOST, "psi", "pressure stall information (/proc/pressure) is available")
    fix = "boot with psi=1 on the kernel's command line (kernel 4.20 or newer)"
    lost = "the share of time in which tasks stall for I/O or memory"
    return missing(HOST, "psi", _note(picture, "host.pressure", "no /proc/pressure"), lost=lost, fix=fix)


def _delay_accounting(picture: Picture) -> DoctorCheck:
    settings = picture.now("host.settings", HostSettings)
    if settings is None or settings.task_delayacct is None:
        return unknown(HOST, "task_delayacct", _note(picture, "host.settings", "no kernel.task_delayacct here"))
    if settings.task_delayacct:
        return ok(HOST, "task_delayacct", "kernel.task_delayacct is on")
    return missing(
        HOST, "task_delayacct", "kernel.task_delayacct is off", lost="time each backend waits for block I/O",
        fix="sysctl -w kernel.task_delayacct=1",
    )  # fmt: skip


def _control_file(picture: Picture) -> DoctorCheck:
    if picture.now("host.control", ControlFile) is not None:
        return ok(HOST, "control_file", "global/pg_control can be read")
    return missing(
        HOST, "control_file", _note(picture, "host.control", "global/pg_control cannot be read by this user"),
        lost="identity, role and limits of the server without a connection",
        fix="run as root or as the server's user, or initdb --allow-group-access with this user in its group",
    )  # fmt: skip


def _root(euid: int) -> DoctorCheck:
    if euid == 0:
        return ok(HOST, "root", "running as root")
    return missing(
        HOST, "root", f"not running as root (uid {euid}); root is not required",
        lost="what only root may read: /proc/PID/io of other users' processes, files of the data directory",
    )  # fmt: skip


def _note(picture: Picture, part: str, otherwise: str) -> str:
    """Return the probe's own message if it has one."""
    latest = picture.latest.get(part)
    return (latest.part.note if latest is not None else None) or otherwise


# Programs of the host that help in an incident. The console needs none of them.

TOOLS = "tools"


class Tool(NamedTuple):
    """A program, the impact of its absence, and its package (Debian, Red Hat)."""

    name: str
    lost: str
    debian: str
    redhat: str


_TOOLS = (
    Tool("tmux", "a terminal that survives a dropped SSH session (the agent does anyway)", "tmux", "tmux"),
    Tool("psql", "SQL beyond the console's actions and runbooks", "postgresql-client", "postgresql"),
    Tool("pg_dump", "dumping from this host", "postgresql-client", "postgresql"),
    Tool("pg_restore", "restoring from this host", "postgresql-client", "postgresql"),
    Tool("pg_basebackup", "base backups taken from this host", "postgresql-client", "postgresql"),
    Tool("iostat", "a cross-check of the I/O panel", "sysstat", "sysstat"),
    Tool("vmstat", "a cross-check of the memory panel", "procps", "procps-ng"),
    Tool("lsof", "finding the process that has a deleted file open", "lsof", "lsof"),
)


def check_tools(which: Callable[[str], str | None]) -> Iterator[DoctorCheck]:
    """Yield one check per program; `which` returns its path or None, like shutil.which."""
    installer = "apt-get install" if which("apt-get") else "dnf install" if which("dnf") else None
    for tool in _TOOLS:
        path = which(tool.name)
        if path is not None:
            yield ok(TOOLS, tool.name, f"{tool.name}: {path}")
            continue
        package = tool.redhat if installer == "dnf install" else tool.debian
        fix = f"{installer} {package}" if installer else f"install {tool.name}"
        yield missing(TOOLS, tool.name, f"{tool.name} is not installed", lost=tool.lost, fix=fix)


# The sessions directory: writable, persistent, and on a mount that does not fill or stall with the database.

SESSIONS = "sessions"
_OTHER_DIRECTORY_FIX = '[recording] directory = "…" in the configuration, or $DBA_CONSOLE_SESSIONS'
_CRITICAL_LOCATIONS = {"data": "PGDATA", "wal": "WAL", "archive": "the WAL archive"}


def check_sessions(
    directory: str, refused: str | None, mount: Mount | None, keep_bytes: int, *, locations_known: bool = True
) -> Iterator[DoctorCheck]:
    """Check the sessions directory. `refused` is why it is not writable, `mount` its mount.

    `locations_known`: the server's directories are known, so a mount without any of them is a separate one.
    """
    if refused is not None:
        yield missing(
            SESSIONS, "writable", f"{directory}: {refused}", lost="the recording: nothing is saved",
            fix=_OTHER_DIRECTORY_FIX, critical=ExitCode.SESSION,
        )  # fmt: skip
    else:
        yield ok(SESSIONS, "writable", f"sessions are written to {directory}")
    if mount is None:
        yield unknown(SESSIONS, "file_system", "the file system of the sessions directory is unknown")
        return
    yield _file_system(mount)
    yield _shared(mount, locations_known)
    yield _space(mount, keep_bytes)


def _file_system(mount: Mount) -> DoctorCheck:
    what = f"{mount.fstype} at {mount.path}"
    if mount.status == "timeout":
        return missing(
            SESSIONS, "file_system", f"{what} does not answer: {mount.note or 'statvfs hangs'}",
            lost="the recording while it hangs; live monitoring goes on", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    if mount.fstype in NETWORK_FILE_SYSTEMS:
        return missing(
            SESSIONS,
            "file_system",
            f"sessions are on a network file system ({what})",
            lost="recording while the network or its server stalls, and the locks SQLite relies on",
            fix=_OTHER_DIRECTORY_FIX,
        )
    if mount.fstype in MEMORY_FILE_SYSTEMS:
        return missing(
            SESSIONS, "file_system", f"sessions are in memory ({what})",
            lost="every session at the next reboot", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    return ok(SESSIONS, "file_system", f"on {what}")


def _shared(mount: Mount, locations_known: bool) -> DoctorCheck:
    shared = [name for what, name in _CRITICAL_LOCATIONS.items() if what in mount.holds]
    shared += [what.replace(":", " ") for what in mount.holds if what.startswith("tablespace:")]
    if not shared and not locations_known:
        return unknown(
            SESSIONS, "shared", "whether the mount is shared with PGDATA or WAL: their location cannot be read"
        )
    if not shared:
        return ok(SESSIONS, "shared", "no mount shared with PGDATA, WAL or tablespaces")
    return missing(
        SESSIONS, "shared", f"shares the mount {mount.path} with {', '.join(shared)}",
        lost="the recording just when that file system is full or stalled; it also takes space from the database",
        fix=_OTHER_DIRECTORY_FIX,
    )  # fmt: skip


def _space(mount: Mount, keep_bytes: int) -> DoctorCheck:
    if mount.available is None:
        return unknown(SESSIONS, "space", f"free space of {mount.path} is unknown")
    text = f"{human_bytes(mount.available)} free, sessions may use {human_bytes(keep_bytes)}"
    if mount.available >= keep_bytes:
        return ok(SESSIONS, "space", text)
    return missing(
        SESSIONS, "space", text, lost="recording when the file system is full",
        fix="a smaller recording.max_size, or another directory: " + _OTHER_DIRECTORY_FIX,
    )  # fmt: skip


# Whether another user can write files that the console reads, or directories it writes to.

FILES = "files"


def check_files(config: Path, runbooks: Sequence[str], directories: Sequence[Path]) -> Iterator[DoctorCheck]:
    """Check the configuration, the runbook directories, and those of sessions, state and sockets."""
    refused = False
    for path, lost in (
        (config, "the configuration: commands refuse it"),
        *((Path(os.path.expanduser(one)), "its runbooks: they are not used") for one in runbooks),
        *((one, "the files written there") for one in directories),
    ):
        if (why := trust_problem(path)) is not None:
            refused = True
            yield missing(FILES, "others", f"{path}: {why.text}", lost=lost, fix=why.fix)
    if not refused:
        yield ok(FILES, "others", "no other user can write the configuration, the runbooks or the recordings")


# The server: connection, pooler, whether it is on this host, and the privileges of the role.

SERVER = "server"
PRIVILEGES = "privileges"


def check_server(server: Server | None, note: str | None) -> list[DoctorCheck]:
    """Check connection, pooler, locality and privileges. `server` None: not connected, and `note` says why."""
    if server is None:
        text, hint = split_note(note, "the server does not answer")
        lost = "everything read by SQL; /proc and process titles still work if the server runs on this host"
        return [
            missing(
                SERVER, "connection", text, lost=lost, critical=ExitCode.CONNECT,
                fix=hint or "try psql with the same connection string",
            ),
            unknown(PRIVILEGES, "privileges", "not checked: no connection"),
        ]  # fmt: skip
    role = "standby" if server.in_recovery else "primary"
    connected = f"connected as {server.current_user} to {server.database}: PostgreSQL {server.version}, {role}"
    return [ok(SERVER, "connection", connected), _pooler(server), _check_locality(server), *check_privileges(server)]


def _pooler(server: Server) -> DoctorCheck:
    if server.through is None:
        return ok(SERVER, "pooler", "no connection pooler in between")
    return missing(
        SERVER, "pooler", f"the connection goes through {server.through}",
        lost="the held slot: the pool may give it to other clients; session settings may not persist; "
        "session-level facts belong to whichever server connection the pool assigned",
        fix="use the server's own host and port in the connection string",
    )  # fmt: skip


def _check_locality(server: Server) -> DoctorCheck:
    if server.local:
        return ok(SERVER, "local", server.local_note or "the server runs on this host")
    text = server.local_note or "unknown whether the server runs on this host"
    lost = "the host's panels: I/O, memory, disks, CPU of the backends"
    fix = "run dba-console on the server's host; or set host_panels = true for this target if this is its host"
    if server.local is False:
        return missing(SERVER, "local", text, lost=lost, fix=fix)
    return unknown(SERVER, "local", text, lost=lost, fix=fix)


def check_privileges(server: Server) -> Iterator[DoctorCheck]:
    """Check the rights of the role ("Predefined Roles" and "Connections and Authentication" in the manual)."""
    role = _quote_role(server.current_user)
    yield _superuser(server)
    if server.reset_role is not None:
        yield _foreign_role(server, role)
    yield _granted(
        "pg_monitor", server.pg_monitor or server.superuser, role,
        lost="queries and states of other users' sessions, the data directory, and lists of WAL and archive files",
    )  # fmt: skip
    yield _granted(
        "pg_signal_backend", server.signal_backend or server.superuser, role,
        lost="cancelling or ending sessions of other users, here (`c`, `k`, runbooks) and from psql",
    )  # fmt: skip
    yield _reserved(server, role)


def _superuser(server: Server) -> DoctorCheck:
    if server.superuser:
        return ok(PRIVILEGES, "superuser", f"{server.current_user} is a superuser")
    return missing(
        PRIVILEGES, "superuser", f"{server.current_user} is not a superuser; superuser is not required",
        lost="the slots of superuser_reserved_connections, and hiding the console's queries from pg_stat_statements",
    )  # fmt: skip


def _foreign_role(server: Server, role: str) -> DoctorCheck:
    """Name a role that the owner of the database may have set for every session in it (ALTER DATABASE … SET role)."""
    other, database = _quote_role(server.reset_role or ""), _quote_role(server.database)
    return missing(
        PRIVILEGES, "role", f"the database {server.database} or the role {server.current_user} sets role = {other}",
        lost="nothing here: the console uses the login role; other programs get the rights of the role that is set",
        fix=f"ALTER DATABASE {database} RESET role; or ALTER ROLE {role} RESET role;",
    )  # fmt: skip


def _granted(name: str, granted: bool, role: str, *, lost: str) -> DoctorCheck:
    if granted:
        return ok(PRIVILEGES, name, f"has {name}")
    return missing(PRIVILEGES, name, f"lacks {name}", lost=lost, fix=f"GRANT {name} TO {role};")


def _reserved(server: Server, role: str) -> DoctorCheck:
    settings = {setting.name: setting.value for setting in server.settings}
    for_superusers = settings.get("superuser_reserved_connections", "?")
    if server.superuser:
        return ok(PRIVILEGES, "reserved", f"may use the {for_superusers} slots of superuser_reserved_connections")
    slots = settings.get("reserved_connections", "0")
    if server.reserved_member and slots != "0":
        return ok(PRIVILEGES, "reserved", f"may use the {slots} slots of reserved_connections")
    lost = "a slot of its own if all others are taken before the console starts: it then starts in blind mode"
    if server.version_num < 160000:
        text = "no reserved slots for this role (reserved_connections requires PostgreSQL 16)"
        return missing(PRIVILEGES, "reserved", text, lost=lost, fix="start the console early: it keeps its slot")
    fixes = []
    if not server.reserved_member:
        fixes.append(f"GRANT pg_use_reserved_connections TO {role};")
    if slots == "0":
        fixes.append("ALTER SYSTEM SET reserved_connections = 2;  -- and restart the server")
    return missing(PRIVILEGES, "reserved", "no reserved slot for this role", lost=lost, fix=" ".join(fixes))


def _quote_role(name: str) -> str:
    """Return the role as SQL writes it: quoted unless it is plain lower case."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[:1].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'
