"""The host service: probes /proc and file systems, and decides whether this is the server's host.

Data of this host is never shown for a server elsewhere: without proof that the server runs here the host parts are
empty, with a note that names the fix.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from dba_console.agent.server_service import ServerService
from dba_console.agent.source import TickSource
from dba_console.core.clock import Clock
from dba_console.core.target import Target, parse_conninfo
from dba_console.watch.probes.deadline_lane import PolledCall
from dba_console.watch.probes.host.file_systems import HostContext, MountProbe
from dba_console.watch.probes.host.postmasters import Postmaster, find_postmasters
from dba_console.watch.probes.host.probe import HostProbe
from dba_console.watch.samples.postgres import Server
from dba_console.watch.samples.sample import PARTS, Part

# Locations of PostgreSQL's files, as far as the server and the recording report them. Pure.


def find_data_locations(server: Server | None, data_directory: str | None, session: str | None) -> dict[str, str]:
    """Return the known paths by kind: data, wal, temp, log, archive, session, `tablespace:NAME`.

    pg_wal may be a symbolic link, which the reader of its file system follows. Temporary files are in the data
    directory unless temp_tablespaces names another place.
    """
    known: dict[str, str] = {}
    if session is not None:
        known["session"] = session
    if data_directory is None:
        return known
    known["data"] = data_directory
    known["wal"] = os.path.join(data_directory, "pg_wal")
    known["temp"] = os.path.join(data_directory, "base")
    if server is None:
        return known
    settings = {setting.name: setting.value for setting in server.settings}
    for name, location in server.tablespaces.items():
        known[f"tablespace:{name}"] = location
    temporary = settings.get("temp_tablespaces", "").split(",")[0].strip().strip('"')
    if temporary in server.tablespaces:
        known["temp"] = server.tablespaces[temporary]
    if log := settings.get("log_directory"):
        known["log"] = os.path.join(data_directory, log)
    if archive := archive_directory(settings.get("archive_command", "")):
        known["archive"] = archive
    return known


def archive_directory(command: str) -> str | None:
    """Return the directory an archive_command copies to if it is obvious (`cp %p /backup/wal/%f`), else None.

    >>> archive_directory("test ! -f /b/wal/%f && cp %p /b/wal/%f"), archive_directory("wal-g wal-push %p")
    ('/b/wal', None)
    """
    for word in reversed(command.replace('"', " ").replace("'", " ").split()):
        if word.startswith("/") and word.endswith("/%f"):
            return word[:-3]
    return None


# The local postmaster of a target before anybody has answered: by socket directory and port. Pure.
#
# Only an unambiguous match counts, because this host's data is shown for the server.

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_DIRECTORIES = ("/var/run/postgresql", "/run/postgresql", "/tmp")


def find_target_postmaster(
    found: Sequence[Postmaster], conninfo: str, environ: Mapping[str, str] = os.environ
) -> Postmaster | None:
    """Return the postmaster that libpq would reach through `conninfo`, None if that is not certain.

    >>> here = Postmaster(1, 1, "/data", 5432, "/tmp")
    >>> [find_target_postmaster([here], conninfo, {}) is here
    ...  for conninfo in ("host=/tmp", "host=db7", "service=x", "host=/tmp port=1")]
    [True, False, False, False]
    """
    values = parse_conninfo(conninfo)
    if "service" in values or ("host" not in values and environ.get("PGSERVICE")):
        return None
    host = values.get("hostaddr") or values.get("host") or environ.get("PGHOSTADDR") or environ.get("PGHOST") or ""
    port = values.get("port") or environ.get("PGPORT") or "5432"
    if "," in host or not port.isdigit():
        return None
    matching = [one for one in found if one.port == int(port) and _is_reached_by(one, host)]
    return matching[0] if len(matching) == 1 else None


def _is_reached_by(postmaster: Postmaster, host: str) -> bool:
    if host in _LOOPBACK:
        return True
    directories = (host,) if host else _DEFAULT_DIRECTORIES
    here = postmaster.socket_directory
    return here is not None and any(os.path.realpath(here) == os.path.realpath(one) for one in directories)


HOST_PARTS = tuple(name for name in PARTS if name.startswith("host.") and name != "host.mounts")
UNCONNECTED_PARTS = frozenset({"host.titles"})
UNCONNECTED_WAIT_US = 300_000
"""Minimum time for the reads of a tick that has waited for a connection attempt."""
SEARCH_EVERY = 10
"""Ticks between two searches for an unknown postmaster: each search reads all of /proc once."""


class HostService(TickSource):
    """Reads the host in its own lanes and decides what may be shown."""

    def __init__(self, target: Target, server: ServerService, clock: Clock) -> None:
        self._target = target
        self._server = server
        self._clock = clock
        self.session: str | None = None
        """Directory of the recording; its file system is shown too."""
        self._probe = HostProbe(clock)
        self._mounts = MountProbe(clock)
        self._parts_call: PolledCall[list[Part]] = PolledCall("host", clock)
        self._mounts_call: PolledCall[Part] = PolledCall("mounts", clock)
        super().__init__(self._parts_call, self._mounts_call)
        self._awaiting: Collection[str] | None = None
        """Parts to be read after the connection attempt of this tick."""
        self._postmaster: Postmaster | None = None
        self._locations: tuple[Server | None, str | None, str | None, dict[str, str]] = None, None, None, {}
        self._search_in = 0
        self._was_connected = False

    @property
    def stuck(self) -> list[str]:
        """Names of the probes that hang."""
        return [*super().stuck, *self._probe.stuck, *self._mounts.stuck]

    @property
    def is_here(self) -> bool:
        """Whether the server's processes are known to be on this host."""
        return self._postmaster is not None

    def begin(self, due: Collection[str]) -> None:
        """Start the reads. Without a connection they wait for the attempt of this tick: only a server that has
        identified itself proves that the host may be shown, and a refused attempt of ours should be over before
        connections are counted by processes.
        """
        self._awaiting = None if self._server.connected else due
        if self._server.connected:
            self._start_reads(due)

    def finish(self, until_us: int) -> list[Part]:
        if self._awaiting is not None:
            self._start_reads(self._awaiting)
            until_us = max(until_us, self._clock.mono_us() + UNCONNECTED_WAIT_US)
        parts: list[Part] = []
        if self._parts_call.ended(until_us):
            parts += self._parts_call.take()
        if self._mounts_call.ended(until_us):
            parts.append(self._mounts_call.take())
        return parts

    def close(self) -> None:
        super().close()
        self._mounts.close()
        self._probe.close()

    def _start_reads(self, due: Collection[str]) -> None:
        """Start reading; a read of the last tick that is still pending is kept."""
        context, connected = self._context(), self._server.connected
        names = [name for name in HOST_PARTS if name in due and (name not in UNCONNECTED_PARTS or not connected)]
        if not self._parts_call.pending:
            self._parts_call.start(lambda: self._probe.read(names, context))
        if "host.mounts" in due and not self._mounts_call.pending:
            self._mounts_call.start(lambda: self._mounts.read(context))

    def _context(self) -> HostContext:
        """Return the context of the probes: postmaster, directories, and whether this host may be shown."""
        server = self._server
        watched, note = self._may_show_host(server)
        if watched:
            self._find_postmaster(server)
        postmaster = self._postmaster if watched else None
        data = (server.server.data_directory if server.server else None) or (
            postmaster.data_directory if postmaster else None
        )
        rows = server.sessions.rows if server.connected and server.sessions else ()
        return HostContext(
            postmaster_pid=postmaster.pid if postmaster else None,
            data_directory=data if watched else None,
            paths=self._find_locations(server.server, data) if watched else {},
            active_pids=frozenset(row.pid for row in rows if row.state != "idle"),
            watched=watched,
            note=note,
        )

    def _find_locations(self, server: Server | None, data: str | None) -> dict[str, str]:
        """Return the paths by kind; found again only when one of their sources was read again."""
        known_server, known_data, known_session, found = self._locations
        if server is not known_server or data != known_data or self.session != known_session:
            found = find_data_locations(server, data, self.session)
            self._locations = server, data, self.session, found
        return found

    def _may_show_host(self, server: ServerService) -> tuple[bool, str | None]:
        locality = server.locality
        if locality is not None:
            return locality.local is True, locality.note
        if server.server is not None and server.server.local is not True:
            return False, server.server.local_note
        if server.server is not None:
            # It was proven while the server answered, and an outage is when its host matters most.
            return True, None
        if self._target.host_panels is not False:
            self._find_postmaster(server)
        if self.is_here:
            return True, None
        return False, "not connected yet, so it is unknown whether the server runs on this host"

    def _find_postmaster(self, server: ServerService) -> None:
        lost = self._postmaster is not None
        if self._postmaster is not None and _is_running(self._postmaster):
            return
        self._postmaster = self._connected_postmaster(server)
        if self._postmaster is not None:
            return
        self._search_in -= 1
        # After a postmaster has just gone, search at once: it may restart.
        if not lost and self._search_in > 0 and server.connected == self._was_connected:
            return
        self._was_connected = server.connected
        self._search_in = SEARCH_EVERY
        self._postmaster = find_target_postmaster(find_postmasters(), self._target.conninfo)

    @staticmethod
    def _connected_postmaster(server: ServerService) -> Postmaster | None:
        """Return the postmaster of the connection if it is proven to be on this host."""
        locality = server.locality
        if locality is None or locality.local is not True or locality.postmaster_pid is None:
            return None
        found = Postmaster(locality.postmaster_pid, 0, server.server.data_directory if server.server else None)
        return found if _is_running(found) else None


def _is_running(postmaster: Postmaster) -> bool:
    return os.path.exists(f"/proc/{postmaster.pid}")
