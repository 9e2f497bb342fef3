"""A TCP port before a cluster's unix socket, whose cable can be pulled: both ends stay open and nothing arrives."""

from __future__ import annotations

import select
import socket
import threading
from types import TracebackType
from typing import Self

from dba_console.demo.temporary_server import Cluster


class Proxy:
    """Forwards until `cut`. One thread, ended by closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._server = str(cluster.socket_directory / f".s.PGSQL.{cluster.port}")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._wake, self._woken = socket.socketpair()
        self._cut = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._wake.close()
        self._thread.join(10)
        for open_socket in (self._listener, self._woken, *self._pairs):
            open_socket.close()

    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"

    def cut(self) -> None:
        """Nothing arrives any more, in either direction, and neither end is notified."""
        self._cut.set()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._woken, *self._pairs], [], [])
            if self._woken in ready:
                return
            for source in ready:
                if source is self._listener:
                    self._accept()
                elif source in self._pairs:
                    self._forward(source)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._server)
        self._pairs[near], self._pairs[far] = far, near

    def _forward(self, source: socket.socket) -> None:
        data = source.recv(1 << 16)
        if not self._cut.is_set() and data:
            self._pairs[source].sendall(data)
        elif not data:
            other = self._pairs.pop(source)
            self._pairs.pop(other)
            source.close()
            other.close()
