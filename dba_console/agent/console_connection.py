"""One console connected to the agent: its bounded send queue, and what was dropped because it reads too slowly."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field

from dba_console.agent.protocol import GREETING_LIMIT, Deframer, Greeting, Notice, pack

QUEUE_LIMIT = 4 << 20
"""Bytes queued for one console before its oldest samples are dropped: over a minute at 220 sessions."""
UNSENT_ANSWERS_LIMIT = 256 << 10
"""Bytes of unsent answers for one console; its requests are not read until it has taken some."""
SAMPLE, LINES = "sample", "lines"
DROPPABLE = frozenset({SAMPLE, LINES})
"""Kinds that are recorded anyway, so a slow console may miss them."""


@dataclass(eq=False)
class ConsoleConnection:
    """A connection and its send queue."""

    connection: socket.socket
    pid: int
    uid: int
    greeting: Greeting | None = None
    deframer: Deframer = field(default_factory=lambda: Deframer(GREETING_LIMIT))
    sending: memoryview = field(default_factory=lambda: memoryview(b""))
    queue: deque[tuple[str, bytes]] = field(default_factory=deque)
    """(kind, packed message)."""
    queued: int = 0
    unsent_answer_bytes: int = 0
    """Bytes of `queue` that must not be dropped: answers."""
    dropped: int = 0
    """Samples dropped."""
    lines_dropped: bool = False
    last_sent_us: int = 0
    """When it last accepted data."""
    closing: bool = False

    def push(self, packed: bytes, *, sample: bool = False, replaces_key: str = "") -> None:
        """Queue a message; a full queue drops its oldest samples and lines.

        `replaces_key` names a subject whose latest message replaces a queued one.
        """
        kind = SAMPLE if sample else replaces_key
        if replaces_key and replaces_key not in DROPPABLE:
            self._remove_queued(replaces_key)
        self.queue.append((kind, packed))
        self.queued += len(packed)
        self.unsent_answer_bytes += 0 if kind in DROPPABLE else len(packed)
        while self.queued > QUEUE_LIMIT:
            index = next((i for i, (kind, _) in enumerate(self.queue) if kind in DROPPABLE), None)
            if index is None:
                break
            kind, lost = self.queue[index]
            self.queued -= len(lost)
            del self.queue[index]
            if kind == SAMPLE:
                self.dropped += 1
            else:
                self.lines_dropped = True

    def _remove_queued(self, of: str) -> None:
        index = next((i for i, (kind, _) in enumerate(self.queue) if kind == of), None)
        if index is not None:
            self.queued -= len(self.queue[index][1])
            self.unsent_answer_bytes -= len(self.queue[index][1])
            del self.queue[index]

    def clear(self) -> None:
        """Drop the queue."""
        self.queue.clear()
        self.queued = self.unsent_answer_bytes = 0

    def next_bytes(self) -> memoryview:
        """Return the bytes to send now; empty if there are none."""
        if not self.sending:
            if self.dropped:
                text = f"{self.dropped} samples were not sent: this console reads too slowly"
                self.dropped = 0
                self.sending = memoryview(pack(Notice(kind="slow", text=text)))
            elif self.lines_dropped:
                text = "lines of output were not sent: this console reads too slowly"
                self.lines_dropped = False
                self.sending = memoryview(pack(Notice(kind="slow", text=text)))
            elif self.queue:
                kind, packed = self.queue.popleft()
                self.queued -= len(packed)
                self.unsent_answer_bytes -= 0 if kind in DROPPABLE else len(packed)
                self.sending = memoryview(packed)
        return self.sending
