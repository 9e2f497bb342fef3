"""Sends queries over one connection in pipeline mode: all of a tick in one round trip, each with its own sync.

A failing query aborts only its own segment. Nothing here blocks beyond the given deadline, whatever the server or the
network does; a late answer stays pending and is taken by the next `collect`. Protocol: libpq, "Pipeline Mode".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.core.clock import Clock
from dba_console.watch import subjects
from dba_console.watch.probes.postgres.binary_results import Loader, ResultRows, Row
from dba_console.watch.probes.postgres.connect import AnswerSize, message_of, wait_for
from dba_console.watch.probes.postgres.connect_errors import ConnectionLost, plain_message

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# Commands between two syncs, and their answer.


@dataclass(frozen=True, slots=True)
class Command:
    """One statement. `name` is the name it is prepared as."""

    name: str
    sql: bytes
    params: tuple[bytes | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """Commands between two syncs: one implicit transaction, one answer. `key` is returned with it."""

    key: str
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class ServerError:
    """The server's error for a failed command."""

    sqlstate: str
    message: str


@dataclass(slots=True)
class SegmentAnswer:
    """The rows of each command of a segment, or the error that ended it."""

    key: str
    rows: list[ResultRows] = field(default_factory=list)
    error: ServerError | None = None
    at_us: int = 0
    took_us: int = 0
    """Since the previous answer, or since it was sent: the server works on one at a time."""


def rows_of(answer: SegmentAnswer, index: int = 0) -> Sequence[Row]:
    """Return the rows of the command at `index`, empty if it returned none."""
    return answer.rows[index] if index < len(answer.rows) else ()


_STALE_PLAN = ("0A000", "26000")
"""cached plan must not change result type; prepared statement does not exist (DISCARD ALL was run on our session)."""


@dataclass(slots=True)
class _SentSegment:
    segment: Segment
    sent_us: int
    expected: deque[tuple[str, bytes] | None]
    """For each expected result: the statement it prepares and its name there, None for rows."""
    answer: SegmentAnswer


class Pipeline:
    """Drives a connection. `prepared` keeps statements on the server; `serial` sends a segment only when the previous
    one is answered, which a pooler requires."""

    def __init__(self, connection: PGconn, clock: Clock) -> None:
        connection.nonblocking = 1
        connection.enter_pipeline_mode()
        connection.notice_handler = self._take_notice
        self.queries = 0
        self.query_us = 0
        self.bytes_received = 0
        self.prepared = True
        self.serial = False
        self._connection = connection
        self._clock = clock
        self._loader = Loader()
        self._prepared: dict[str, bytes] = {}
        self._plans = 0
        self._sent: deque[_SentSegment] = deque()
        self._unsent: deque[Segment] = deque()
        self._last_us = 0
        self._size = AnswerSize()
        self._last_fatal_message: str | None = None
        self._last_fatal_sqlstate: str | None = None

    @property
    def pending(self) -> list[str]:
        """Keys of segments that are sent or queued, and not answered."""
        return [due.segment.key for due in self._sent] + [segment.key for segment in self._unsent]

    @property
    def waiting_since_us(self) -> int | None:
        """Monotonic time since which the oldest answer is pending; None if none is."""
        return max(self._sent[0].sent_us, self._last_us) if self._sent else None

    def send(self, segments: Iterable[Segment]) -> None:
        """Send segments. Raises ConnectionLost."""
        self._unsent.extend(segments)
        self._send_waiting()

    def collect(self, until_us: int) -> list[SegmentAnswer]:
        """Return answers that arrive until all are there, or until monotonic `until_us`. Raises ConnectionLost."""
        started = self._clock.mono_us()
        answers: list[SegmentAnswer] = []
        while True:
            self._take_results(answers)
            self._send_waiting()
            if not self._sent or not self._receive(until_us):
                break
        self.query_us += self._clock.mono_us() - started
        return answers

    def close(self) -> None:
        """Close the connection; the server notices it even if nothing can be read any more."""
        self._sent.clear()
        self._unsent.clear()
        self._connection.finish()

    def _send_waiting(self) -> None:
        while self._unsent and not (self.serial and self._sent):
            segment = self._unsent.popleft()
            try:
                self._sent.append(self._send(segment))
            except Exception as error:
                raise self._connection_lost(error) from None

    def _send(self, segment: Segment) -> _SentSegment:
        from psycopg.pq import Format

        preparing: deque[tuple[str, bytes] | None] = deque()
        for command in segment.commands:
            self.queries += 1
            if not self.prepared:
                self._connection.send_query_params(command.sql, command.params, result_format=Format.BINARY)
            else:
                if (plan := self._prepared.get(command.name)) is None:
                    # A new name each time: one whose plan became stale is still in use on the server.
                    self._plans += 1
                    plan = b"%s_%d" % (command.name.encode(), self._plans)
                    self._connection.send_prepare(plan, command.sql)
                    preparing.append((command.name, plan))
                self._connection.send_query_prepared(plan, command.params, result_format=Format.BINARY)
            preparing.append(None)
        self._connection.pipeline_sync()
        return _SentSegment(segment, self._clock.mono_us(), preparing, SegmentAnswer(segment.key))

    def _receive(self, until_us: int) -> bool:
        """Wait for bytes and read them; False at the deadline."""
        try:
            unsent = self._connection.flush() != 0
            if not wait_for(self._connection.socket, writing=unsent, until_us=until_us, clock=self._clock):
                return False
            self.bytes_received += self._size.arrived(self._connection.socket)
            self._connection.consume_input()
            self._size.taken(self._connection.socket)
            while self._connection.notifies() is not None:
                pass  # we listen to nothing, and libpq would keep them
        except ConnectionLost:
            raise
        except Exception as error:
            raise self._connection_lost(error) from None
        return True

    def _take_results(self, answers: list[SegmentAnswer]) -> None:
        """Add complete results to the answers they belong to."""
        from psycopg.pq import ConnStatus, ExecStatus

        nothing = 0
        while self._sent and not self._connection.is_busy():
            result = self._connection.get_result()
            if result is None:
                # One None ends each query; more in a row mean that libpq expects no result while we do.
                nothing += 1
                if nothing > 2:
                    raise ConnectionLost("lost: protocol out of step with the server")
                continue
            nothing = 0
            if result.status == ExecStatus.PIPELINE_SYNC:
                answers.append(self._finish(self._sent.popleft()))
                continue
            self._handle_result(self._sent[0], result)
            if result.status == ExecStatus.FATAL_ERROR and self._connection.status == ConnStatus.BAD:
                raise self._connection_lost(None)

    def _handle_result(self, due: _SentSegment, result: PGresult) -> None:
        from psycopg.pq import ExecStatus

        prepared = due.expected.popleft() if due.expected else None
        if result.status == ExecStatus.TUPLES_OK:
            self._decode(due.answer, result)
        elif result.status == ExecStatus.COMMAND_OK and prepared is not None:
            self._prepared[prepared[0]] = prepared[1]
        elif result.status == ExecStatus.FATAL_ERROR and due.answer.error is None:
            due.answer.error = self._error_of(result)
            if due.answer.error.sqlstate in _STALE_PLAN:
                for command in due.segment.commands:
                    self._prepared.pop(command.name, None)

    def _decode(self, answer: SegmentAnswer, result: PGresult) -> None:
        try:
            answer.rows.append(self._loader.rows(result))
        except Exception as error:
            # A value psycopg cannot decode costs its statement, not the connection.
            answer.error = answer.error or ServerError("", f"its answer could not be decoded ({type(error).__name__})")

    def _error_of(self, result: PGresult) -> ServerError:
        from psycopg.pq import DiagnosticField

        def text(code: DiagnosticField) -> str:
            return (result.error_field(code) or b"").decode("utf-8", "backslashreplace")

        message = text(DiagnosticField.MESSAGE_PRIMARY) or message_of(self._connection)
        if text(DiagnosticField.SEVERITY_NONLOCALIZED) in ("FATAL", "PANIC"):
            self._last_fatal_message, self._last_fatal_sqlstate = message, text(DiagnosticField.SQLSTATE)
        return ServerError(text(DiagnosticField.SQLSTATE), message)

    def _take_notice(self, result: PGresult) -> None:
        """Keep why the server closes the connection while no query is running."""
        from psycopg.pq import DiagnosticField

        if result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) == b"FATAL":
            self._error_of(result)

    def _finish(self, due: _SentSegment) -> SegmentAnswer:
        now = self._clock.mono_us()
        due.answer.at_us = now
        due.answer.took_us = now - max(due.sent_us, self._last_us)
        self._last_us = now
        self._size.complete()
        return due.answer

    def _connection_lost(self, error: Exception | None) -> ConnectionLost:
        words = self._last_fatal_message or message_of(self._connection) or str(error or "")
        text = "lost: " + (plain_message(words) or "the server closed the connection")
        return ConnectionLost(text, sqlstate=self._last_fatal_sqlstate)


# The SQL files, beside the subject they read: one statement per file, one file per lowest server version. `name.sql` is
# for every version from 13 on, `name_140000.sql` for servers from that version number on; the highest that the server
# reaches is used. Without a matching file the server does not support the statement.

OLDEST = 130000
"""The oldest supported server version."""

_DIRECTORY = Path(__file__).with_name("sql")
_FILE = re.compile(r"(?P<name>[a-z_]+?)(?:_(?P<floor>\d{6}))?\.sql")


@cache
def _floors() -> dict[str, dict[int, bytes]]:
    # All at once, at the start: when the disk hangs it is too late to read them.
    found: dict[str, dict[int, bytes]] = {}
    for directory in (_DIRECTORY, *subjects.sql_directories()):
        for path in sorted(directory.glob("*.sql")):
            if match := _FILE.fullmatch(path.name):
                texts, floor = found.setdefault(match["name"], {}), int(match["floor"] or 0)
                assert floor not in texts, f"two files for {path.name}"
                texts[floor] = _bare(path.read_bytes())
    return found


def _bare(text: bytes) -> bytes:
    r"""Return the statement without its leading comment, which would hide it in pg_stat_activity.

    >>> _bare(b"-- Why.\n-- And how.\nSELECT 1 -- one")
    b'SELECT 1 -- one'
    """
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(b"--"):
        del lines[0]
    return b"".join(lines)


def names() -> list[str]:
    """Return the names of all statements."""
    return sorted(_floors())


def statement(name: str, version_num: int) -> bytes | None:
    """Return the text of a statement, None if this version does not support it. Raises KeyError for an unknown name."""
    floors = _floors()[name]
    fitting = [floor for floor in floors if floor <= version_num]
    return floors[max(fitting)] if fitting else None


def needs_version(name: str) -> int:
    """Return the major version from which the statement is supported."""
    lowest = min(_floors()[name])
    return (lowest or OLDEST) // 10000
