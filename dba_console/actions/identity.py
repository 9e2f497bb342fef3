"""The identity of a server and of a host, and the check that a run still acts on the one it was started for.

A name, an address or a port proves nothing: a clone can have all of them, a virtual address moves, a standby is
promoted. A copy of the files even has the system identifier of its original; then the data directory, the port and the
start time of the server distinguish them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from msgspec import Struct

from dba_console.watch.probes.host.kernel_files import read_word

PRIMARY, STANDBY = "primary", "standby"


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of a server. None: this role may not read the value."""

    system_identifier: str | None = None
    role: str = PRIMARY
    timeline: int | None = None
    server_start_us: int = 0
    version_num: int = 0
    data_directory: str | None = None
    port: int | None = None
    """The configured port, not the one connected to."""
    address: str | None = None
    """Address at which the server was reached; None: a Unix socket."""
    database: str = ""
    user: str = ""

    @property
    def major(self) -> int:
        return self.version_num // 10000

    def describe(self) -> str:
        """Return the identity as shown beside the target's name.

        >>> ServerIdentity(system_identifier="7412", timeline=1, version_num=150018).describe()
        'system identifier 7412, primary, timeline 1, PG 15.18'
        """
        version = f"PG {self.version_num // 10000}.{self.version_num % 10000}"
        identifier, timeline = self.system_identifier or "?", self.timeline or "?"
        return f"system identifier {identifier}, {self.role}, timeline {timeline}, {version}"


class HostIdentity(Struct, frozen=True, kw_only=True):
    """Identity of a host, and of its current boot."""

    name: str
    boot_id: str


def host_identity(proc: str = "/proc") -> HostIdentity:
    """Return the identity of this host."""
    return HostIdentity(name=os.uname().nodename, boot_id=read_word(f"{proc}/sys/kernel/random/boot_id") or "")


def server_mismatch(planned: ServerIdentity, now: ServerIdentity) -> str | None:
    """Return why `now` is not the server the run was started on, one sentence; None: no difference found.

    Ignores a restart: see `restart_since`.
    """
    for was, is_now, template in (
        (planned.system_identifier, now.system_identifier, "another cluster answers: system identifier {1}, not {0}"),
        (planned.role, now.role, "the server is a {1} now; the run was started on a {0}"),
        (planned.timeline, now.timeline, "the server is on timeline {1} now; the run was started on timeline {0}"),
        (planned.data_directory, now.data_directory, "a server with data directory {1} answers, not the one with {0}"),
        (planned.port, now.port, "the server that answers is configured for port {1}, not for {0}"),
    ):
        if was is not None and is_now is None:
            return f"cannot verify that this is the same server: {_unreadable_field(template)} cannot be read"
        if was is not None and was != is_now:
            return template.format(was, is_now)
    return None


def restart_since(planned: ServerIdentity, now: ServerIdentity) -> str | None:
    """Return when the server was restarted since, one sentence; None: not restarted."""
    if planned.server_start_us == now.server_start_us:
        return None
    start = datetime.fromtimestamp(now.server_start_us / 1e6, UTC)
    return f"the server was started at {start:%Y-%m-%d %H:%M:%S} UTC, after this run was planned"


def host_mismatch(planned: HostIdentity, now: HostIdentity) -> str | None:
    """Return why this is not the host the run was started on; None if it is.

    >>> host_mismatch(HostIdentity(name="db1", boot_id="a"), HostIdentity(name="db2", boot_id="b"))
    'this host is db2; the run was started on db1'
    """
    if planned.name != now.name:
        return f"this host is {now.name}; the run was started on {planned.name}"
    if planned.boot_id != now.boot_id:
        return "this host was rebooted since the run was started"
    return None


def _unreadable_field(template: str) -> str:
    return next(
        (name for name in ("system identifier", "timeline", "data directory", "port") if name in template), "role"
    )
