"""The console's side of the agent's socket. Used from its own thread: receive() blocks, nothing else does."""

from __future__ import annotations

import os
import select
import socket
import struct
from pathlib import Path

from dba_console import __version__
from dba_console.agent.protocol import (
    PROTOCOL,
    AgentDescription,
    Bye,
    Deframer,
    EventMessage,
    Greeting,
    Message,
    Notice,
    ProtocolError,
    Request,
    RunReply,
    SampleMessage,
    pack,
)
from dba_console.core.errors import ConnectError
from dba_console.core.users import user_name

NoticeMessage = Notice


class AgentConnectionLost(Exception):
    """The agent has ended or closed the connection; the text says why if known."""


class AgentClient:
    """A connection to a running agent. `connect` returns it after the greeting, which the agent answered."""

    def __init__(
        self, connection: socket.socket, description: AgentDescription, deframer: Deframer, waiting: list[Message]
    ) -> None:
        self._socket = connection
        self._deframer = deframer
        self._undelivered = waiting
        self.agent_description = description

    @classmethod
    def connect(cls, path: Path | str, *, role: str = "console", timeout_s: float = 3.0) -> AgentClient:
        """Attach to the agent listening at `path`.

        Raises ConnectError if nobody listens, on timeout, if the agent refuses, or if it belongs to another user.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            _require_trusted_listener(connection, path)
            connection.sendall(
                pack(
                    Greeting(protocol=PROTOCOL, version=__version__, login=operator_login(), role=role, pid=os.getpid())
                )
            )
            return cls._await_hello(connection)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            raise ConnectError("the agent no longer runs; `dba-console DSN` starts one") from error
        except BlockingIOError as error:
            connection.close()
            raise ConnectError(
                f"the agent at {path} accepts no more connections: its queue is full", hint="try again"
            ) from error
        except (OSError, ProtocolError) as error:
            connection.close()
            raise ConnectError(f"no agent answers at {path}: {error}") from error
        except BaseException:
            connection.close()
            raise

    @classmethod
    def _await_hello(cls, connection: socket.socket) -> AgentClient:
        deframer = Deframer()
        while data := connection.recv(1 << 16):
            messages = list(deframer.feed(data))
            if not messages:
                continue
            first = messages[0]
            if isinstance(first, Bye):
                raise ConnectError(f"the agent refused the connection: {first.reason}")
            if not isinstance(first, AgentDescription):
                raise ProtocolError("the first message is not the agent's description")
            return cls(connection, first, deframer, messages[1:])
        raise ProtocolError("connection closed before an answer")

    def receive(self, timeout_s: float | None) -> SampleMessage | EventMessage | NoticeMessage | RunReply | None:
        """Return the next message, None after `timeout_s` seconds. Raises AgentConnectionLost at its end."""
        while True:
            while self._undelivered:
                message = self._undelivered.pop(0)
                if isinstance(message, Bye):
                    raise AgentConnectionLost(message.reason)
                if isinstance(message, SampleMessage | EventMessage | Notice | RunReply):
                    return message
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            try:
                data = self._socket.recv(1 << 18)
                if not data:
                    raise AgentConnectionLost("the agent has ended")
                self._undelivered.extend(self._deframer.feed(data))
            except (OSError, ProtocolError) as error:
                raise AgentConnectionLost(f"the connection to the agent broke: {error}") from error

    def send(self, message: Request) -> None:
        """Send a request. Raises AgentConnectionLost if it cannot be sent within the socket's timeout."""
        try:
            self._socket.sendall(pack(message))
        except OSError as error:
            raise AgentConnectionLost(f"cannot send to the agent: {error}") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def is_trusted_listener(listener: int, caller: int) -> bool:
    """Return whether user id `caller` trusts an agent of user id `listener`: anybody may create a socket in /tmp.

    >>> (is_trusted_listener(1000, 1000), is_trusted_listener(0, 1000), is_trusted_listener(26, 0),
    ...  is_trusted_listener(1001, 1000))
    (True, True, True, False)
    """
    return listener in (caller, 0) or caller == 0


def _require_trusted_listener(connection: socket.socket, path: Path | str) -> None:
    """Raise ConnectError for an untrusted listener; the kernel reports who called listen() (unix(7))."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if not is_trusted_listener(uid, os.geteuid()):
        raise ConnectError(
            f"the agent at {path} belongs to uid {uid}, not to you (uid {os.geteuid()})",
            hint="attach as that user, as in `sudo -u postgres dba-console attach`",
        )


def operator_login() -> str:
    """Return the operator's login (the user behind sudo, if any), terminal, and address of the SSH session.

    `anna on pts/3 from 10.0.0.1`; the terminal and the address only if there is one.
    """
    user = os.environ.get("SUDO_USER") or user_name(os.getuid())
    origin = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    try:
        terminal = os.ttyname(0).removeprefix("/dev/")
    except OSError:
        terminal = ""
    return user + (f" on {terminal}" if terminal else "") + (f" from {origin}" if origin else "")
