"""`dba-console findings`: what is wrong, each with its evidence; and what operators say of it.

Listing works with and without an agent. What is said of a finding is said to the agent that raised it.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.launch import find_agent, list_agents
from dba_console.agent.protocol import Acknowledge, EventMessage, Notice, Silence
from dba_console.cli.check import read_frame, rules_not_judged, undecided_findings
from dba_console.cli.config_file import load_config
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.frame_output import terminal_width
from dba_console.cli.live_source import open_live
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import names_server, resolve_target
from dba_console.core.config import Config
from dba_console.core.errors import ConnectError, ExitCode, PermissionDenied, UsageError
from dba_console.core.target import Target
from dba_console.core.units import human_duration, parse_duration
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.panels.findings import NOT_JUDGED_TEXT, duration_text, finding_detail, sort_by_urgency
from dba_console.watch.panels.text_elements import clean, line_text, wrap_lines
from dba_console.watch.panels.time_formats import local_time_of_day

# Asking the agent something of a finding, and waiting for its word.

ANSWER_TIMEOUT_S = 5.0
_ANSWER_KINDS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


def send_finding_request(client: AgentClient, request: Acknowledge | Silence) -> int:
    """Send the request and print the agent's answer. Raises UsageError where it refuses, ConnectError where none comes.

    Closes the client.
    """
    sent_us = time.time_ns() // 1000
    try:
        client.send(request)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, Notice) and message.kind == "refused":
                raise UsageError(message.text, hint="`dba-console findings list` shows what is open")
            if isinstance(message, EventMessage) and _is_answer(message, request, sent_us):
                put(clean(message.event.text))
                return ExitCode.OK
    except AgentConnectionLost as lost:
        raise ConnectError(f"the agent went away: {lost}", hint="run the command again") from None
    finally:
        client.close()
    raise ConnectError(f"the agent has not answered for {ANSWER_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?")


def _is_answer(message: EventMessage, request: Acknowledge | Silence, sent_us: int) -> bool:
    event = message.event
    same = event.details.get("id") == request.finding
    # The agent sends its last events to whoever attaches: an older word on the same finding is no answer.
    return event.kind in _ANSWER_KINDS and same and event.wall_us >= sent_us - 1000


app = new_app("What is wrong, with its evidence.")

_Id = Annotated[str, typer.Argument(metavar="ID", help="A finding's id, or its beginning.")]
_Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for whoever comes next.")]
_Watch = Annotated[
    str | None, typer.Option("--watch", metavar="TIME", help="How long to watch where no agent does already.")
]


@app.callback(invoke_without_command=True)
def default(context: typer.Context) -> None:
    """What is wrong with the server of libpq's environment; the commands below take a DSN."""
    if context.invoked_subcommand is None:
        _list(None, False, None)


@app.command("list")
def list_(dsn: Dsn = None, json: Json = False, watch: _Watch = None) -> int:
    """The findings open now, the most urgent first, a line each; --json: one object per line, with all evidence."""
    return _list(dsn, json, watch)


@app.command()
def show(finding: _Id, dsn: Dsn = None, json: Json = False, watch: _Watch = None) -> int:
    """One finding with its causes, its evidence, and what to do first."""
    frame = _read_frame(dsn, watch)
    found = find_finding(frame, finding)
    if json:
        print_json(found)
    else:
        lines = wrap_lines(finding_detail(found, frame.at_us), terminal_width())
        put("\n".join(line_text(line) for line in lines))
    return 0


@app.command()
def ack(finding: _Id, dsn: Dsn = None, note: _Note = "") -> int:
    """Say that somebody knows of it: it stays listed with your name and note until it clears."""
    client, frame = _attach(dsn)
    return send_finding_request(client, Acknowledge(finding=find_finding(frame, finding).id, note=note))


@app.command()
def silence(
    finding: _Id,
    dsn: Dsn = None,
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, as in 30m or 2h.")] = "1h",
    note: _Note = "",
) -> int:
    """Keep it quiet for a time; a rule's name silences all it may raise. It is recorded all the same."""
    seconds = parse_duration(for_)
    if seconds <= 0:
        raise UsageError("a silence of no time is none", hint="--for 2h, or `findings unsilence`")
    client, frame = _attach(dsn)
    return send_finding_request(client, Silence(finding=_id_or_rule(frame, finding), seconds=seconds, note=note))


@app.command()
def unsilence(finding: _Id, dsn: Dsn = None) -> int:
    """Take back a silence or an acknowledgement."""
    client, frame = _attach(dsn)
    return send_finding_request(client, Silence(finding=_id_or_rule(frame, finding), seconds=0))


@app.command()
def rules(json: Json = False) -> int:
    """Every rule: what it tells, and the settings it goes by."""
    from dba_console.watch.findings.rule_engine import RULES

    if json:
        for rule in RULES:
            print_json({"name": rule.name, "title": rule.title, "settings": rule.settings, "source": rule.source})
    else:
        put(
            format_columns(
                ["rule", "tells"], [[rule.name, rule.title] for rule in sorted(RULES, key=lambda one: one.name)]
            )
        )
    return 0


def _list(dsn: str | None, json: bool, watch: str | None) -> int:
    frame = _read_frame(dsn, watch)
    if json:
        for one in sort_by_urgency(frame.findings):
            print_json(one)
    else:
        put(findings_text(frame))
    return 0


def findings_text(frame: Frame) -> str:
    """The findings as a table, or that there are none."""
    if not frame.findings:
        return f"no finding: the rules found nothing wrong{_undecided_text(frame)}" if frame.judged else NOT_JUDGED_TEXT
    rows = [
        [local_time_of_day(one.since), duration_text(one, frame.at_us), one.severity, one.state, one.id, one.text]
        for one in sort_by_urgency(frame.findings)
    ]
    return format_columns(["since", "for", "severity", "state", "id", "finding"], rows)


def _undecided_text(frame: Frame) -> str:
    """What could not be judged in so short a time, on lines of its own."""
    text = ""
    if open_ids := undecided_findings(frame):
        text += f"\nnot decided yet: {', '.join(open_ids)}"
    if names := rules_not_judged(frame, ()):
        text += f"\nnot judged in {human_duration(frame.judged_s)}: {', '.join(names)}"
    return text


def find_finding(frame: Frame, name: str) -> Finding:
    """The open finding of that id, or the only one that begins so. Raises UsageError."""
    exact = [one for one in frame.findings if one.id == name]
    close = exact or [one for one in frame.findings if one.id.startswith(name)]
    if len(close) == 1:
        return close[0]
    known = ", ".join(one.id for one in close or frame.findings)
    if close:
        raise UsageError(f"{name!r} is the beginning of several findings", hint=known)
    raise UsageError(f"no finding {name!r} is open", hint=f"open now: {known}" if known else "none is open now")


def _id_or_rule(frame: Frame, name: str) -> str:
    """An open finding's id; else the name itself, which may be a rule's or a silenced finding's."""
    try:
        return find_finding(frame, name).id
    except UsageError:
        from dba_console.watch.findings.rule_engine import RULES

        if name.partition(":")[0] in {rule.name for rule in RULES}:
            return name
        raise


def _read_frame(dsn: str | None, watch: str | None) -> Frame:
    watch_s = None if watch is None else parse_duration(watch)
    target, config = _target(dsn)
    with open_live(target, config) as live:
        return read_frame(live, watch_s)


def _attach(dsn: str | None) -> tuple[AgentClient, Frame]:
    """The agent of the target, and what it sees. Raises ConnectError where none runs."""
    target, config = _target(dsn)
    path = find_agent(target)
    if path is None:
        running = ", ".join(agent.target for agent in list_agents())
        raise ConnectError(
            f"no agent watches {target.name}: a finding lives in the agent that raised it",
            hint=f"{f'agents run for {running}; ' if running else ''}`dba-console DSN` starts one",
        )
    with open_live(target, config) as live:
        frame = read_frame(live)
    return AgentClient.connect(path, role="show"), frame


def _target(dsn: str | None) -> tuple[Target, Config]:
    """The server named; where none is, and no agent watches libpq's default, that of the only agent that runs."""
    loaded = load_config()
    target = resolve_target(dsn, loaded)
    if dsn is None and not names_server(loaded):
        try:
            agents = list_agents() if find_agent(target) is None else []
        except PermissionDenied:
            agents = []  # who reads says so, and goes on without an agent
        if len(agents) == 1 and agents[0].conninfo:
            print_diagnostic(f"note: no server is named; the only agent that runs watches {agents[0].target}")
            return Target(agents[0].target, agents[0].key, agents[0].conninfo), loaded.config
    return target, loaded.config
