"""Destinations of `stamp` besides standard output: syslog, a session, and the summary of the slowest lines."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from dba_console.cli.stamp.lines import LineDestination, LinePrefix
from dba_console.core.errors import ConsoleError, SessionError
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.keeper.output_log import LineStamper, OutputLog, SegmentedLog

SYSLOG_SOCKET = "/dev/log"
JOURNALD_SOCKET = "/run/systemd/journal/socket"
USER_NOTICE = 1 * 8 + 5
"""Facility user, level notice: the default of logger(1)."""
MAX_MESSAGE_BYTES = 8000
"""Bytes of one message; rsyslog accepts 8 kB by default. Longer lines are sent in pieces."""
SEND_TIMEOUT_S = 1.0
"""Timeout for a log daemon that does not accept messages."""
ANSWER_TIMEOUT_S = 3.0
"""Timeout for the agent's confirmation of a note."""
SLOWEST_KEPT = 10
MAX_SHOWN = 160
SESSION_BYTES = 64 << 20
"""Bytes kept of the beginning, and at most as many of the end, to limit the disk space of a session."""


class Syslog(LineDestination):
    """The log daemon of this host. The command before us never waits for it for long."""

    def __init__(self, tag: str, path: str | None) -> None:
        """`path` is a socket like /dev/log, None for the default."""
        self._uses_journald = path is None and not os.path.exists(SYSLOG_SOCKET) and os.path.exists(JOURNALD_SOCKET)
        self._path = path or (JOURNALD_SOCKET if self._uses_journald else SYSLOG_SOCKET)
        self._tag = tag.encode("utf-8", "surrogateescape")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SEND_TIMEOUT_S)
        self._connected = False
        self._lost_lines = 0
        self._last_error = ""

    def write(self, lines: bytes, wall_us: int) -> None:
        before = self._message_prefix(wall_us)
        for line in lines.split(b"\n"):
            for at in range(0, max(len(line), 1), MAX_MESSAGE_BYTES):
                self._send(before + line[at : at + MAX_MESSAGE_BYTES])

    def _message_prefix(self, wall_us: int) -> bytes:
        if self._uses_journald:
            return b"PRIORITY=5\nSYSLOG_FACILITY=1\nSYSLOG_IDENTIFIER=%b\nMESSAGE=" % self._tag
        # Local messages have no host name (syslog(3)); the daemon adds it.
        stamp = time.strftime("%b %e %H:%M:%S", time.localtime(wall_us / 1e6))
        return b"<%d>%b %b: " % (USER_NOTICE, stamp.encode(), self._tag)

    def _send(self, message: bytes) -> None:
        try:
            if not self._connected:
                self._socket.connect(self._path)
                self._connected = True
            self._socket.send(message)
        except TimeoutError:
            # From now on, send without waiting.
            self._socket.setblocking(False)
            self._count_lost("it does not accept messages")
        except BlockingIOError:
            self._count_lost("it does not accept messages")
        except OSError as error:
            self._connected = False
            self._socket.close()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(SEND_TIMEOUT_S)
            self._count_lost(error.strerror or str(error))

    def _count_lost(self, why: str) -> None:
        self._lost_lines += 1
        if not self._last_error:
            from dba_console.cli.stderr import print_diagnostic

            print_diagnostic(
                f"warning: lines do not reach the log daemon at {self._path}: {why}; standard output still gets them"
            )
        self._last_error = why

    def close(self) -> list[str]:
        self._socket.close()
        lines = f"{self._lost_lines:,} line{'s' if self._lost_lines != 1 else ''}"
        return [f"warning: {lines} did not reach the log daemon: {self._last_error}"] if self._lost_lines else []


class SessionFile(LineDestination):
    """A file in `out/` of a session, and a note in the session through its agent, if one runs."""

    def __init__(self, session: Path, tag: str) -> None:
        """Raise SessionError if the file cannot be created."""
        self._session, self._tag = session, tag
        self.name = f"{_file_name_part(tag)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        try:
            directory = session / "out"
            directory.mkdir(mode=0o700, exist_ok=True)
            self._files = SegmentedLog(str(directory), SESSION_BYTES, SESSION_BYTES, self.name)
        except OSError as error:
            raise SessionError(f"cannot write to the session {session.name}: {error.strerror}") from error
        self._log = OutputLog(self._files)
        self._stamper = LineStamper(b"o")
        self._lines, self._begun = 0, time.monotonic()
        add_session_note(session, f"{tag}: lines are copied to out/{self.name}.log")

    @classmethod
    def for_session(cls, session: str, tag: str) -> SessionFile:
        """Return the file for a session named on the command line. Raises SessionError."""
        from dba_console.cli.config_file import load_config, sessions_directory
        from dba_console.recording.session_lookup import resolve

        return cls(resolve(session, sessions_directory(load_config().config), to_change=True), tag)

    def write(self, lines: bytes, wall_us: int) -> None:
        block = self._stamper.feed(lines + b"\n", wall_us)
        self._lines += block[1]
        self._log.put(block)

    def close(self) -> list[str]:
        complete = self._log.close(SEND_TIMEOUT_S)
        dropped = self._log.dropped_lines + self._files.rolled_lines
        duration = human_duration(time.monotonic() - self._begun)
        add_session_note(self._session, f"{self._tag}: {self._lines:,} lines in {duration}, in out/{self.name}.log")
        if complete and not dropped:
            return []
        return [f"warning: {dropped:,} of {self._lines:,} lines are not in out/{self.name}.log of the session"]


def add_session_note(session: Path, text: str) -> None:
    """Add an event to the session if an agent records it; else do nothing."""
    from dba_console.agent.client import AgentClient, AgentConnectionLost
    from dba_console.agent.find_or_start import list_agents
    from dba_console.agent.protocol import EventMessage, Note

    try:
        for agent in list_agents():
            if agent.session is None or Path(agent.session).resolve() != session.resolve():
                continue
            client = AgentClient.connect(agent.path, role="show", timeout_s=SEND_TIMEOUT_S)
            try:
                client.send(Note(text=text))
                # Closing before the agent's messages are read would reset the connection and lose the note.
                until = time.monotonic() + ANSWER_TIMEOUT_S
                while (left := until - time.monotonic()) > 0:
                    message = client.receive(left)
                    if isinstance(message, EventMessage) and message.event.text == text:
                        break
            finally:
                client.close()
    except (ConsoleError, AgentConnectionLost, OSError):
        pass  # the lines are in the file, the note is optional


class SlowestLines(LineDestination):
    """The lines with the longest time until the next. Of lines that arrive together only the last counts."""

    def __init__(self, stamps: LinePrefix) -> None:
        self._stamps = stamps
        self._last: tuple[int, int, bytes] | None = None
        self._longest: list[tuple[int, int, bytes]] = []
        self._lines, self._begun = 0, time.monotonic_ns()

    def write(self, lines: bytes, wall_us: int) -> None:
        now = time.monotonic_ns()
        self._finish_last_line(now)
        self._lines += lines.count(b"\n") + 1
        self._last = now, wall_us, lines[lines.rfind(b"\n") + 1 :][: MAX_SHOWN * 4]

    def _finish_last_line(self, now: int) -> None:
        if self._last is None:
            return
        gap = now - self._last[0]
        if len(self._longest) < SLOWEST_KEPT or gap > self._longest[-1][0]:
            self._longest.append((gap, self._last[1], self._last[2]))
            self._longest.sort(key=lambda entry: -entry[0])
            del self._longest[SLOWEST_KEPT:]

    def close(self) -> list[str]:
        now = time.monotonic_ns()
        self._finish_last_line(now)
        duration = human_duration((now - self._begun) / 1e9)
        head = f"{self._lines:,} lines in {duration}; the longest gaps, each with the line before it:"
        return [head, *self._rows(self._longest)] if self._longest else [f"no lines in {duration}"]

    def _rows(self, entries: Sequence[tuple[int, int, bytes]]) -> list[str]:
        return [
            f"{human_duration(gap / 1e9):>8}  "
            f"{self._stamps.at_time(wall_us).decode('utf-8', 'replace')}{_shorten(line)}"
            for gap, wall_us, line in entries
        ]


def _shorten(line: bytes) -> str:
    text = clean(line.decode("utf-8", "replace"))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _file_name_part(tag: str) -> str:
    """Return a tag as a part of a file name.

    >>> _file_name_part("../PG restore")
    'PG_restore'
    """
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in tag).strip("_")[:40] or "out"
