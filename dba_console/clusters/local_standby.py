"""Compares a standby or former primary on this host with the primary it is to follow, and reserves WAL there for it.

No configured cluster is needed: the data directory and a connection string of the primary are enough. The rule: the
other server must be a running primary of the same cluster, on the same or a newer timeline, and the server here must
not run as a primary itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext
from dba_console.actions.identity import PRIMARY, ServerIdentity
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.node_host import last_word
from dba_console.clusters.server_control import CLEAN_STATES, ServerControl
from dba_console.clusters.steps.step import open_node
from dba_console.clusters.timeline_fork import Fork, find_fork, timelines
from dba_console.core.config import NodeConfig
from dba_console.core.errors import Refused
from dba_console.core.target import parse_conninfo
from dba_console.watch.probes.host.data_directory import PgControl
from dba_console.watch.probes.postgres.connect import refuse_host_override

NAME = "the server"
SAME_START_S = 3.0
"""Between the start of the postmaster in postmaster.pid and pg_postmaster_start_time()."""
IN_RECOVERY = ("in archive recovery", "shut down in recovery")
"""States of pg_control that only a standby, or a server that is being restored, has."""

_HISTORY = """
SELECT pg_read_file('pg_wal/' || lpad(upper(to_hex(%(timeline)s::int4)), 8, '0') || '.history', 0, 100000, true)
       AS history
"""
_SLOT = (
    "SELECT active, to_jsonb(s) ->> 'wal_status' AS wal_status FROM pg_replication_slots s WHERE slot_name = %(slot)s"
)
_MAKE_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%(slot)s, true)"
_DROP_SLOT = "SELECT pg_catalog.pg_drop_replication_slot(%(slot)s)"


class LocalStandbySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    directory: str
    """Data directory of the server, on this host."""
    primary: str
    """Connection string of the primary, as a superuser; without a password, which belongs in a passfile."""
    control: str = "pg_ctl"
    """How the server is stopped and started: `pg_ctl`, `systemd:UNIT` or `pg_ctlcluster:15/main`."""
    slot: str | None = None
    """Replication slot on the primary; made if it does not exist, made again if it is lost. Unset: no slot."""
    give_up: bool = False
    """Also if the primary is on an older timeline: what this server wrote on its own timeline is given up."""


class LocalStandby(NamedTuple):
    """Both servers as they are now."""

    server: ServerControl
    control: PgControl
    running: bool
    primary: ServerIdentity
    settings: LocalStandbySettings

    @property
    def timeline(self) -> int:
        """The newest timeline of the server here: until the first checkpoint after a promotion pg_control has the
        previous one."""
        script = 'ls "$1/pg_wal" | grep -E "^[0-9A-F]{8}.history$" | sort | tail -n 1'
        argv = ["sh", "-c", script, "sh", self.server.data_directory]
        name = last_word(self.server.host.run(argv, user=self.server.owner(), repeatable=True))
        return max(self.control.timeline or 0, int(name[:8], 16) if name else 0)

    def is_same_server(self) -> bool:
        """Whether the connection string leads to the server in this directory, by its port and its start."""
        pid_file = self.server.host.read(f"{self.server.data_directory}/postmaster.pid", user=self.server.owner())
        lines = (pid_file or b"").decode("utf-8", "replace").split("\n")
        if not self.running or len(lines) < 4 or not lines[2].strip().isdigit():
            return False
        started_s = abs(int(lines[2]) - self.primary.server_start_us / 1e6)
        return started_s <= SAME_START_S and lines[3].strip() == str(self.primary.port)

    def was_primary(self) -> bool:
        """Whether the server here ran as a primary when it ran last. A base backup did not run."""
        if self.control.state in IN_RECOVERY:
            return False
        return self.server.host.read(f"{self.server.data_directory}/backup_label", user=self.server.owner()) is None

    def refusal(self, method: str) -> tuple[str | None, str | None]:
        """Return why the server must not become a standby of the primary in this way, and a hint; None: it may."""
        if "password" in parse_conninfo(self.settings.primary):
            return "the connection string of the primary contains a password", "put it into a passfile"
        mine, other = self.timeline, self.primary.timeline or 0
        directory = self.server.data_directory
        if self.primary.role != PRIMARY:
            return "the other server is a standby", "name the primary"
        if self.primary.system_identifier != self.control.system_identifier:
            return (
                f"{directory} belongs to another cluster: system identifier {self.control.system_identifier}, "
                f"not {self.primary.system_identifier}"
            ), None
        if self.is_same_server():
            return "the connection string leads to the server in this directory itself", "name the other server"
        if self.running and self.control.state not in IN_RECOVERY:
            return (
                f"the server in {directory} runs as a primary: clients may be writing to it"
            ), "use the runbook split-brain: it stops it, and finds what only it has"
        if other < mine and not self.settings.give_up:
            return (
                f"the primary is on timeline {other or '?'}, this server on {mine}: this server was promoted later"
            ), "check which of the two clients must use; runbook split-brain"
        if method in ("check", "rewind") and other == mine and self.control.state not in IN_RECOVERY:
            return (
                f"both servers were primary on timeline {mine}: pg_rewind cannot find where they diverged"
            ), "use the method clone"
        return None, None

    def position(self) -> str:
        return f"`{self.control.state}`, timeline {self.control.timeline}, checkpoint at {self.control.checkpoint_lsn}"


def read_both(settings: LocalStandbySettings, context: ActionContext) -> LocalStandby:
    """Return the server on this host and the primary. Raises ConsoleError if one of them cannot be read."""
    server = local_server(settings, context)
    with connect_primary(settings, context) as connection:
        primary = connection.read_identity()
    if primary.system_identifier is None or primary.timeline is None:
        raise Refused("this role may not read system identifier and timeline of the primary", hint="use a superuser")
    return LocalStandby(server, server.control_file(), server.running(), primary, settings)


def local_server(settings: LocalStandbySettings, context: ActionContext) -> ServerControl:
    config = NodeConfig(dsn=settings.primary, control=settings.control)
    return ServerControl(NAME, config, settings.directory.rstrip("/"), None, context.clock)


@contextmanager
def connect_primary(settings: LocalStandbySettings, context: ActionContext) -> Iterator[ActingConnection]:
    refuse_host_override("the primary", settings.primary)
    with open_node(settings.primary, context) as connection:
        yield connection


def reserve_wal(connection: ActingConnection, slot: str | None) -> None:
    """Make the slot, so that the primary keeps what the standby needs from now on; make a lost one again."""
    if not slot:
        return
    found = next(iter(connection.rows(_SLOT, {"slot": slot})), None)
    if found is not None and found["active"]:
        raise Refused(f"slot {slot} of the primary is in use by another standby", hint="choose another name")
    if found is not None and found["wal_status"] == "lost":
        connection.execute_change(_DROP_SLOT, {"slot": slot}, transaction=False)
        found = None
    if found is None:
        connection.execute_change(_MAKE_SLOT, {"slot": slot}, transaction=False)


def fork_of(at: LocalStandby, connection: ActingConnection) -> Fork | None:
    """Return where the two servers separated by a promotion; None: they did not, or it is not known."""
    mine, other = at.control.timeline or 1, at.primary.timeline or 1
    path = f"{at.server.data_directory}/pg_wal/{mine:08X}.history"
    own = (at.server.host.read(path, user=at.server.owner()) or b"").decode("utf-8", "replace") if mine > 1 else ""
    [row] = connection.rows(_HISTORY, {"timeline": other}) if other > 1 else [{"history": ""}]
    return find_fork(timelines(mine, own), timelines(other, row["history"] or ""))


def passed_fork(at: LocalStandby, connection: ActingConnection) -> str | None:
    """Return why the server here cannot follow without pg_rewind or a copy: it wrote or replayed past the fork."""
    fork = fork_of(at, connection)
    if at.was_primary():
        if fork is None:
            return "it was a primary, and the timelines do not show where it separated from the other one"
        if at.control.state not in CLEAN_STATES:
            return f"it was not shut down (`{at.control.state}`): it may have WAL that the primary lacks"
    # A standby's last restartpoint may lie before the fork, and its pages behind it.
    has = max((at.control.checkpoint_lsn or "0/0", at.control.min_recovery_lsn or "0/0"), key=parse_lsn)
    if fork is None or parse_lsn(has) <= fork.lsn:
        return None
    return f"it has WAL up to {has} or further, and the primary's history separated at {fork}"
