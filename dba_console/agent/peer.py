"""One console at the other end of the socket: what waits for it, bounded, and what it lost by reading too slowly."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field

from dba_console.agent.protocol import Deframer, Greeting, Notice, pack

QUEUE_LIMIT = 4 << 20
"""Bytes queued for one console before its oldest samples are dropped: over a minute at 220 sessions."""


@dataclass(eq=False)
class Peer:
    """A connection and what is on its way to it."""

    connection: socket.socket
    pid: int
    uid: int
    greeting: Greeting | None = None
    deframer: Deframer = field(default_factory=Deframer)
    sending: memoryview = field(default_factory=lambda: memoryview(b""))
    queue: deque[tuple[bool, bytes]] = field(default_factory=deque)
    """(is a sample, packed message)."""
    queued: int = 0
    dropped: int = 0
    moved_us: int = 0
    """When it last took something."""
    closing: bool = False

    def push(self, packed: bytes, *, sample: bool) -> None:
        """Queue a message; a full queue loses its oldest samples."""
        self.queue.append((sample, packed))
        self.queued += len(packed)
        while self.queued > QUEUE_LIMIT:
            index = next((i for i, (is_sample, _) in enumerate(self.queue) if is_sample), None)
            if index is None:
                break
            self.queued -= len(self.queue[index][1])
            del self.queue[index]
            self.dropped += 1

    def next_bytes(self) -> memoryview:
        """What to send now, empty when nothing waits."""
        if not self.sending:
            if self.dropped:
                text = f"{self.dropped} samples were not sent: this console reads too slowly"
                self.dropped = 0
                self.sending = memoryview(pack(Notice(kind="slow", text=text)))
            elif self.queue:
                _, packed = self.queue.popleft()
                self.queued -= len(packed)
                self.sending = memoryview(packed)
        return self.sending
