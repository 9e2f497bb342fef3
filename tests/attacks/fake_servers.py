"""Servers that speak PostgreSQL's protocol and lie."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def listening(serve: Callable[[socket.socket, threading.Event], None], port: int = 0) -> Iterator[int]:
    """A port at which each connection is served in a thread, until the block ends."""
    ended = threading.Event()

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection, ended)
            except OSError:
                pass  # the other side has closed it

    def accept(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=accept, args=(server,), daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
    thread.join()


def message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


GREETING = message(b"R", bytes(4)) + message(b"K", bytes(8)) + message(b"Z", b"I")
COLUMNS = message(b"T", struct.pack("!H", 1) + b"name\0" + struct.pack("!IHIHIH", 0, 0, 25, 65535, 0xFFFFFFFF, 0))
ROW = message(b"D", struct.pack("!HI", 1, 1000) + b"x" * 1000)
NOTIFICATION = message(b"A", bytes(4) + b"c\0" + b"x" * 7000 + b"\0")
SSL_REQUEST = struct.pack("!II", 8, 80877103)


def take_startup(connection: socket.socket) -> None:
    """Refuse TLS, and read the startup message."""
    if connection.recv(8192)[:8] == SSL_REQUEST:
        connection.sendall(b"N")
        connection.recv(8192)


def asking(request: bytes, received: list[bytes]) -> Callable[[socket.socket, threading.Event], None]:
    """Asks for a kind of authentication, and records all that it gets."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        take_startup(connection)
        connection.sendall(request)
        while data := connection.recv(8192):
            received.append(data)
            connection.sendall(GREETING)

    return serve


CLEARTEXT = message(b"R", struct.pack("!I", 3))
MD5 = message(b"R", struct.pack("!I", 5) + b"salt")


def flooding(flood: bytes, *, before: bytes = b"") -> Callable[[socket.socket, threading.Event], None]:
    """Lets everyone in, answers the first query with `before`, and then with `flood` for ever."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        take_startup(connection)
        connection.sendall(GREETING)
        connection.recv(8192)
        connection.sendall(before)
        while not ended.is_set():
            connection.sendall(flood * 64)

    return serve
