"""Which process of this host is at the other end of a session: how a backend and the dump it serves come together.

Needs to see the descriptors of both, so the rights of their user or of root; of a session over TCP those of the client
suffice, for the backend's title tells its port. A session through a pooler has the pooler at its other end, and one
from another host nobody here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from dba_console.probes.host.files import read_once
from dba_console.probes.jobs.descriptors import links_of
from dba_console.probes.jobs.ends import name_of
from dba_console.probes.jobs.sockets import tcp_peers, tcp_ports, unix_peers

_PORT = re.compile(rb" [0-9A-Fa-f.:]+\((\d+)\)")
AGAIN = 30
"""Looks after which the process at a session's other end is searched for again among all of the host."""


class Peers:
    """The other ends of sessions, look by look. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._peers: dict[int, int] = {}
        """Of sockets asked about before; a connected socket never changes its other end."""
        self._none: dict[int, int] = {}
        """Sockets whose other end was not told -> look in which they may be asked about again."""
        self._strangers: dict[int, tuple[int, int | None]] = {}
        self._ports: dict[int, int] = {}
        self._asked_ports: frozenset[int] = frozenset()
        self._look = 0
        self.notes: dict[int, str] = {}
        """Backends of the last `read` whose client is not among those given -> why, or who it is instead."""
        self.others: dict[int, int] = {}
        """Backends of the last `read` -> process at the other end that is none of the clients: a pooler."""

    def read(self, backends: Iterable[int], clients: Iterable[int]) -> dict[int, int]:
        """Backend pid -> pid of the client process at its other end, for those where it is one of `clients`.

        A process before its forks (`Program.pids`): a socket that was handed on belongs to the one named first.
        """
        self._look += 1
        self.notes, self.others = {}, {}
        of_backends = self._owners(backends, self.notes)
        of_clients = self._owners(clients, {})
        peers = self._connected(of_backends)
        found = self._by_titles(list(self.notes), of_clients) if self.notes and of_clients else {}
        for backend in found:
            del self.notes[backend]
        for inode, backend in of_backends.items():
            peer = peers.get(inode)
            if peer is not None and peer in of_clients:
                found[backend] = of_clients[peer]
        for inode, backend in of_backends.items():
            if backend not in found and inode in peers:
                self._stranger(backend, peers[inode])
        for backend in set(of_backends.values()) - found.keys() - self.notes.keys():
            self.notes[backend] = f"the other end of session {backend} is not on this host, or not told here"
        return found

    def _owners(self, pids: Iterable[int], notes: dict[int, str]) -> dict[int, int]:
        """Inode of each socket -> who has it; why not, where a process does not show."""
        found: dict[int, int] = {}
        for pid in pids:
            try:
                links = links_of(self._proc, pid)
            except PermissionError:
                notes[pid] = f"the connections of process {pid} can be seen by its user and root only"
                continue
            except OSError:
                notes[pid] = f"there is no process {pid} on this host"
                continue
            for link in links:
                if link.socket is not None:
                    found.setdefault(link.socket, pid)
        return found

    def _by_titles(self, backends: list[int], of_clients: dict[int, int]) -> dict[int, int]:
        """Backends that do not show their descriptors, by the client's port in their title."""
        if not self._ports.keys() <= set(of_clients) or not of_clients.keys() <= self._asked_ports:
            self._ports = {inode: port for port, inode in tcp_ports(of_clients, self._proc).items()}
            self._asked_ports = frozenset(of_clients)
        by_port = {port: of_clients[inode] for inode, port in self._ports.items() if inode in of_clients}
        found = {}
        for backend in backends if by_port else ():
            port = _port_of(self._proc, backend)
            if port is not None and port in by_port:
                found[backend] = by_port[port]
        return found

    def _connected(self, owned: dict[int, int]) -> dict[int, int]:
        """Inode -> that of its other end, asked once for each socket."""
        self._peers = {inode: peer for inode, peer in self._peers.items() if inode in owned}
        self._none = {inode: due for inode, due in self._none.items() if inode in owned}
        new = [inode for inode in owned if inode not in self._peers and self._none.get(inode, 0) <= self._look]
        if new:
            found = _asked(lambda: unix_peers(new))
            found |= _asked(lambda: tcp_peers([one for one in new if one not in found], self._proc))
            self._peers |= found
            self._none |= {inode: self._look + AGAIN for inode in new if inode not in found}
        return self._peers

    def _stranger(self, backend: int, inode: int) -> None:
        """Who else has the socket: looked for among all processes, seldom."""
        due, known = self._strangers.get(inode, (0, None))
        if self._look >= due:
            known = self._search(inode)
            if len(self._strangers) > 1000:
                self._strangers.clear()
            self._strangers[inode] = self._look + AGAIN, known
        if known is None:
            self.notes[backend] = f"who is at the other end of session {backend} can be seen by its user and root only"
        else:
            self.others[backend] = known
            self.notes[backend] = f"session {backend} comes from {name_of(self._proc, known)}"

    def _search(self, inode: int) -> int | None:
        for name in os.listdir(self._proc):
            if name.isdigit():
                try:
                    if any(link.socket == inode for link in links_of(self._proc, int(name))):
                        return int(name)
                except OSError:
                    continue
        return None


def _port_of(proc: str, backend: int) -> int | None:
    """The client's port in the title of a backend: `postgres: app shop 127.0.0.1(52114) COPY`."""
    try:
        title = read_once(f"{proc}/{backend}/cmdline", 4096)
    except OSError:
        return None
    ports = _PORT.findall(title) if title.startswith(b"postgres: ") else []
    return int(ports[-1]) if len(ports) == 1 else None


def _asked(question: Callable[[], dict[int, int]]) -> dict[int, int]:
    try:
        return question()
    except OSError:
        return {}  # a kernel that does not answer it: as if nobody were told
