"""Events as stored in a session: numbered, sanitized, and chained by hash (hash_chain); lines of output; digests.

The newest hash is also in the metadata of a closed session.
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
from dba_console.recording.hash_chain import ChainHead
from dba_console.watch.samples.event import Event

_canonical = msgspec.json.Encoder(order="deterministic").encode
_TEXT_LIMIT = 8000
"""Maximum characters of an event's text. Longer text belongs into a file."""


class JournalRow(NamedTuple):
    """An event as a row of the table `journal`."""

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
    """Return one line, sanitized for terminals and line-based tools, of limited length.

    >>> one_line("a\\nNov 20 00:00:00 db2 X: forged\\x1b[2J")
    'a␊Nov 20 00:00:00 db2 X: forged␛[2J'
    """
    text = clean(text)
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…"


def tidy(event: Event) -> Event:
    """Return the event for storage: redacted, one sanitized line, details as plain JSON."""
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


def link(events: Iterable[Event], head: ChainHead) -> list[JournalRow]:
    """Return the rows of prepared events, chained to `head`."""
    rows: list[JournalRow] = []
    for event in events:
        details = _canonical(event.details).decode()
        bare = JournalRow(
            head.seq + 1, event.wall_us, event.mono_us, event.kind, event.tag, event.severity, event.who,
            event.occurred_us, event.text, details, "",
        )  # fmt: skip
        head = head.after(chain_record(bare[:-1]))
        rows.append(bare._replace(hash=head.hash))
    return rows


def chain_record(values: Sequence[object]) -> bytes:
    """Return the bytes of a row (of an event without its hash) for a hash chain."""
    return _canonical(list(values))


def event_of(row: JournalRow) -> Event:
    """Return the event of a row, without details that cannot be parsed."""
    try:
        details = from_json(row.details, dict[str, Any])
    except msgspec.DecodeError:
        details = {}
    return Event(
        wall_us=row.wall_us, kind=row.kind, text=row.text, seq=row.seq, mono_us=row.mono_us, tag=row.tag,
        severity=row.severity, who=row.who, occurred_us=row.occurred_us, details=details,
    )  # fmt: skip


def log_line(wall_us: int, host: str, tag: str, text: str) -> str:
    """Return a line of `session.log`, with local time as in syslog (RFC 3164: the day padded with a space)."""
    at = time.localtime(wall_us / 1e6)
    clock = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    return f"{_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} {clock} {host} {tag}: {text}\n"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def word(text: str) -> str:
    """Return one word of a log line: no space, no colon, at most 64 characters."""
    return one_line(text).replace(" ", "_").replace(":", "_")[:64]


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Return details as JSON types with redacted strings; any other value becomes the name of its type."""
    try:
        text = redact(_canonical(details).decode())
        return from_json(text, dict[str, Any])
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return {"unreadable": type(details).__name__}


# Lines of commands' output, stored beside the events for grep and plain SQL.
#
# They are not in the event chain: the raw output of a command is in its own file, and its record in the run's journal
# has the size.


class LogLine(NamedTuple):
    """One line of output with its arrival time."""

    wall_us: int
    tag: str
    text: str
    stream: str = "o"
    """o or e."""
    run: str = ""
    block: str = ""
    execution: int = 0


def tidy_line(line: LogLine) -> LogLine:
    """Return the line for storage: redacted and sanitized."""
    return line._replace(tag=word(line.tag), text=one_line(redact(line.text)))


# Digests of the data beside the events; heartbeats and the end event add them to the event chain.
#
# Each block has one, with its index line and chart values. Gaps and lines of output are append-only: each is a hash
# chain, whose head is there. The session metadata is in the first event.

DIGEST_EVENTS = ("heartbeat", "session.end")
START, END = "session.start", "session.end"
ROW_CHAINS = ("gaps", "output")


def digest(block: bytes) -> str:
    """Return the digest of a block: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(block).hexdigest()[:16]


def index_digest(entry: Sequence[int], points: bytes) -> str:
    """Return the digest of a block's index line and chart values."""
    return digest(_canonical(list(entry)) + points)


def meta_digest(values: Mapping[str, object]) -> str:
    """Return the digest of the session metadata, without the closing note."""
    return digest(
        _canonical({key: str(value) for key, value in values.items() if key != "closed" and value is not None})
    )
