"""The feed of a running agent: attaches, receives, reconnects; and the feed of a recording.

Its thread always reads what the agent sends, so this console never blocks the agent. When the agent is lost, the
header shows it, and further attempts (attach, or start an agent) follow at growing intervals.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from dba_console.agent.client import AgentClient, AgentConnectionLost, NoticeMessage
from dba_console.agent.protocol import (
    Acknowledge,
    EventMessage,
    Mark,
    Note,
    Request,
    RunLines,
    RunRefused,
    RunViewMessage,
    SampleMessage,
    Silence,
)
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.tui.feed import (
    AgentConnectionChanged,
    EventArrived,
    FindingOrRunRequest,
    Mailbox,
    NoticeArrived,
    SampleArrived,
    Session,
)
from dba_console.tui.known_runs import read_runs
from dba_console.tui.recording_reader import RecordingReader, open_recording, resolve_time

# The outbox: messages of the screen to the agent, sent by a thread of its own.
#
# An agent that does not read cannot block the screen; leaving the console waits briefly for unsent messages.

MAX_QUEUED = 16
CLOSE_TIMEOUT_S = 1.0
"""How long leaving waits for the last message to be sent."""


class Outbox:
    """Messages waiting to be sent. `report_unsent` gets a sentence about each one that could not be sent."""

    def __init__(self, report_unsent: Callable[[str], None]) -> None:
        self._report_unsent = report_unsent
        self._queue: queue.Queue[Request | None] = queue.Queue(MAX_QUEUED)
        self._client: AgentClient | None = None
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def use(self, client: AgentClient | None) -> None:
        """Send through this client from now on; None while not attached."""
        self._client = client

    def put(self, message: Request) -> bool:
        """Add a message. Returns False if the queue is full, because the agent does not read."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Send what is left, for at most `LAST_S` seconds."""
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
    """Return what did not reach the agent, in a few words."""
    if isinstance(message, Mark | Note):
        return f"not recorded: {message.text or 'the mark'}"
    if isinstance(message, Acknowledge | Silence):
        return f"not recorded: the change of {message.finding}"
    return "not sent: the request about the run"


RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Waits between attempts to attach; the last one repeats."""
_POLL_S = 1.0
"""Between two checks whether the screen was left."""

Connect = Callable[[], AgentClient]


class LiveFeed:
    """Samples of the agent that `connect` reaches. `connect` attaches to it or starts one; it may take seconds."""

    can_go_live = True
    hosts: Sequence[Session] = ()

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self.mailbox = Mailbox()
        self.session = Session(name)
        self.recording: RecordingReader | None = None
        self._session_directory: str | None = None
        self._outbox = Outbox(lambda text: self.mailbox.put(NoticeArrived(redact(text))))
        self._closed = threading.Event()
        self._attached = False
        self._ever_attached = False
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    @property
    def refusal(self) -> str | None:
        """Why nothing can be marked or noted now, None if it can."""
        return None if self._attached else "not attached to an agent: nothing can be recorded now"

    def start(self) -> None:
        self._thread.start()

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        """Queue it for the feed's thread. Returns None, or why it cannot be taken."""
        if self.refusal is not None:
            return self.refusal
        message_type = Mark if kind == "mark" else Note
        message = message_type(text=text, occurred_us=occurred_us)
        return None if self._outbox.put(message) else "the agent accepts no marks now; try again"

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        """Queue it for the feed's thread. Returns None, or why it cannot be taken."""
        if self.refusal is not None:
            return self.refusal
        return None if self._outbox.put(request) else "the agent accepts nothing now; try again"

    def close(self) -> None:
        self._closed.set()
        self._outbox.close()
        if self.recording is not None:
            self.recording.close()

    def _run(self) -> None:
        attempt = 0
        while not self._closed.is_set():
            client = self._attach(first=not self._ever_attached)
            if client is not None:
                attempt = 0
                self._report_attached(client)
                self._receive_until_lost(client)
            self._closed.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)])
            attempt += 1

    def _attach(self, *, first: bool) -> AgentClient | None:
        try:
            return self._connect()
        except ConsoleError as error:
            if first:
                self.mailbox.put(AgentConnectionChanged("failed", error=error))
            else:
                self._report_lost(error.message)
        except Exception as error:
            # Starting an agent may fail like any subprocess: the next attempt follows.
            self._report_lost(str(error) or type(error).__name__)
        return None

    def _report_lost(self, why: str) -> None:
        self._attached = False
        if not self._closed.is_set():
            self.mailbox.put(AgentConnectionChanged("lost", redact(why)))

    def _report_attached(self, client: AgentClient) -> None:
        agent = client.agent_description
        directory = None if agent.session is None else Path(agent.session)
        self.session = Session(
            agent.target,
            agent.hostname,
            agent.started_us,
            agent.interval_s,
            agent.grace_s,
            tuple(agent.runs),
            agent.key,
            directory,
        )
        if agent.session != self._session_directory:
            self._session_directory = agent.session
            if self.recording is not None:
                self.recording.close()
            self.recording = None if directory is None else self._open_reader(directory)
        self._outbox.use(client)
        self._attached = self._ever_attached = True
        self.mailbox.put(AgentConnectionChanged("attached", session=self.session))

    def _open_reader(self, directory: Path) -> RecordingReader:
        return RecordingReader(lambda: open_recording(directory), self.mailbox, resolve_time)

    def _receive_until_lost(self, client: AgentClient) -> None:
        try:
            while not self._closed.is_set():
                self._receive_message(client)
        except AgentConnectionLost as lost:
            self._report_lost(str(lost))
        finally:
            self._attached = False
            if not self._closed.is_set():
                # On leaving, the outbox may still be sending; the socket is closed when the process ends.
                self._outbox.use(None)
                client.close()

    def _receive_message(self, client: AgentClient) -> None:
        message = client.receive(_POLL_S)
        if isinstance(message, SampleMessage):
            self.mailbox.put(SampleArrived(message.data, message.point))
        elif isinstance(message, EventMessage):
            self.mailbox.put(EventArrived(message.event))
        elif isinstance(message, NoticeMessage):
            self.mailbox.put(NoticeArrived(message.text))
        elif isinstance(message, RunViewMessage | RunLines | RunRefused):
            self.mailbox.put(message)


# The feed of a recording: it sends nothing on its own and answers queries.


class ReplayFeed:
    """Recorded sessions; the first one is shown, and with others its clock is the time axis.

    Their names are shown in the header.
    """

    can_go_live = False

    def __init__(self, *sessions: Session) -> None:
        from dba_console.tui.recorded_hosts import RecordedHosts

        self.mailbox = Mailbox()
        self.session = sessions[0]
        self.hosts: Sequence[Session] = sessions if len(sessions) > 1 else ()
        self._sessions = sessions
        recordings = RecordedHosts(sessions)
        self.recording = RecordingReader(
            lambda: recordings.recording(0), self.mailbox, resolve_time, recordings if self.hosts else None
        )

    @property
    def refusal(self) -> str | None:
        """The screen never changes a recording: it is evidence. Notes are added on the command line, as later ones."""
        return "this is a recording: nothing can be added here; `dba-console session note` adds notes"

    def start(self) -> None:
        self.mailbox.put(AgentConnectionChanged("recording", session=self.session))
        threading.Thread(target=self._read_runs, name="runs", daemon=True).start()

    def _read_runs(self) -> None:
        for host, session in enumerate(self._sessions):
            if session.directory is not None:
                read_runs(session.directory, self.mailbox.put, host)

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        return self.refusal

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        return self.refusal

    def close(self) -> None:
        self.recording.close()
