"""The console's end of the socket. Used from a thread of its own: reading blocks, nothing else does."""

from __future__ import annotations

import os
import pwd
import select
import socket
import struct
from pathlib import Path

from dba_console import __version__
from dba_console.agent.protocol import (
    PROTOCOL,
    Bye,
    Deframer,
    EventMessage,
    Greeting,
    Hello,
    Message,
    Notice,
    ProtocolError,
    Request,
    RunReply,
    SampleMessage,
    pack,
)
from dba_console.core.errors import ConnectError

NoticeMessage = Notice


class AgentConnectionLost(Exception):
    """The agent went away or closed the connection; the text says why where it is known."""


class AgentClient:
    """A connection to a running agent. `connect` returns one that has been greeted; `hello` is the agent's answer."""

    def __init__(self, connection: socket.socket, hello: Hello, deframer: Deframer, waiting: list[Message]) -> None:
        self._socket = connection
        self._deframer = deframer
        self._undelivered = waiting
        self.hello = hello

    @classmethod
    def connect(cls, path: Path | str, *, role: str = "console", timeout_s: float = 3.0) -> AgentClient:
        """Attach to the agent listening at `path`.

        Raises ConnectError when nobody listens there, it does not answer in time, it refuses, or it is another user's.
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
            raise ConnectError("no agent answers any more; `dba-console DSN` starts one") from error
        except BlockingIOError as error:
            connection.close()
            raise ConnectError(
                f"the agent at {path} takes no more connections: too many wait for it already", hint="try again"
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
                raise ConnectError(f"the agent refused: {first.reason}")
            if not isinstance(first, Hello):
                raise ProtocolError("the first message is not a hello")
            return cls(connection, first, deframer, messages[1:])
        raise ProtocolError("closed before it answered")

    def receive(self, timeout_s: float | None) -> SampleMessage | EventMessage | NoticeMessage | RunReply | None:
        """The next message, None when none came in `timeout_s` seconds. Raises ConnectionLost at its end."""
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
                    raise AgentConnectionLost("the agent is gone")
                self._undelivered.extend(self._deframer.feed(data))
            except (OSError, ProtocolError) as error:
                raise AgentConnectionLost(f"the connection to the agent broke: {error}") from error

    def send(self, message: Request) -> None:
        """Send a request. Raises ConnectionLost when it cannot be sent within the socket's time limit."""
        try:
            self._socket.sendall(pack(message))
        except OSError as error:
            raise AgentConnectionLost(f"the agent did not take it: {error}") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def is_trusted_listener(listener: int, caller: int) -> bool:
    """Whether the user id `caller` believes an agent of `listener`: a socket in a shared directory can be anybody's.

    >>> (is_trusted_listener(1000, 1000), is_trusted_listener(0, 1000), is_trusted_listener(26, 0),
    ...  is_trusted_listener(1001, 1000))
    (True, True, True, False)
    """
    return listener in (caller, 0) or caller == 0


def _require_trusted_listener(connection: socket.socket, path: Path | str) -> None:
    """Raises ConnectError where the listener is not to be trusted; the kernel says who called listen() (unix(7))."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if not is_trusted_listener(uid, os.geteuid()):
        raise ConnectError(
            f"the agent at {path} belongs to uid {uid}, not to you (uid {os.geteuid()})",
            hint="attach as that user, as in `sudo -u postgres dba-console attach`",
        )


def operator_login() -> str:
    """Who sits at this terminal: the login behind sudo where there is one, and where the SSH session comes from."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"uid {os.getuid()}"
    origin = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return f"{user} from {origin}" if origin else user
