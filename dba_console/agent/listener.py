"""The agent's side of the socket: one thread that serves every console and never waits for any of them.

Each console has a bounded queue. When it is full its oldest samples are dropped, counted and reported; a console that
takes nothing for `STALLED_S` while its queue is full is disconnected, and informed when it reconnects.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dba_console.agent.console_connection import SAMPLE, UNSENT_ANSWERS_LIMIT, ConsoleConnection
from dba_console.agent.protocol import (
    PROTOCOL,
    REQUEST_LIMIT,
    AgentDescription,
    Bye,
    Greeting,
    Message,
    Notice,
    ProtocolError,
    pack,
)
from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError

STALLED_S = 30.0
CONSOLES_LIMIT = 16
BACKLOG = 128
"""Connections waiting to be accepted; the kernel refuses the next one at once."""
READ_BYTES = 4096
"""Maximum bytes read from one console at a time, so that a flood of one does not delay the others."""
_PEER = struct.Struct("3i")
PushToConsole = Callable[[ConsoleConnection], None]


class Listener:
    """Serves consoles on a unix socket until closed.

    `welcome` returns the agent's description and the first messages for a new console; `request` is called with each
    request of a greeted console; `left` when one has gone. All three are called on the listener's thread.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        welcome: Callable[[ConsoleConnection], tuple[AgentDescription, list[bytes]]],
        request: Callable[[ConsoleConnection, Message], None],
        left: Callable[[ConsoleConnection], None],
    ) -> None:
        self.path = path
        self._clock = clock
        self._welcome, self._request, self._left = welcome, request, left
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, ConsoleConnection] = {}
        self._lock = threading.Lock()
        self._queued_pushes: deque[PushToConsole] = deque(maxlen=1024)
        self._missed: dict[int, int] = {}
        self._closing: str | None = None
        self.slow_dropped = 0
        """Consoles disconnected because they did not read."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._server = _listen(path)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        """Start to serve; earlier connections wait in the socket's backlog."""
        self._thread.start()

    @property
    def consoles(self) -> int:
        """Consoles attached now, without the readers show and check."""
        return sum(peer.greeting is not None and peer.greeting.role == "console" for peer in list(self._peers.values()))

    def broadcast(self, packed: bytes, *, sample: bool = False) -> None:
        """Send to every greeted console. Returns at once, whatever the consoles do."""
        self.push_to_each(lambda peer: peer.push(packed, sample=sample))

    def push_to_each(self, give: PushToConsole) -> None:
        """Call `give` for each greeted console, on the listener's thread. Returns at once."""
        if not self._peers:
            return  # a console that connects now gets the current state as its welcome
        with self._lock:
            self._queued_pushes.append(give)
        self._wake()

    def close(self, reason: str) -> None:
        """Send a goodbye to every console, stop serving, remove the socket."""
        self._closing = reason
        self._wake()
        self._thread.join(2.0)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups

    def _run(self) -> None:
        while self._closing is None:
            for key, events in self._selector.select(5.0):
                if key.fileobj is self._server:
                    self._accept()
                elif key.fd == self._wake_read:
                    self._push_queued()
                elif (peer := self._peers.get(key.fd)) is not None:  # None if an earlier event closed it
                    self._serve(peer, events)
            self._drop_stalled()
        self._say_goodbye()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        pid, uid, _gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        peer = ConsoleConnection(connection, pid, uid, last_sent_us=self._clock.mono_us())
        connection.setblocking(False)
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ)
        if uid not in (os.geteuid(), 0):
            self._refuse(peer, f"this agent belongs to uid {os.geteuid()}")
        elif len(self._peers) > CONSOLES_LIMIT:
            self._refuse(peer, f"{CONSOLES_LIMIT} consoles are already attached")

    def _refuse(self, peer: ConsoleConnection, reason: str) -> None:
        peer.clear()
        peer.push(pack(Bye(reason=reason)), sample=False)
        peer.closing = True
        self._flush(peer)

    def _push_queued(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        with self._lock:
            pushes = list(self._queued_pushes)
            self._queued_pushes.clear()
        for peer in list(self._peers.values()):
            if peer.greeting is not None and not peer.closing:
                self._push_all(peer, pushes)

    def _push_all(self, peer: ConsoleConnection, pushes: list[PushToConsole]) -> None:
        try:
            for give in pushes:
                give(peer)
        except Exception as error:
            self._refuse(peer, f"the agent failed to send to this console: {_error_text(error)}")
        else:
            self._flush(peer)

    def _serve(self, peer: ConsoleConnection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if events & selectors.EVENT_READ and peer.connection.fileno() >= 0:
            self._read(peer)

    def _read(self, peer: ConsoleConnection) -> None:
        try:
            data = peer.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_peer(peer)
            return
        try:
            for message in peer.deframer.feed(data):
                self._handle_message(peer, message)
        except ProtocolError as error:
            self._refuse(peer, f"invalid message from this console: {error}")
        except Exception as error:  # must not end the thread, which serves all consoles and runs
            self._refuse(peer, f"the agent failed on a request of this console: {_error_text(error)}")
        else:
            if peer.queue and peer.connection.fileno() >= 0:
                self._flush(peer)

    def _handle_message(self, peer: ConsoleConnection, message: Message) -> None:
        if peer.closing:
            return
        if isinstance(message, Greeting):
            if message.protocol != PROTOCOL:
                self._refuse(
                    peer,
                    f"the agent uses protocol {PROTOCOL}, this console {message.protocol}: "
                    "start both from the same version of dba-console",
                )
                return
            self._greet(peer, message)
        elif peer.greeting is None:
            self._refuse(peer, "the first message must be a greeting")
        else:
            self._request(peer, message)

    def _greet(self, peer: ConsoleConnection, greeting: Greeting) -> None:
        peer.greeting = greeting
        peer.deframer.limit = REQUEST_LIMIT
        description, first = self._welcome(peer)
        peer.push(pack(description), sample=False)
        if (missed := self._missed.pop(peer.pid, None)) is not None:
            text = (
                f"this console was disconnected because it read nothing for {STALLED_S:.0f} s; {missed} samples missed"
            )
            peer.push(pack(Notice(kind="disconnected", text=text)), sample=False)
        for packed in first:
            peer.push(packed, sample=False)
        self._flush(peer)

    def _flush(self, peer: ConsoleConnection) -> None:
        try:
            while view := peer.next_bytes():
                sent = peer.connection.send(view)
                peer.sending = view[sent:]
                peer.last_sent_us = self._clock.mono_us()
        except BlockingIOError:
            # A console that takes no answers is not read either.
            reads = 0 if peer.unsent_answer_bytes > UNSENT_ANSWERS_LIMIT else selectors.EVENT_READ
            self._selector.modify(peer.connection, reads | selectors.EVENT_WRITE)
            return
        except OSError:
            self._close_peer(peer)
            return
        if peer.closing:
            self._close_peer(peer)
        else:
            self._selector.modify(peer.connection, selectors.EVENT_READ)

    def _drop_stalled(self) -> None:
        now = self._clock.mono_us()
        for peer in list(self._peers.values()):
            waits = bool(peer.sending) and now - peer.last_sent_us > STALLED_S * 1e6
            silent = peer.greeting is None and now - peer.last_sent_us > STALLED_S * 1e6
            if waits or silent:
                if peer.greeting is not None:
                    self.slow_dropped += 1
                    self._missed[peer.pid] = peer.dropped + sum(kind == SAMPLE for kind, _ in peer.queue)
                self._close_peer(peer)

    def _close_peer(self, peer: ConsoleConnection) -> None:
        if self._peers.pop(peer.connection.fileno(), None) is None:
            return
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer.greeting is not None:
            self._left(peer)

    def _say_goodbye(self) -> None:
        for peer in list(self._peers.values()):
            peer.clear()
            peer.push(pack(Bye(reason=self._closing or "")), sample=False)
            peer.closing = True
            self._flush(peer)
        self._server.close()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def _error_text(error: Exception) -> str:
    """Return the text of an internal error, with its report if that can be written."""
    from dba_console.core.crash_report import summary, write_report

    try:
        return f"internal error: {summary(error, [])}; report: {write_report(error, [])}"
    except (OSError, ConsoleError):
        return f"internal error: {summary(error, [])}"


def _listen(path: Path) -> socket.socket:
    """Return a listening socket that only its owner can reach. The caller holds the lock, so an old one is stale."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The directory is 0700; the umask makes the socket 0600 from the start.
    mask = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(mask)
    server.listen(BACKLOG)
    server.setblocking(False)
    return server
