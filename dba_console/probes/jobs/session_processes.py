"""Which process of this host is at the other end of a session: how a backend and the dump it serves come together.

Needs to see the descriptors of both, so the rights of their user or of root; of a session over TCP those of the client
suffice, for the backend's title tells its port. A session through a pooler has the pooler at its other end, and one
from another host nobody here.

A thousand sessions may be asked about: what a socket is connected with never changes, so it is asked once, and the
sockets of a backend are read once and then only seen to be there still.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from dba_console.probes.host.kernel_files import read_once
from dba_console.probes.jobs.file_descriptors import DescriptorLink, read_links
from dba_console.probes.jobs.pipe_ends import process_text
from dba_console.probes.jobs.sockets import tcp_peers, tcp_ports, unix_peers

RETRY_SCANS = 30
"""Looks between two searches among all processes of the host, and until a socket that told nothing is asked again."""
FORGET_SCANS = 60
"""Looks after which what was not asked about any more is forgotten."""
MAX_BACKEND_DESCRIPTORS = 64
"""Descriptors of a backend that are read: its client's socket comes before the files it opens."""
_PORT = re.compile(rb" [0-9A-Fa-f.:]+\((\d+)\)")


class SessionProcesses:
    """The other ends of sessions, look by look. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._backends: dict[int, list[DescriptorLink]] = {}
        """Sockets of backends read before."""
        self._peers: dict[int, int] = {}
        self._unanswered: dict[int, int] = {}
        """Sockets whose other end was not told -> look in which they may be asked about again."""
        self._last_used: dict[int, int] = {}
        """Process or socket -> look in which it was last asked about. Where a pid and an inode have one number, both
        are kept a little longer."""
        self._other_owners: dict[int, int] = {}
        """Socket of somebody who is none of the clients -> who that was."""
        self._search_due = 0
        self._ports: dict[int, int] = {}
        self._asked_ports: frozenset[int] = frozenset()
        self._scan = 0
        self.notes: dict[int, str] = {}
        """Backends of the last `read` whose client is not among those given -> why, or who it is instead."""
        self.other_processes: dict[int, int] = {}
        """Backends of the last `read` -> process at the other end that is none of the clients: a pooler."""

    def read(self, backends: Iterable[int], clients: Iterable[int]) -> dict[int, int]:
        """Backend pid -> pid of the client process at its other end, for those where it is one of `clients`.

        A process before its forks (`Program.pids`): a socket that was handed on belongs to the one named first.
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
            self.notes[backend] = f"the other end of session {backend} is not on this host, or not told here"
        self._forget()
        return found

    def _backend_sockets(self, pids: Iterable[int]) -> dict[int, int]:
        """Inode of each socket -> the backend that has it; those that do not show them get a note."""
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
                    self.notes[pid] = f"the connections of process {pid} can be seen by its user and root only"
                    continue
                except OSError:
                    self.notes[pid] = f"there is no process {pid} on this host"
                    continue
                self._backends[pid] = known
            found |= {link.socket: pid for link in known if link.socket is not None}
        return found

    def _is_same_backend(self, pid: int, links: list[DescriptorLink]) -> bool:
        """Whether this is the backend that was read before, and not another one with its number."""
        try:
            return bool(links) and all(os.readlink(f"{self._proc}/{pid}/fd/{one.fd}") == one.target for one in links)
        except OSError:
            return False

    def _client_sockets(self, pids: Iterable[int]) -> dict[int, int]:
        """Inode of each socket -> the client that has it."""
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
        """Backends that do not show their descriptors, by the client's port in their title."""
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
        """Inode -> that of its other end, asked once for each socket."""
        self._last_used |= dict.fromkeys(owned, self._scan)
        new = [inode for inode in owned if inode not in self._peers and self._unanswered.get(inode, 0) <= self._scan]
        if new:
            found = _ask_kernel(lambda: unix_peers(new))
            found |= _ask_kernel(lambda: tcp_peers([one for one in new if one not in found], self._proc))
            self._peers |= found
            self._unanswered |= {inode: self._scan + RETRY_SCANS for inode in new if inode not in found}
        return self._peers

    def _find_other_processes(self, peers: dict[int, int], found: dict[int, int]) -> None:
        """Who has the other ends that belong to no client: looked for among all processes, seldom."""
        left = {backend: inode for backend, inode in peers.items() if backend not in found}
        if not set(left.values()) <= self._other_owners.keys() and self._scan >= self._search_due:
            self._search_due = self._scan + RETRY_SCANS
            self._other_owners = self._owners(set(left.values()))
        for backend, inode in left.items():
            known = self._other_owners.get(inode)
            if known is None:
                self.notes[backend] = f"the process at the other end of session {backend} is not known"
            else:
                self.other_processes[backend] = known
                self.notes[backend] = f"session {backend} comes from {process_text(self._proc, known)}"

    def _owners(self, inodes: set[int]) -> dict[int, int]:
        """Who has these sockets, of all processes that may be looked at."""
        found: dict[int, int] = {}
        for name in os.listdir(self._proc):
            try:
                links = read_links(self._proc, int(name)) if name.isdigit() else ()
            except OSError:
                continue
            found |= {link.socket: int(name) for link in links if link.socket is not None and link.socket in inodes}
        return found

    def _forget(self) -> None:
        if self._scan % FORGET_SCANS:
            return
        self._last_used = {one: look for one, look in self._last_used.items() if look > self._scan - FORGET_SCANS}
        self._backends = {pid: links for pid, links in self._backends.items() if pid in self._last_used}
        self._peers = {inode: peer for inode, peer in self._peers.items() if inode in self._last_used}
        self._unanswered = {inode: due for inode, due in self._unanswered.items() if inode in self._last_used}


def _client_port(proc: str, backend: int) -> int | None:
    """The client's port in the title of a backend: `postgres: app shop 127.0.0.1(52114) COPY`."""
    try:
        title = read_once(f"{proc}/{backend}/cmdline", 4096)
    except OSError:
        return None
    ports = _PORT.findall(title) if title.startswith(b"postgres: ") else []
    return int(ports[-1]) if len(ports) == 1 else None


def _ask_kernel(question: Callable[[], dict[int, int]]) -> dict[int, int]:
    try:
        return question()
    except OSError:
        return {}  # a kernel that does not answer it: as if nobody were told
