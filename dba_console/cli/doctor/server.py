"""Can the server be reached, what stands between, is it on this host, and what may the role see there."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.cli.doctor.check import DoctorCheck, missing, ok, unknown
from dba_console.cli.part_notes import split_note
from dba_console.errors import ExitCode
from dba_console.samples.postgres import Server

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
