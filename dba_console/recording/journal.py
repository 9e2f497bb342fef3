"""Events as the session keeps them: numbered, harmless on a terminal, and chained by hash.

    hash(n) = sha256(hash(n-1) || canonical record of event n), hash(0) = sha256 of the session's id

so that an event that was changed, removed or put in shows. What was cut off at the end does not: the head is written
into the heartbeats of the log and into the meta of a closed session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dba_console.core.decoding import from_json
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.samples.event import Event

_canonical = msgspec.json.Encoder(order="deterministic").encode
_TEXT_LIMIT = 8000
"""Signs of one event's text. What is longer belongs into a file of its own."""


class JournalRow(NamedTuple):
    """An event as the table `journal` holds it."""

    seq: int
    wall_us: int
    mono_us: int
    kind: str
    tag: str
    severity: str
    who: str | None
    occurred_us: int | None
    text: str
    details: str
    """JSON object."""
    hash: str
    """Hexadecimal."""


def one_line(text: str) -> str:
    """One line that misleads neither a terminal nor a line-based tool, of a length a log can bear.

    >>> one_line("a\\nNov 20 00:00:00 db2 X: forged\\x1b[2J")
    'a␊Nov 20 00:00:00 db2 X: forged␛[2J'
    """
    text = clean(text)
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"


def first_hash(session_id: str) -> str:
    """What the first event's hash is chained to."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def tidy(event: Event) -> Event:
    """The event as it is kept: secrets out, one harmless line, details of plain JSON."""
    return Event(
        wall_us=event.wall_us,
        kind=word(event.kind),
        text=one_line(redact(event.text)),
        mono_us=event.mono_us,
        tag=word(event.tag),
        severity=word(event.severity),
        who=None if event.who is None else one_line(event.who),
        occurred_us=event.occurred_us,
        details=_plain(event.details),
    )


def link(events: Iterable[Event], seq: int, head: str) -> list[JournalRow]:
    """Rows of tidy events, numbered after `seq` and chained to `head`."""
    rows: list[JournalRow] = []
    for event in events:
        seq += 1
        details = _canonical(event.details).decode()
        bare = JournalRow(
            seq, event.wall_us, event.mono_us, event.kind, event.tag, event.severity, event.who, event.occurred_us,
            event.text, details, "",
        )  # fmt: skip
        head = chained(head, bare)
        rows.append(bare._replace(hash=head))
    return rows


def chained(head: str, row: JournalRow) -> str:
    """The hash of `row` after `head`; what `row.hash` says does not count."""
    return hashlib.sha256(bytes.fromhex(head) + _canonical(list(row[:-1]))).hexdigest()


def event_of(row: JournalRow) -> Event:
    """The event of a row. Details that cannot be read are left out."""
    try:
        details = from_json(row.details, dict[str, Any])
    except msgspec.DecodeError:
        details = {}
    return Event(
        wall_us=row.wall_us, kind=row.kind, text=row.text, seq=row.seq, mono_us=row.mono_us, tag=row.tag,
        severity=row.severity, who=row.who, occurred_us=row.occurred_us, details=details,
    )  # fmt: skip


def log_line(wall_us: int, host: str, tag: str, text: str) -> str:
    """The line of `session.log`: local time as syslog writes it (RFC 3164: the day padded with a space)."""
    at = time.localtime(wall_us / 1e6)
    clock = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} {clock} {host} {tag}: {text}\n"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def word(text: str) -> str:
    """One word of a log line: no blank, no colon, of a length a log can bear."""
    return one_line(text).replace(" ", "_").replace(":", "_")[:64]


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Details as JSON would give them back, strings redacted; what JSON cannot say is named by its type."""
    try:
        text = redact(_canonical(details).decode())
        return from_json(text, dict[str, Any])
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return {"unreadable": type(details).__name__}


# Lines of commands' output as the session keeps them beside its events: readable with grep and plain SQL.
#
# They are not in the chain of events: the raw output of a command lies in its own file, and its record in a run's
# journal says how much of it there was.


class LogLine(NamedTuple):
    """One line of output, stamped with the time it arrived."""

    wall_us: int
    tag: str
    text: str
    stream: str = "o"
    """o or e."""
    run: str = ""
    block: str = ""
    execution: int = 0


def tidy_line(line: LogLine) -> LogLine:
    """The line as it is kept: secrets out, one harmless line."""
    return line._replace(tag=word(line.tag), text=one_line(redact(line.text)))


# Digests of what a session holds beside its events: heartbeats and its end carry them into the chain of events.
#
# Blocks are named one by one, with their line of the index and their chart values. Gaps and lines of output are only
# ever added to: for each of the two one running digest is carried, with the number of rows it covers. What the session
# says of itself is in its first event.

DIGEST_EVENTS = ("heartbeat", "session.end")
START, END = "session.start", "session.end"


class RunningDigest(NamedTuple):
    """The digest of so many rows, in the order they were written."""

    rows: int = 0
    head: str = ""

    def after(self, rows: Iterable[Sequence[object]]) -> RunningDigest:
        """The digest when these are added."""
        count, head = self
        for row in rows:
            count, head = count + 1, hashlib.sha256(head.encode() + _canonical(list(row))).hexdigest()
        return RunningDigest(count, head)


def digest(block: bytes) -> str:
    """What stands for a block in the chain: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(block).hexdigest()[:16]


def index_digest(entry: Sequence[int], points: bytes) -> str:
    """The same for a line of the index of blocks with the chart values of that block."""
    return digest(_canonical(list(entry)) + points)


def meta_digest(values: Mapping[str, object]) -> str:
    """The same for what the session says of itself; the note on its end is not part of it."""
    return digest(
        _canonical({key: str(value) for key, value in values.items() if key != "closed" and value is not None})
    )
