"""What goes from the screen to the agent, sent at once by a thread of its own.

An agent that does not read cannot hold the screen; leaving the console waits a moment for what is still unsent.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import Acknowledge, Mark, Note, Request, Silence

MAX_QUEUED = 16
CLOSE_TIMEOUT_S = 1.0
"""How long leaving waits for the last mark to be sent."""


class Outbox:
    """Marks and notes on their way. `lost` is told the text of one that could not be sent."""

    def __init__(self, report_unsent: Callable[[str], None]) -> None:
        self._report_unsent = report_unsent
        self._queue: queue.Queue[Request | None] = queue.Queue(MAX_QUEUED)
        self._client: AgentClient | None = None
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def use(self, client: AgentClient | None) -> None:
        """Send by this client from now on; None while there is none."""
        self._client = client

    def put(self, message: Request) -> bool:
        """Take a message. False when there is no room, because the agent does not read."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Send what is left, waiting for it at most `LAST_S` seconds."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            client = self._client
            try:
                if client is None:
                    raise AgentConnectionLost("not attached to an agent")
                client.send(message)
            except AgentConnectionLost as lost:
                self._report_unsent(f"{_unsent_text(message)} ({lost})")


def _unsent_text(message: Request) -> str:
    """What did not reach the agent, in a few words."""
    if isinstance(message, Mark | Note):
        return f"not recorded: {message.text or 'the mark'}"
    if isinstance(message, Acknowledge | Silence):
        return f"not recorded: what was said of {message.finding}"
    return "not sent: what was asked of the run"
