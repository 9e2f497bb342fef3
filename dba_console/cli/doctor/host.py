"""What the kernel shows of the server to this user."""

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
from dba_console.watch.frames.disks import MEMORY, NETWORK
from dba_console.watch.frames.picture import Picture
from dba_console.watch.probes.host.file_systems import hidepid_option
from dba_console.watch.samples.host import ControlFile, HostSettings, Mount, Pressure, Processes
from dba_console.watch.samples.postgres import Server

HOST = "host"


def check_host(picture: Picture, *, euid: int) -> Iterator[DoctorCheck]:
    """Access to the postmaster's processes and to what the kernel measures; `euid` is the console's user id."""
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
        fix=f"run it as root or as the server's user, or mount /proc without {hidden}" if hidden else
        "run on the server's host",
    )  # fmt: skip


def _process_io(picture: Picture) -> DoctorCheck:
    processes = picture.now("host.processes", Processes)
    if processes is None or not processes.rows:
        return unknown(
            HOST, "process_io", "/proc/PID/io: not known without the postmaster",
            lost="bytes read and written by each backend", fix="run it as root or as the server's user",
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
        return ok(HOST, "psi", "pressure stall information (/proc/pressure) is there")
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
        lost="identity, role and limits of the server while no connection can be had",
        fix="run as root or as the server's user, or initdb --allow-group-access with this user in its group",
    )  # fmt: skip


def _root(euid: int) -> DoctorCheck:
    if euid == 0:
        return ok(HOST, "root", "running as root")
    return missing(
        HOST, "root", f"not running as root (uid {euid}), and need not be",
        lost="what only root may read: /proc/PID/io of other users' processes, files of the data directory",
    )  # fmt: skip


def _note(picture: Picture, part: str, otherwise: str) -> str:
    """The probe's own sentence where it has one."""
    latest = picture.latest.get(part)
    return (latest.part.note if latest is not None else None) or otherwise


# Programs of the host that help in an incident. The console itself needs none of them.

TOOLS = "tools"


class Tool(NamedTuple):
    """A program, what is lost without it, and the package it comes in (Debian, Red Hat)."""

    name: str
    lost: str
    debian: str
    redhat: str


_TOOLS = (
    Tool("tmux", "a terminal that outlives a dropped SSH session (the agent does so anyway)", "tmux", "tmux"),
    Tool("psql", "acting on what is seen: the console only reads", "postgresql-client", "postgresql"),
    Tool("pg_dump", "dumping from this host", "postgresql-client", "postgresql"),
    Tool("pg_restore", "restoring from this host", "postgresql-client", "postgresql"),
    Tool("pg_basebackup", "base backups taken from this host", "postgresql-client", "postgresql"),
    Tool("iostat", "a second opinion on the I/O panel", "sysstat", "sysstat"),
    Tool("vmstat", "a second opinion on the memory panel", "procps", "procps-ng"),
    Tool("lsof", "finding who holds a deleted file open", "lsof", "lsof"),
)


def check_tools(which: Callable[[str], str | None]) -> Iterator[DoctorCheck]:
    """One check per program; `which` gives its path or None, as shutil.which."""
    installer = "apt-get install" if which("apt-get") else "dnf install" if which("dnf") else None
    for tool in _TOOLS:
        path = which(tool.name)
        if path is not None:
            yield ok(TOOLS, tool.name, f"{tool.name}: {path}")
            continue
        package = tool.redhat if installer == "dnf install" else tool.debian
        fix = f"{installer} {package}" if installer else f"install {tool.name}"
        yield missing(TOOLS, tool.name, f"{tool.name} is not installed", lost=tool.lost, fix=fix)


# Where sessions are written: can they be, will they stay, and do they fill up or stall together with the database.

SESSIONS = "sessions"
_OTHER_DIRECTORY_FIX = '[recording] directory = "…" in the configuration, or $DBA_CONSOLE_SESSIONS'
_CRITICAL_LOCATIONS = {"data": "PGDATA", "wal": "WAL", "archive": "the WAL archive"}


def check_sessions(
    directory: str, refused: str | None, mount: Mount | None, keep_bytes: int, *, locations_known: bool = True
) -> Iterator[DoctorCheck]:
    """The session directory. `refused` is why nothing can be written there, `mount` what it lies on.

    `locations_known`: where the server keeps its data is known, so that a mount that holds none of it is another one.
    """
    if refused is not None:
        yield missing(
            SESSIONS, "writable", f"{directory}: {refused}", lost="the recording: nothing is kept for later",
            fix=_OTHER_DIRECTORY_FIX, critical=ExitCode.SESSION,
        )  # fmt: skip
    else:
        yield ok(SESSIONS, "writable", f"sessions are written to {directory}")
    if mount is None:
        yield unknown(SESSIONS, "file_system", "the file system of the session directory is not known")
        return
    yield _file_system(mount)
    yield _shared(mount, locations_known)
    yield _space(mount, keep_bytes)


def _file_system(mount: Mount) -> DoctorCheck:
    what = f"{mount.fstype} at {mount.path}"
    if mount.status == "timeout":
        return missing(
            SESSIONS, "file_system", f"{what} does not answer: {mount.note or 'statvfs hangs'}",
            lost="the recording while it hangs; the live picture goes on", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    if mount.fstype in NETWORK:
        return missing(
            SESSIONS,
            "file_system",
            f"sessions lie on a network file system ({what})",
            lost="recording while the network or its server stalls, and the locks SQLite relies on",
            fix=_OTHER_DIRECTORY_FIX,
        )
    if mount.fstype in MEMORY:
        return missing(
            SESSIONS, "file_system", f"sessions lie in memory ({what})",
            lost="every session at the next reboot", fix=_OTHER_DIRECTORY_FIX,
        )  # fmt: skip
    return ok(SESSIONS, "file_system", f"on {what}")


def _shared(mount: Mount, locations_known: bool) -> DoctorCheck:
    shared = [name for what, name in _CRITICAL_LOCATIONS.items() if what in mount.holds]
    shared += [what.replace(":", " ") for what in mount.holds if what.startswith("tablespace:")]
    if not shared and not locations_known:
        return unknown(
            SESSIONS, "shared", "whether a mount is shared with PGDATA or WAL is not known: their place is not"
        )
    if not shared:
        return ok(SESSIONS, "shared", "shares no mount with PGDATA, WAL or tablespaces")
    return missing(
        SESSIONS, "shared", f"shares the mount {mount.path} with {', '.join(shared)}",
        lost="the recording just when that file system is full or stalled; and it takes space from the database",
        fix=_OTHER_DIRECTORY_FIX,
    )  # fmt: skip


def _space(mount: Mount, keep_bytes: int) -> DoctorCheck:
    if mount.available is None:
        return unknown(SESSIONS, "space", f"free space of {mount.path} is not known")
    text = f"{human_bytes(mount.available)} free, sessions may take {human_bytes(keep_bytes)}"
    if mount.available >= keep_bytes:
        return ok(SESSIONS, "space", text)
    return missing(
        SESSIONS, "space", text, lost="recording when the file system is full",
        fix="recording.max_size smaller, or another directory: " + _OTHER_DIRECTORY_FIX,
    )  # fmt: skip


# Whether somebody else may write what the console reads, or where it writes.

FILES = "files"


def check_files(config: Path, runbooks: Sequence[str], directories: Sequence[Path]) -> Iterator[DoctorCheck]:
    """The configuration, the runbooks' directories, and those of sessions, state and sockets."""
    refused = False
    for path, lost in (
        (config, "the configuration: commands refuse it"),
        *((Path(os.path.expanduser(one)), "its runbooks: they are not used") for one in runbooks),
        *((one, "what is to be written there") for one in directories),
    ):
        if (why := trust_problem(path)) is not None:
            refused = True
            yield missing(FILES, "others", f"{path}: {why.text}", lost=lost, fix=why.fix)
    if not refused:
        yield ok(FILES, "others", "nobody else may write the configuration, the runbooks or the recordings")


# Can the server be reached, what stands between, is it on this host, and what may the role see there.

SERVER = "server"
PRIVILEGES = "privileges"


def check_server(server: Server | None, note: str | None) -> list[DoctorCheck]:
    """Connection, pooler, place and slot. `server` None: not connected, and `note` says why."""
    if server is None:
        text, hint = split_note(note, "the server does not answer")
        lost = "everything SQL shows; what /proc and process titles tell goes on where the server runs on this host"
        return [
            missing(
                SERVER, "connection", text, lost=lost, critical=ExitCode.CONNECT,
                fix=hint or "psql with the same connection string tells more",
            ),
            unknown(PRIVILEGES, "privileges", "not known without a connection"),
        ]  # fmt: skip
    role = "standby" if server.in_recovery else "primary"
    connected = f"connected as {server.current_user} to {server.database}: PostgreSQL {server.version}, {role}"
    return [ok(SERVER, "connection", connected), _pooler(server), _check_locality(server), *check_privileges(server)]


def _pooler(server: Server) -> DoctorCheck:
    if server.through is None:
        return ok(SERVER, "pooler", "no connection pooler stands between")
    return missing(
        SERVER, "pooler", f"the connection goes through {server.through}",
        lost="the held slot: the pool may lend it to others; settings of the connection may not stay; "
        "session-level facts belong to whichever server connection the pool gave",
        fix="name the server's own host and port in the connection string",
    )  # fmt: skip


def _check_locality(server: Server) -> DoctorCheck:
    if server.local:
        return ok(SERVER, "local", server.local_note or "the server runs on this host")
    text = server.local_note or "not decided whether the server runs on this host"
    lost = "the host's panels: I/O, memory, disks, CPU of the backends"
    fix = "run dba-console on the server's host; or host_panels = true for this target where you know it is this one"
    if server.local is False:
        return missing(SERVER, "local", text, lost=lost, fix=fix)
    return unknown(SERVER, "local", text, lost=lost, fix=fix)


def check_privileges(server: Server) -> Iterator[DoctorCheck]:
    """What the role may see and do. Sources: "Predefined Roles" and "Connections and Authentication" of the manual."""
    role = _quote_role(server.current_user)
    yield _superuser(server)
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
        PRIVILEGES, "superuser", f"{server.current_user} is no superuser, and need not be one",
        lost="the slots of superuser_reserved_connections, and leaving the console's queries out of pg_stat_statements",
    )  # fmt: skip


def _granted(name: str, granted: bool, role: str, *, lost: str) -> DoctorCheck:
    if granted:
        return ok(PRIVILEGES, name, f"has the rights of {name}")
    return missing(PRIVILEGES, name, f"lacks {name}", lost=lost, fix=f"GRANT {name} TO {role};")


def _reserved(server: Server, role: str) -> DoctorCheck:
    settings = {setting.name: setting.value for setting in server.settings}
    for_superusers = settings.get("superuser_reserved_connections", "?")
    if server.superuser:
        return ok(PRIVILEGES, "reserved", f"may use the {for_superusers} slots of superuser_reserved_connections")
    slots = settings.get("reserved_connections", "0")
    if server.reserved_member and slots != "0":
        return ok(PRIVILEGES, "reserved", f"may use the {slots} slots of reserved_connections")
    lost = "a slot of its own when all others are taken before the console starts: it then begins in blind mode"
    if server.version_num < 160000:
        text = "no reserved slots for this role (reserved_connections exists from PostgreSQL 16)"
        return missing(PRIVILEGES, "reserved", text, lost=lost, fix="start the console early: it keeps its slot")
    fixes = []
    if not server.reserved_member:
        fixes.append(f"GRANT pg_use_reserved_connections TO {role};")
    if slots == "0":
        fixes.append("ALTER SYSTEM SET reserved_connections = 2;  -- and restart the server")
    return missing(PRIVILEGES, "reserved", "no reserved slot for this role", lost=lost, fix=" ".join(fixes))


def _quote_role(name: str) -> str:
    """The role as SQL writes it: quoted unless it is plain lower case."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[:1].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'
