"""Events and output of commands as log lines after the fact: syslog (RFC 5424), and the journal's export format.

https://www.rfc-editor.org/rfc/rfc5424 and https://systemd.io/JOURNAL_EXPORT_FORMATS/. Each has the time it is about,
in UTC. Text is on one line: a line end of a query or of a note cannot begin another entry.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter
from typing import BinaryIO, NamedTuple

from dba_console.core.sanitize import clean
from dba_console.recording.journal import LogLine
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import Progress, Span
from dba_console.watch.drawing.time_formats import format_rfc3339
from dba_console.watch.samples.event import Event

FACILITY = 1
"""user, as logger(1)."""
_SEVERITIES = {"critical": 2, "warning": 4}
_INFO = 6
ENTERPRISE = "32473"
"""Private enterprise number of the structured data: the one of examples (RFC 5612); the project has none."""
_KINDS = uuid.UUID("6ae5bd5c-3e0d-4c4e-9c1f-0f6a5d0b6d3e")
"""Namespace of the message ids: fixed, so that the same kind has the same id in every session."""
OUTPUT = "output"
"""Kind of a line of a command's output."""
_DETAILS = ("run", "step", "block", "execution", "state")
_NOT_NAME = re.compile(r"[^!-~]")


class LogEntry(NamedTuple):
    """An event or a line of output."""

    wall_us: int
    severity: int
    tag: str
    kind: str
    text: str
    mono_us: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    """Names in lower case, and values."""


def export_syslog(span: Span, file: BinaryIO, progress: Progress) -> None:
    """Write one line of RFC 5424 for each event and each line of output."""
    host = _name(_host(span.recording), 255)
    for entry in _entries(span):
        file.write(syslog_line(entry, host).encode())
        progress(span.share(entry.wall_us))


def export_journald(span: Span, file: BinaryIO, progress: Progress) -> None:
    """Write entries as `journalctl -o export` does, which systemd-journal-remote reads."""
    host = clean(_host(span.recording))
    boot = "" if span.recording.meta is None else span.recording.meta.boot_id.replace("-", "")
    boot_id = boot if re.fullmatch("[0-9a-f]{32}", boot) else ""
    for entry in _entries(span):
        file.write(journald_entry(entry, host, boot_id).encode())
        progress(span.share(entry.wall_us))


def _entries(span: Span) -> Iterator[LogEntry]:
    """Yield events and lines of output in the order of their times."""
    recording = span.recording
    session = recording.directory.name
    events = (_of_event(event, session) for event in span.events())
    lines = (_of_line(one, session) for one in recording.output(span.from_us, span.to_us))
    yield from merge(events, lines, key=attrgetter("wall_us"))


def _of_event(event: Event, session: str) -> LogEntry:
    fields = [("session", session), ("seq", str(event.seq))]
    if event.who is not None:
        fields.append(("who", event.who))
    if event.occurred_us is not None:
        fields.append(("recorded", format_rfc3339(event.wall_us)))
    if event.kind.startswith("finding.") and "id" in event.details:
        fields.append(("finding", str(event.details["id"])))
    fields += [(name, str(event.details[name])) for name in _DETAILS if name in event.details]
    severity = _SEVERITIES.get(event.severity, _INFO)
    mono_us = event.mono_us if event.occurred_us is None else 0
    return LogEntry(event.happened_us, severity, event.tag, event.kind, event.text, mono_us, tuple(fields))


def _of_line(one: LogLine, session: str) -> LogEntry:
    given = {"run": one.run, "block": one.block, "execution": str(one.execution or ""), "stream": one.stream}
    fields = (("session", session), *((name, value) for name, value in given.items() if value))
    return LogEntry(one.wall_us, _INFO, one.tag, OUTPUT, one.text, fields=fields)


def syslog_line(entry: LogEntry, host: str) -> str:
    """Return the line with its line end: `<PRI>1 TIME HOST TAG - KIND [fields] text`."""
    fields = "".join(f' {name}="{_escaped(clean(value))}"' for name, value in entry.fields)
    head = f"<{FACILITY * 8 + entry.severity}>1 {format_rfc3339(entry.wall_us)} {host} {_name(entry.tag, 48)} -"
    return f"{head} {_name(entry.kind, 32)} [dba-console@{ENTERPRISE}{fields}] {clean(entry.text)}\n"


def _escaped(value: str) -> str:
    r"""Return a parameter value (RFC 5424, 6.3.3).

    >>> print(_escaped('a"]\\'))
    a\"\]\\
    """
    return re.sub(r'(["\\\]])', r"\\\1", value)


def _name(text: str, longest: int) -> str:
    """Return a name of RFC 5424: printable ASCII without blanks; `-` if nothing is left.

    >>> _name("PG restore ü", 48), _name("", 48)
    ('PG_restore__', '-')
    """
    return _NOT_NAME.sub("_", text)[:longest] or "-"


def journald_entry(entry: LogEntry, host: str, boot_id: str) -> str:
    """Return one entry with the blank line that ends it."""
    fields = {
        "__REALTIME_TIMESTAMP": str(entry.wall_us),
        "__MONOTONIC_TIMESTAMP": str(entry.mono_us) if entry.mono_us and boot_id else "",
        "_BOOT_ID": boot_id,
        "_HOSTNAME": host,
        "PRIORITY": str(entry.severity),
        "SYSLOG_FACILITY": str(FACILITY),
        "SYSLOG_IDENTIFIER": entry.tag,
        "MESSAGE_ID": uuid.uuid5(_KINDS, entry.kind).hex,
        "MESSAGE": entry.text,
        "CONSOLE_KIND": entry.kind,
        **{f"CONSOLE_{name.upper()}": value for name, value in entry.fields},
    }
    return "".join(f"{name}={clean(value)}\n" for name, value in fields.items() if value) + "\n"


def _host(recording: Recording) -> str:
    return "" if recording.meta is None else recording.meta.host
