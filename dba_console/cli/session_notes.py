"""`dba-console session note` and `import-notes`: add notes to a session, live through its agent, else to its file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dba_console.cli.formatting import print_json
from dba_console.cli.options import Json, SessionsOption
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.core.errors import ConnectError, ConsoleError, ExitCode, UsageError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.find_or_start import RunningAgent
    from dba_console.recording.recording import Recording
    from dba_console.reports.imported_notes import ImportedNote

INPUT_LIMIT = 16 << 20
"""Maximum bytes of pasted lines."""
BATCH = 50
"""Notes sent to an agent before its answer is awaited: fewer than any of its queues holds."""
ANSWER_TIMEOUT_S = 5.0
_WITHOUT_TIME = "without a time: "

_Session = Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or unique prefix, or last.")]


def note(
    name: _Session,
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="What happened.")],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="When it happened: 14:53:07, -10m, +90s, finding:NAME, RFC 3339."),
    ] = None,
    sessions: SessionsOption = None,
) -> int:
    """Add a note to a session; --at names the time it is about. Also works after the recording has ended.

    A note has two times: when it happened, and when it was recorded. `session verify` reports notes added later.
    """
    directory = _resolve(name, sessions, to_change=True)
    said = " ".join(text).strip()
    if not said:
        raise UsageError("the note is empty", hint='dba-console session note last --at 14:53 "failover announced"')
    occurred_us = None
    if at is not None:
        with closing(_open(directory)) as recording:
            occurred_us = _parse_time(recording, at)
    _add(directory, [_event(said, occurred_us)])
    put(f"note added to {directory.name}{'' if occurred_us is None else f' at {_when(occurred_us)}'}")
    return ExitCode.OK


def import_notes(
    name: _Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The pasted lines; -: standard input.")] = "-",
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="ZONE", help="Zone of times without one: Europe/Berlin, UTC, local."),
    ] = None,
    day: Annotated[
        str | None, typer.Option("--date", metavar="DATE", help="Day of the first line, if the lines have no date.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be added.")] = False,
    json: Json = False,
    sessions: SessionsOption = None,
) -> int:
    """Add pasted chat lines as notes at their own times: Slack, Teams, IRC, Signal, WhatsApp, logs.

    Lines without a time continue the message before them; others are shown, and added as notes without a time. Messages
    that the session already has are not added again.
    """
    from dba_console.reports.imported_notes import parse_chat, parse_zone

    directory = _resolve(name, sessions, to_change=not dry_run)
    with closing(_open(directory)) as recording:
        found = parse_chat(
            _read(file), zone=None if zone is None else parse_zone(zone), day=_parse_date(day),
            first_us=recording.first_us, last_us=recording.last_us,
        )  # fmt: skip
        known = {(event.occurred_us, event.text) for event in recording.events() if event.kind == "note"}
        span = recording.first_us, recording.last_us
    if not found:
        raise UsageError("no lines to import", hint="paste the lines of the chat, then Ctrl-D")
    events = [_event_of(one) for one in found]
    new = [event for event in events if (event.occurred_us, _stored_text(event)) not in known]
    if not dry_run and new:
        _add(directory, new)
    _report(found, events, new, span, json=json, done="would be added" if dry_run else "added")
    return ExitCode.OK


def _report(
    found: Sequence[ImportedNote],
    events: Sequence[Event],
    new: Sequence[Event],
    span: tuple[int, int],
    *,
    json: bool,
    done: str,
) -> None:
    """Print the new notes on stdout; counts, and lines without a time, on stderr."""
    added = set(map(id, new))
    for one, event in zip(found, events, strict=True):
        if json:
            print_json(_as_json(one, added=id(event) in added))
        elif id(event) in added and one.occurred_us is not None:
            put(f"{_when(one.occurred_us)}  {clean(redact(event.text))}")
    timed = [one.occurred_us for one in found if one.occurred_us is not None]
    outside = sum(not span[0] <= at <= span[1] for at in timed)
    sentences = [f"{len(new)} of {len(events)} notes {done}"]
    if len(new) < len(events):
        sentences.append("the others are already in the session")
    if outside:
        sentences.append(f"outside the recording: {outside} of {len(timed)} times")
    print_diagnostic("; ".join(sentences))
    untimed = [one for one, event in zip(found, events, strict=True) if one.occurred_us is None and id(event) in added]
    if untimed:
        print_diagnostic(f"warning: lines in which no time could be read, {done} as notes without a time:")
        for one in untimed:
            print_diagnostic(f"  line {one.line}: {clean(one.text)}")


def _as_json(one: ImportedNote, *, added: bool) -> dict[str, Any]:
    from dba_console.core.clock import rfc3339

    return {
        "line": one.line, "occurred": rfc3339(one.occurred_us), "author": one.author or None,
        "text": redact(one.text), "new": added,
    }  # fmt: skip


def _event_of(one: ImportedNote) -> Event:
    if one.occurred_us is None:
        return _event(_WITHOUT_TIME + one.text, None)
    return _event(f"{one.author}: {one.text}" if one.author else one.text, one.occurred_us, one.author)


@cache
def _operator() -> str:
    from dba_console.agent.client import operator_login

    return operator_login()


def _event(text: str, occurred_us: int | None, author: str = "") -> Event:
    return Event(
        wall_us=time.time_ns() // 1000, kind="note", text=text, occurred_us=occurred_us, who=_operator(),
        details={"author": author} if author else {},
    )  # fmt: skip


def _stored_text(event: Event) -> str:
    from dba_console.recording.journal import one_line

    return one_line(redact(event.text))


def _resolve(name: str, sessions: str | None, *, to_change: bool) -> Path:
    from dba_console.cli.config_file import load_config, sessions_directory
    from dba_console.recording.session_lookup import resolve

    loaded = load_config(sessions=sessions)
    return resolve(name, sessions_directory(loaded.config), to_change=to_change)


def _open(directory: Path) -> Recording:
    from dba_console.recording.recording import Recording

    return Recording.open(directory)


def _parse_time(recording: Recording, at: str) -> int:
    from dba_console.recording.session_lookup import parse_when

    return parse_when(at, first_us=recording.first_us, last_us=recording.last_us, events=recording.events())


def _parse_date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a date: {text!r}", hint="write it as 2026-11-20") from None


def _when(at_us: int) -> str:
    from dba_console.watch.drawing.time_formats import date_and_time

    return date_and_time(at_us)


def _read(file: str) -> str:
    """Return the pasted lines. Raises UsageError."""
    if file == "-":
        if os.isatty(sys.stdin.fileno()):
            print_diagnostic("paste the lines of the chat, then Ctrl-D")
        data = sys.stdin.buffer.read(INPUT_LIMIT + 1)
    else:
        try:
            with open(file, "rb") as lines:
                data = lines.read(INPUT_LIMIT + 1)
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > INPUT_LIMIT:
        raise UsageError(f"more than {INPUT_LIMIT >> 20} MB of lines", hint="split them")
    return data.decode("utf-8-sig", "replace")


# Adding notes: through the agent that records the session, else to its file.


def _add(directory: Path, notes: Sequence[Event]) -> None:
    """Add the notes. Raises ConsoleError."""
    agent = _recording_agent(directory)
    if agent is None:
        from dba_console.recording.late_notes import append_notes

        append_notes(directory, notes)
        return
    for at in range(0, len(notes), BATCH):
        try:
            _send(agent, notes[at : at + BATCH])
        except ConsoleError as error:
            raise ConnectError(f"{at} of {len(notes)} notes were added: {error.message}", hint=error.hint) from error


def _recording_agent(directory: Path) -> RunningAgent | None:
    """Return the agent that records the session, None if none does."""
    from dba_console.agent.find_or_start import list_agents
    from dba_console.recording.layout import is_live

    if not is_live(directory):
        return None
    agents = [agent for agent in list_agents() if agent.session is not None]
    path = directory.resolve()
    return next((agent for agent in agents if Path(agent.session or "").resolve() == path), None)


def _send(agent: RunningAgent, notes: Sequence[Event]) -> None:
    """Send notes to the agent and wait until it reports them. Raises ConnectError."""
    from dba_console.agent.client import AgentClient, AgentConnectionLost
    from dba_console.agent.protocol import EventMessage, Note

    client = AgentClient.connect(agent.path, role="show")
    sent_us = time.time_ns() // 1000
    try:
        for one in notes:
            client.send(Note(text=one.text, occurred_us=one.occurred_us, author=one.details.get("author", "")))
        awaited = {(one.occurred_us, redact(one.text)) for one in notes}
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while awaited and (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            # The agent sends its last events to each new client: an older note is not the answer.
            if isinstance(message, EventMessage) and message.event.wall_us >= sent_us - 1000:
                awaited.discard((message.event.occurred_us, message.event.text))
    except AgentConnectionLost as lost:
        raise ConnectError(f"lost the connection to the agent: {lost}") from None
    finally:
        client.close()
    if awaited:
        raise ConnectError(f"no answer from the agent for {ANSWER_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?")
