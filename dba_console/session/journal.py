"""Events as the session keeps them: numbered, harmless on a terminal, and chained by hash.

    hash(n) = sha256(hash(n-1) || canonical record of event n), hash(0) = sha256 of the session's id

so that an event that was changed, removed or put in shows. What was cut off at the end does not: the head is written
into the heartbeats of the log and into the meta of a closed session.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from dba_console.decoding import from_json
from dba_console.redact import redact
from dba_console.samples.event import Event
from dba_console.sanitize import clean

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
