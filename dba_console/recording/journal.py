"""Events as stored in a session: numbered, sanitized, and chained by hash (hash_chain); lines of output; digests.

The newest hash is also in the metadata of a closed session.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from dba_console.core.clock import rfc3339
from dba_console.core.decoding import from_json
from dba_console.core.redact import redact, redact_json
from dba_console.core.sanitize import clean
from dba_console.recording.hash_chain import ChainError, ChainHead, open_line, seal_line
from dba_console.recording.sample_block import BlockEntry
from dba_console.watch.samples.event import Event

_canonical = msgspec.json.Encoder(order="deterministic").encode
_encode = msgspec.json.Encoder().encode
_TEXT_LIMIT = 8000
"""Maximum characters of an event's text. Longer text belongs into a file."""


class JournalRow(NamedTuple):
    """An event as a row of the table `journal`."""

    seq: int
    wall_us: int
    line: str
    """JSON object that ends with its hash, as a line of a run's journal."""

    @property
    def hash(self) -> str:
        """Return its hash, hexadecimal."""
        return open_line(self.line.encode("utf-8", "replace"))[1]


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
        members = msgspec.structs.asdict(event)
        first = {"seq": head.seq + 1, "wall_us": event.wall_us}  # what a search for lines starts from
        line, head = seal_line(_encode({**first, **members, **first}), head)
        rows.append(JournalRow(head.seq, event.wall_us, line.decode()))
    return rows


def check_row(row: JournalRow, head: ChainHead) -> ChainHead:
    """Return the head of the chain after the row. Raises ChainError if it is not the next one after `head`."""
    bare, hash_ = open_line(row.line.encode("utf-8", "replace"))
    event = event_of(row)
    head = head.check(bare, row.seq, hash_, "event", event.kind)
    if (event.seq, event.wall_us) != (row.seq, row.wall_us):
        raise ChainError(f"event {row.seq}: changed ({event.kind})")
    return head


def chain_record(values: Sequence[object]) -> bytes:
    """Return the bytes of a row for a hash chain."""
    return _canonical(list(values))


def event_of(row: JournalRow) -> Event:
    """Return the event of a row; one that cannot be parsed says so."""
    try:
        return from_json(row.line, Event)
    except msgspec.DecodeError:
        return Event(seq=row.seq, wall_us=row.wall_us, kind="unreadable", text="this event cannot be read")


def logged_text(event: Event) -> str:
    """Return the text of a prepared event for `session.log`; of a note about another time with that time.

    >>> logged_text(Event(wall_us=9, kind="note", text="failover announced", occurred_us=1_795_186_387_000_000))
    'failover announced (happened 2026-11-20T14:53:07Z)'
    """
    return event.text if event.occurred_us is None else f"{event.text} (happened {rfc3339(event.occurred_us)})"


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
        return from_json(_canonical(redact_json(details)), dict[str, Any])
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


class LaterNotes(msgspec.Struct, frozen=True):
    """Notes added after the recording had ended: number of the first, number and hash of the newest."""

    first: int
    newest: int
    head: str


# Digests of the data beside the events; heartbeats and the end event add them to the event chain.
#
# Each block has one. Gaps and lines of output are append-only: each is a hash chain, whose head is there. The session
# metadata is in the first event.

DIGEST_EVENTS = ("heartbeat", "session.end")
START, END, GAP = "session.start", "session.end", "gap"
LATER_NOTES = "later_notes"
"""Key of the session metadata for LaterNotes, as JSON."""
ROW_CHAINS = ("gaps", "output")


def block_digest(entry: BlockEntry, records: ChainHead, points: bytes) -> str:
    """Return the digest of a block: the chain of its records, its chart values and its line of the index."""
    return records.after(points).after(chain_record(entry)).hash[:16]
