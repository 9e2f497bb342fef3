"""Match sessions with client programs: by the other end of the connection, else by name and start time if unique."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dba_console.jobs.following.job_detection import ObservationRequest, application_names, find_possible_jobs
from dba_console.jobs.following.open_files import DescriptorLink, read_links
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.stderr_reader import NewMessages
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.watch.probes.host.kernel_files import list_pids, process_text, read_once, tcp_connections
from dba_console.watch.progress.readings import Operation
from dba_console.watch.samples.postgres import Activity

# Find the peer of a socket: TCP by the kernel's table, Unix sockets by sock_diag(7).
#
# The kernel identifies sockets by inode; the descriptors of processes show their owners. Only sockets of our network
# namespace are visible: the peer of a connection into a container is not. (psutil reads the descriptors of every
# process for that, which takes twelve times as long, and does not know the peer of a Unix socket.)

_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG."""
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY."""
_REQUEST = 1
"""NLM_F_REQUEST: only this socket, not a list of all."""
_ERROR = 2
"""NLMSG_ERROR."""
_SHOW_PEER = 4
"""UDIAG_SHOW_PEER."""
_PEER = 2
"""UNIX_DIAG_PEER."""
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_ASK = struct.Struct("=BBHIIIII")
_ANSWER = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
ANSWER_S = 1.0
"""Timeout for the kernel, which answers immediately."""


def unix_peers(inodes: Iterable[int]) -> dict[int, int]:
    """Map the inode of each connected Unix socket to that of its peer; others are left out.

    Raises OSError if this kernel does not support sock_diag.
    """
    asked = list(inodes)
    if not asked:
        return {}
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
        link.settimeout(ANSWER_S)
        for inode in asked:
            request = _ASK.pack(socket.AF_UNIX, 0, 0, _ANY_STATE, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
            link.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST, inode, 0) + request)
            peer = parse_peer(link.recv(8192))
            if peer is not None:
                found[inode] = peer
    return found


def parse_peer(answer: bytes) -> int | None:
    """Return the peer's inode from an answer, None without a peer. Raises OSError if sock_diag is not supported."""
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -code != errno.ENOENT:
            raise OSError(-code, "sock_diag is refused")
        return None
    at = _HEADER.size + _ANSWER.size
    while at + _ATTRIBUTE.size <= min(length, len(answer)):
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        if size < _ATTRIBUTE.size:
            return None
        if name == _PEER:
            (peer,) = _NUMBER.unpack_from(answer, at + _ATTRIBUTE.size)
            return int(peer) or None
        at += (size + 3) & ~3
    return None


def tcp_ports(inodes: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """Map the local port of each established TCP connection among these sockets to its inode."""
    wanted = set(inodes)
    if not wanted:
        return {}
    return {int(one.local[1], 16): one.inode for one in tcp_connections(proc) if one.inode in wanted}


def tcp_peers(inodes: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """Map the inode of each established TCP connection to that of its peer, if that is on this host too."""
    wanted = set(inodes)
    if not wanted:
        return {}
    connections = list(tcp_connections(proc))
    by_ends = {(one.local, one.remote): one.inode for one in connections}
    return {
        one.inode: other
        for one in connections
        if one.inode in wanted and (other := by_ends.get((one.remote, one.local))) is not None and other != one.inode
    }


# Find the client process of each session on this host.
#
# Needs to read the descriptors of backend and client, so the rights of their user or of root; for a session over TCP
# those of the client suffice, because the backend's title contains the port. The client of a session through a pooler
# is the pooler; a session from another host has no client process here.
#
# There may be a thousand sessions: the peer of a socket never changes, so it is queried once, and the sockets of a
# backend are read once and then only checked to still exist.

RETRY_SCANS = 30
"""Scans between two searches among all processes of the host, and before an unresolved socket is queried again."""
FORGET_SCANS = 60
"""Scans after which unused entries are forgotten."""
MAX_BACKEND_DESCRIPTORS = 64
"""Descriptors read per backend: the client's socket comes before the files it opens."""
_PORT = re.compile(rb" [0-9A-Fa-f.:]+\((\d+)\)")


class SessionProcesses:
    """Finds the client processes of sessions, scan by scan. Not thread-safe."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._backends: dict[int, list[DescriptorLink]] = {}
        """Sockets of known backends."""
        self._peers: dict[int, int] = {}
        self._unanswered: dict[int, int] = {}
        """Sockets without a known peer -> scan in which they may be queried again."""
        self._last_used: dict[int, int] = {}
        """Process or socket -> scan in which it was last used. If a pid and an inode are equal, both are kept a little
        longer."""
        self._other_owners: dict[int, int] = {}
        """Socket of a process that is not one of the clients -> that process."""
        self._search_due = 0
        self._ports: dict[int, int] = {}
        self._asked_ports: frozenset[int] = frozenset()
        self._scan = 0
        self.notes: dict[int, str] = {}
        """Backends of the last `read` without one of the given clients -> the reason, or the other process."""
        self.other_processes: dict[int, int] = {}
        """Backends of the last `read` -> process at the other end that is not one of the clients: a pooler."""

    def read(self, backends: Iterable[int], clients: Iterable[int]) -> dict[int, int]:
        """Map backend pid to the pid of its client process, if that is one of `clients`.

        `clients` lists a process before its forks (`RunningProgram.pids`): an inherited socket belongs to the first.
        """
        self._scan += 1
        self.notes, self.other_processes = {}, {}
        of_backends = self._backend_sockets(backends)
        of_clients = self._client_sockets(clients)
        peers = self._find_peers(of_backends)
        found = self._match_by_port(list(self.notes), of_clients) if self.notes and of_clients else {}
        for backend in found:
            del self.notes[backend]
        for inode, backend in of_backends.items():
            if (peer := peers.get(inode)) in of_clients and peer is not None:
                found[backend] = of_clients[peer]
        self._find_other_processes(
            {backend: peers[inode] for inode, backend in of_backends.items() if inode in peers}, found
        )
        for backend in set(of_backends.values()) - found.keys() - self.notes.keys():
            self.notes[backend] = f"the client of session {backend} is not on this host, or not visible"
        self._forget()
        return found

    def _backend_sockets(self, pids: Iterable[int]) -> dict[int, int]:
        """Map the inode of each socket to its backend; backends whose descriptors cannot be read get a note."""
        found: dict[int, int] = {}
        for pid in pids:
            self._last_used[pid] = self._scan
            known = self._backends.get(pid)
            if known is None or not self._is_same_backend(pid, known):
                try:
                    known = [
                        link for link in read_links(self._proc, pid, MAX_BACKEND_DESCRIPTORS) if link.socket is not None
                    ]
                except PermissionError:
                    self.notes[pid] = f"the connections of process {pid} are visible only to its user and root"
                    continue
                except OSError:
                    self.notes[pid] = f"process {pid} does not exist on this host"
                    continue
                self._backends[pid] = known
            found |= {link.socket: pid for link in known if link.socket is not None}
        return found

    def _is_same_backend(self, pid: int, links: list[DescriptorLink]) -> bool:
        """Check whether this is the backend that was read before, not another one with the same pid."""
        try:
            return bool(links) and all(os.readlink(f"{self._proc}/{pid}/fd/{one.fd}") == one.target for one in links)
        except OSError:
            return False

    def _client_sockets(self, pids: Iterable[int]) -> dict[int, int]:
        """Map the inode of each socket to its client."""
        found: dict[int, int] = {}
        for pid in pids:
            try:
                links = read_links(self._proc, pid)
            except OSError:
                continue
            for link in links:
                if link.socket is not None:
                    found.setdefault(link.socket, pid)
        return found

    def _match_by_port(self, backends: list[int], of_clients: dict[int, int]) -> dict[int, int]:
        """Match backends with unreadable descriptors by the client's port in their title."""
        if not self._ports.keys() <= set(of_clients) or not of_clients.keys() <= self._asked_ports:
            self._ports = {inode: port for port, inode in tcp_ports(of_clients, self._proc).items()}
            self._asked_ports = frozenset(of_clients)
        by_port = {port: of_clients[inode] for inode, port in self._ports.items() if inode in of_clients}
        found = {}
        for backend in backends if by_port else ():
            port = _client_port(self._proc, backend)
            if port is not None and port in by_port:
                found[backend] = by_port[port]
        return found

    def _find_peers(self, owned: dict[int, int]) -> dict[int, int]:
        """Map inode to peer inode; each socket is queried once."""
        self._last_used |= dict.fromkeys(owned, self._scan)
        new = [inode for inode in owned if inode not in self._peers and self._unanswered.get(inode, 0) <= self._scan]
        if new:
            found = _ask_kernel(lambda: unix_peers(new))
            found |= _ask_kernel(lambda: tcp_peers([one for one in new if one not in found], self._proc))
            self._peers |= found
            self._unanswered |= {inode: self._scan + RETRY_SCANS for inode in new if inode not in found}
        return self._peers

    def _find_other_processes(self, peers: dict[int, int], found: dict[int, int]) -> None:
        """Find the owners of peers that belong to no client, by a search among all processes, rarely."""
        left = {backend: inode for backend, inode in peers.items() if backend not in found}
        if not set(left.values()) <= self._other_owners.keys() and self._scan >= self._search_due:
            self._search_due = self._scan + RETRY_SCANS
            self._other_owners = self._owners(set(left.values()))
        for backend, inode in left.items():
            known = self._other_owners.get(inode)
            if known is None:
                self.notes[backend] = f"the client process of session {backend} is unknown"
            else:
                self.other_processes[backend] = known
                self.notes[backend] = f"session {backend} comes from {process_text(self._proc, known)}"

    def _owners(self, inodes: set[int]) -> dict[int, int]:
        """Return the owners of these sockets among all readable processes."""
        found: dict[int, int] = {}
        for pid in list_pids(self._proc):
            try:
                links = read_links(self._proc, pid)
            except OSError:
                continue
            found |= {link.socket: pid for link in links if link.socket is not None and link.socket in inodes}
        return found

    def _forget(self) -> None:
        if self._scan % FORGET_SCANS:
            return
        self._last_used = {one: scan for one, scan in self._last_used.items() if scan > self._scan - FORGET_SCANS}
        self._backends = {pid: links for pid, links in self._backends.items() if pid in self._last_used}
        self._peers = {inode: peer for inode, peer in self._peers.items() if inode in self._last_used}
        self._unanswered = {inode: due for inode, due in self._unanswered.items() if inode in self._last_used}


def _client_port(proc: str, backend: int) -> int | None:
    """Return the client's port from a backend's title: `postgres: app shop 127.0.0.1(52114) COPY`."""
    try:
        title = read_once(f"{proc}/{backend}/cmdline", 4096)
    except OSError:
        return None
    ports = _PORT.findall(title) if title.startswith(b"postgres: ") else []
    return int(ports[-1]) if len(ports) == 1 else None


def _ask_kernel(request: Callable[[], dict[int, int]]) -> dict[int, int]:
    try:
        return request()
    except OSError:
        return {}  # not supported by this kernel: the peers stay unknown


CONNECT_WITHIN_US = 10_000_000
"""Time within which a program connects after its start; used only if the peer of a connection is not visible."""
FULL_SCAN_EVERY = 5
"""Scans after which all sessions are checked: a program may use another application name (PGAPPNAME)."""
LOCAL = frozenset({"[local]", "127.0.0.1", "::1", "127.0.0.1/32", "::1/128"})
MAX_ENVIRONMENT = 1 << 20
_Key = tuple[int, int]


def program_key(program: RunningProgram) -> _Key:
    """Return the identity of a program: its pid may be reused."""
    return program.pid, program.start_ticks


class SessionMatch:
    """The result of one scan: sessions of each program, and notes on the others."""

    def __init__(self) -> None:
        self.sessions: dict[_Key, list[Activity]] = {}
        self.worker: dict[int, int] = {}
        """Session -> its client process of the program."""
        self.by_name: set[_Key] = set()
        """Programs matched only by name and start time."""
        self.unmatched: list[Activity] = []
        """Sessions of jobs without a program on this host."""
        self.notes: dict[int, str] = {}
        """Why there is none."""


class SessionMatcher:
    """Matches sessions with programs, scan by scan. Not thread-safe."""

    def __init__(self, has_keeper: Callable[[RunningProgram], bool] = lambda _: False) -> None:
        """`has_keeper`: whether a keeper runs the program. A run's command has the server in its environment, whatever
        host that is on."""
        self._peers, self._has_keeper = SessionProcesses(), has_keeper
        self._conninfo = ""
        self._ahead_us = 0
        """The server's clock minus ours; only of a server on another host."""
        self._scans = 0
        self._known: dict[tuple[int, int | None], _Key] = {}

    def match(self, request: ObservationRequest, programs: list[RunningProgram]) -> SessionMatch:
        """Assign the sessions of the request to these programs."""
        matched = SessionMatch()
        rows = {row.pid: row for row in request.sessions.rows if row.leader_pid is None}
        candidates = find_possible_jobs(
            request.sessions.rows, request.operations, application_names(request.sessions.rows)
        )
        self._conninfo = request.conninfo
        self._ahead_us = 0 if request.here else request.sessions.now_us - request.wall_us
        if request.here and programs:
            self._match_by_connection(rows, candidates, programs, matched)
        taken = set(matched.worker)
        if programs:
            self._match_by_name([rows[pid] for pid in sorted(candidates - taken) if pid in rows], programs, matched)
        for mine in matched.sessions.values():
            taken.update(row.pid for row in mine)
        # The sessions were read before the programs: if a program has ended since, its session is not a separate job.
        running = {program_key(one) for one in programs}
        over = {session for session, key in self._known.items() if key not in running}
        alone = [rows[pid] for pid in sorted(candidates - taken) if pid in rows]
        matched.unmatched = [row for row in alone if _identity(row) not in over]
        self._known = {(row.pid, row.backend_start): key for key, mine in matched.sessions.items() for row in mine}
        return matched

    def _match_by_connection(
        self,
        rows: dict[int, Activity],
        candidates: frozenset[int],
        programs: list[RunningProgram],
        matched: SessionMatch,
    ) -> None:
        self._scans += 1
        asked: Iterable[int] = candidates | {pid for pid, row in rows.items() if _identity(row) in self._known}
        if self._scans % FULL_SCAN_EVERY == 1 and len(self._known) < len(programs):
            asked = [pid for pid, row in rows.items() if row.backend_type in ("client backend", "walsender")]
        owners = {pid: program for program in programs for pid in program.pids}
        peers = self._peers.read(sorted(asked), [pid for program in programs for pid in program.pids])
        for backend, process in peers.items():
            if backend in rows and process in owners:
                matched.worker[backend] = process
                matched.sessions.setdefault(program_key(owners[process]), []).append(rows[backend])
        matched.notes = dict(self._peers.notes)

    def _match_by_name(self, left: list[Activity], programs: list[RunningProgram], matched: SessionMatch) -> None:
        """Assign a session if exactly one program fits by name and start time."""
        for row in left:
            if row.pid in matched.worker or row.backend_start is None:
                continue
            fitting = [
                one
                for one in programs
                if _name_matches(one, row)
                and (row.client in LOCAL or self._is_of_run(one))
                and self._can_own_session(one, row, matched)
            ]
            if len(fitting) == 1:
                key = program_key(fitting[0])
                matched.by_name.add(key)
                matched.sessions.setdefault(key, []).append(row)
                matched.notes.pop(row.pid, None)

    def _is_of_run(self, program: RunningProgram) -> bool:
        """Check whether a keeper runs the program, for this server."""
        if not self._has_keeper(program):
            return False
        try:
            variables = read_once(f"/proc/{program.pid}/environ", MAX_ENVIRONMENT).split(b"\0")
        except OSError:
            return False
        given = {name: os.fsdecode(value) for name, _, value in (one.partition(b"=") for one in variables)}
        wanted = server_environment(self._conninfo)
        return all(given.get(name.encode()) == wanted.get(name) for name in ("PGHOST", "PGHOSTADDR", "PGPORT"))

    def _can_own_session(self, program: RunningProgram, row: Activity, matched: SessionMatch) -> bool:
        known = self._known.get(_identity(row))
        if known is not None:
            return known == program_key(program)
        if program_key(program) in matched.sessions and program_key(program) not in matched.by_name:
            return False  # its connections are visible, and this is not one of them
        workers = program.arguments.jobs or 1
        started = (row.backend_start or 0) - self._ahead_us - program.started_us
        return started + 1_000_000 >= 0 and (started < CONNECT_WITHIN_US or workers > 1 or program.kind == "pg_dumpall")


def _name_matches(program: RunningProgram, row: Activity) -> bool:
    asked = program.arguments.database
    return program.kind == row.application != "psql" and (
        asked is None or row.database is None or asked == row.database
    )


def _identity(row: Activity) -> tuple[int, int | None]:
    return row.pid, row.backend_start


# The observation of one program in one scan.


@dataclass(frozen=True)
class ObservedProgram:
    """One program with its sessions, files and messages in one scan."""

    program: RunningProgram
    matched: SessionMatch
    flow: DataFlow
    messages: NewMessages
    request: ObservationRequest
    at_us: int
    """Monotonic."""

    @cached_property
    def running_s(self) -> float:
        """How long it has run, by CLOCK_BOOTTIME, which is never adjusted."""
        ticks = self.program.start_ticks / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)

    @cached_property
    def rows(self) -> list[Activity]:
        """Its sessions, in the order of their start."""
        rows = self.matched.sessions.get(program_key(self.program), [])
        return sorted(rows, key=lambda row: (row.backend_start or 0, row.pid))

    @cached_property
    def operations(self) -> Mapping[int, Operation]:
        """Session -> its row in a progress view."""
        pids = {row.pid for row in self.rows}
        return {row.pid: row for row in self.request.operations if row.pid in pids}
