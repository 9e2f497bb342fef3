"""`dba-console findings`: list and show findings; acknowledge and silence them.

Listing works with and without an agent. Acknowledgements and silences go to the agent that raised the finding.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.find_or_start import find_agent, list_agents
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
from dba_console.watch.drawing.findings import NOT_EVALUATED_TEXT, duration_text, finding_detail, sort_by_urgency
from dba_console.watch.drawing.text_elements import clean, line_text, wrap_lines
from dba_console.watch.drawing.time_formats import local_time_of_day
from dba_console.watch.frames.model import Finding, Frame

# Sending a request about a finding to the agent, and waiting for its answer.

ANSWER_TIMEOUT_S = 5.0
_ANSWER_KINDS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


def send_finding_request(client: AgentClient, request: Acknowledge | Silence) -> int:
    """Send the request and print the agent's answer. Raises UsageError if refused, ConnectError without an answer.

    Closes the client.
    """
    sent_us = time.time_ns() // 1000
    try:
        client.send(request)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, Notice) and message.kind == "refused":
                raise UsageError(message.text, hint="`dba-console findings list` shows the open findings")
            if isinstance(message, EventMessage) and _is_answer(message, request, sent_us):
                put(clean(message.event.text))
                return ExitCode.OK
    except AgentConnectionLost as lost:
        raise ConnectError(f"lost the connection to the agent: {lost}", hint="run the command again") from None
    finally:
        client.close()
    raise ConnectError(f"no answer from the agent for {ANSWER_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?")


def _is_answer(message: EventMessage, request: Acknowledge | Silence, sent_us: int) -> bool:
    event = message.event
    same = event.details.get("id") == request.finding
    # The agent sends its last events to each new client: an older event on the same finding is not the answer.
    return event.kind in _ANSWER_KINDS and same and event.wall_us >= sent_us - 1000


app = new_app("List, show, acknowledge and silence findings.")

_Id = Annotated[str, typer.Argument(metavar="ID", help="A finding's id or unique prefix.")]
_Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="The reason, shown to other operators.")]
_Watch = Annotated[str | None, typer.Option("--watch", metavar="TIME", help="How long to watch without an agent.")]


@app.callback(invoke_without_command=True)
def default(context: typer.Context) -> None:
    """List the findings of the server in libpq's environment; the commands below take a DSN."""
    if context.invoked_subcommand is None:
        _list(None, False, None)


@app.command("list")
def list_(dsn: Dsn = None, json: Json = False, watch: _Watch = None) -> int:
    """List the open findings, most urgent first. --json: one object per line, with all evidence."""
    return _list(dsn, json, watch)


@app.command()
def show(finding: _Id, dsn: Dsn = None, json: Json = False, watch: _Watch = None) -> int:
    """Show one finding with its causes, its evidence and the first action to take."""
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
    """Acknowledge a finding; it stays listed with your name and note until it clears."""
    client, frame = _attach(dsn)
    return send_finding_request(client, Acknowledge(finding=find_finding(frame, finding).id, note=note))


@app.command()
def silence(
    finding: _Id,
    dsn: Dsn = None,
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, as in 30m or 2h.")] = "1h",
    note: _Note = "",
) -> int:
    """Silence a finding for a time; a rule's name silences all its findings. They are still recorded."""
    seconds = parse_duration(for_)
    if seconds <= 0:
        raise UsageError("a silence must be longer than zero", hint="use --for 2h, or `findings unsilence`")
    client, frame = _attach(dsn)
    return send_finding_request(client, Silence(finding=_id_or_rule(frame, finding), seconds=seconds, note=note))


@app.command()
def unsilence(finding: _Id, dsn: Dsn = None) -> int:
    """Remove a silence or an acknowledgement."""
    client, frame = _attach(dsn)
    return send_finding_request(client, Silence(finding=_id_or_rule(frame, finding), seconds=0))


@app.command()
def rules(json: Json = False) -> int:
    """List the rules; --json adds their settings."""
    from dba_console.watch.findings.rule_engine import RULES
    from dba_console.watch.findings.thresholds import threshold_kind, threshold_name

    if json:
        for rule in RULES:
            kinds = {threshold_name(threshold): threshold_kind(threshold) for threshold in rule.settings}
            print_json(
                {"name": rule.name, "title": rule.title, "settings": [*kinds], "kinds": kinds, "source": rule.source}
            )
    else:
        put(
            format_columns(
                ["rule", "detects"], [[rule.name, rule.title] for rule in sorted(RULES, key=lambda one: one.name)]
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
    """Return the findings as a table, or a sentence if there are none."""
    if not frame.findings:
        return f"no findings{_undecided_text(frame)}" if frame.judged else NOT_EVALUATED_TEXT
    rows = [
        [local_time_of_day(one.since), duration_text(one, frame.at_us), one.severity, one.state, one.id, one.text]
        for one in sort_by_urgency(frame.findings)
    ]
    return format_columns(["since", "for", "severity", "state", "id", "finding"], rows)


def _undecided_text(frame: Frame) -> str:
    """Return what could not be judged in the watch time, on separate lines."""
    text = ""
    if open_ids := undecided_findings(frame):
        text += f"\nundecided: {', '.join(open_ids)}"
    if names := rules_not_judged(frame, ()):
        text += f"\nnot evaluated in {human_duration(frame.judged_s)}: {', '.join(names)}"
    return text


def find_finding(frame: Frame, name: str) -> Finding:
    """Return the open finding with that id or unique prefix. Raises UsageError."""
    exact = [one for one in frame.findings if one.id == name]
    close = exact or [one for one in frame.findings if one.id.startswith(name)]
    if len(close) == 1:
        return close[0]
    known = ", ".join(one.id for one in close or frame.findings)
    if close:
        raise UsageError(f"{name!r} matches several findings", hint=known)
    raise UsageError(f"no open finding {name!r}", hint=f"open findings: {known}" if known else "no finding is open")


def _id_or_rule(frame: Frame, name: str) -> str:
    """Return an open finding's id, else the name itself if a rule has it."""
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
    """Return a client of the target's agent, and its frame. Raises ConnectError if no agent runs."""
    target, config = _target(dsn)
    path = find_agent(target)
    if path is None:
        running = ", ".join(agent.target for agent in list_agents())
        raise ConnectError(
            f"no agent watches {target.name}: only the agent that raised a finding can change it",
            hint=f"{f'agents run for {running}; ' if running else ''}`dba-console DSN` starts one",
        )
    with open_live(target, config) as live:
        frame = read_frame(live)
    return AgentClient.connect(path, role="show"), frame


def _target(dsn: str | None) -> tuple[Target, Config]:
    """Return the named server; without a name and an agent for libpq's default, that of the only running agent."""
    loaded = load_config()
    target = resolve_target(dsn, loaded)
    if dsn is None and not names_server(loaded):
        try:
            agents = list_agents() if find_agent(target) is None else []
        except PermissionDenied:
            agents = []  # reading goes on without an agent, and reports this error
        if len(agents) == 1 and agents[0].conninfo:
            print_diagnostic(f"note: no server named; using the only running agent, which watches {agents[0].target}")
            return Target(agents[0].target, agents[0].key, agents[0].conninfo), loaded.config
    return target, loaded.config
