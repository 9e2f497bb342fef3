"""`dba-console check`: the findings as one line for a monitoring system, in the form of the plugin guidelines.

Exit codes 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The first line holds the worst finding, each further one has a line
of its own below it; what an operator silenced is counted and does not alarm. What is not known is never taken for well:
without an agent the first line names the rules that need to watch for longer than this command did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from msgspec import structs

from dba_console.cli.config_file import load_config
from dba_console.cli.formatting import print_json, split_note
from dba_console.cli.frame_output import FrameBuilder
from dba_console.cli.live_source import LiveSource, first_view, open_live
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.config import Config
from dba_console.core.target import Target
from dba_console.core.thresholds import ConnectionLimits
from dba_console.core.units import human_duration, human_pct, parse_duration
from dba_console.watch.frames.model import Connections, Finding, Frame
from dba_console.watch.panels.findings import sort_by_urgency
from dba_console.watch.panels.text_elements import clean
from dba_console.watch.panels.time_formats import local_date_and_time

STATUS_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_SEVERITY_CODES = {"critical": 2, "warning": 1}
MIN_WATCH_S = 3.0
"""Without an agent: long enough for rates."""
MAX_WATCH_S = 9.0
"""What is seen and must last longer is watched until it is decided, at most for so long: check_nrpe waits 10 s."""
CONSOLE_ONLY_OUTAGES = ("auth", "ssl", "unknown_host")
"""Outages that are the console's alone (findings/outage.py): a warning, as the finding has it."""
NOT_CONNECTED = "not-connected"
"""Stands for the finding where no rule has raised one yet."""

app = new_app("One line for a monitoring system.")


class Verdict(NamedTuple):
    """Code of the plugin convention, the sentence, lines that go below it, and performance data."""

    code: int
    text: str
    further_lines: tuple[str, ...] = ()
    performance: str = ""
    findings: tuple[Finding, ...] = ()
    not_judged: tuple[str, ...] = ()


@app.command()
def check(
    dsn: Dsn = None,
    json: Json = False,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="TIME",
            help="How long to watch where no agent does already; left out: 3s, or up to 9s until all is decided.",
        ),
    ] = None,
) -> int:
    """What is wrong, as one line for a monitoring system, and every finding below it.

    Exit codes of the monitoring-plugin convention: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The figures are those of
    the configuration ([findings.…]); a running agent uses the ones it was started with.
    """
    watch_s = None if watch is None else parse_duration(watch)
    loaded = load_config()
    return run_check(resolve_target(dsn, loaded), loaded.config, watch_s, as_json=json)


def run_check(target: Target, config: Config, watch_s: float | None, *, as_json: bool) -> int:
    """Look, print the verdict, return its code."""
    with open_live(target, config) as live:
        frame = read_frame(live, watch_s)
    verdict = make_verdict(frame, config.findings.connections, rules_not_judged(frame, config.findings.off))
    if as_json:
        print_json(_json(frame, verdict))
    else:
        put(plain_text(verdict))
    return verdict.code


def read_frame(live: LiveSource, watch_s: float | None = None) -> Frame:
    """The frame to judge by: the agent's next one, or after `watch_s` seconds of our own.

    Without `watch_s` it is WATCH_S, and up to DECIDE_S while something is seen that has yet to last.
    """
    view = first_view(live)
    frame_builder = FrameBuilder(live.session, view.picture.wall_us)
    begun_us = view.picture.mono_us
    frame = frame_builder.build(view)
    least_s = 0.0 if live.from_agent else MIN_WATCH_S if watch_s is None else watch_s
    while True:
        watched_s = frame.judged_s or (view.picture.mono_us - begun_us) / 1e6
        undecided = not frame.judged or (watch_s is None and _is_undecided(frame))
        if watched_s >= (max(least_s, MAX_WATCH_S) if undecided else least_s):
            return frame
        view = live.next_view()
        frame = frame_builder.build(view)


def _is_undecided(frame: Frame) -> bool:
    """Whether what is seen could still be raised, because it was not watched for as long as it must last."""
    return bool(undecided_findings(frame)) or (
        frame.target.state == "disconnected" and not any(map(_is_outage, frame.findings))
    )


def undecided_findings(frame: Frame) -> list[str]:
    """Ids of what is seen and must last longer than it could be watched. What began later may be over soon."""
    watched_s = frame.judged_s or 0.0
    return sorted(name for name, needs_s in frame.pending.items() if needs_s > watched_s)


def rules_not_judged(frame: Frame, off: Sequence[str]) -> list[str]:
    """Names of the rules that need to watch for longer than was watched until this frame."""
    if frame.judged_s is None:
        return []
    from dba_console.watch.findings.rule_engine import (
        RULES,  # in the first minutes alone: an agent has watched for longer
    )

    return sorted(rule.name for rule in RULES if rule.warm_up_s > frame.judged_s and rule.name not in off)


def make_verdict(frame: Frame, limits: ConnectionLimits, unjudged: Sequence[str] = ()) -> Verdict:
    """What the frame means: the worst finding that speaks, no connection, or what keeps it from being known.

    Code, sentence, lines and performance data are made from one list of findings, so that they agree.
    """
    findings = _with_outage(frame)
    speaking = [one for one in findings if one.state != "silenced"]
    code = max((_SEVERITY_CODES.get(one.severity, 0) for one in speaking), default=0)
    worst = next((one for one in speaking if code and _SEVERITY_CODES.get(one.severity, 0) == code), None)
    if worst is not None:
        findings = [worst, *(one for one in findings if one is not worst)]
    lines = [_finding_line(one) for one in findings]
    connections_text = _connections_text(frame.connections)
    if worst is not None:
        sentence, more = lines[0], lines[1:]
    else:
        code, sentence = _verdict_without_finding(frame, connections_text)
        more = lines
    if unjudged:
        not_judged_text = f"not judged in {human_duration(frame.judged_s)}: {', '.join(unjudged)}"
        if code == 0:
            sentence += f"; {not_judged_text}"
        else:
            more = [*more, not_judged_text]
    if connections_text and connections_text not in sentence:
        more = [*more, connections_text]
    return Verdict(
        code, sentence, tuple(more), _performance_data(frame, findings, limits), tuple(findings), tuple(unjudged)
    )


def _with_outage(frame: Frame) -> list[Finding]:
    """The findings, most urgent first, with an outage as one of them: critical, unless only the console is kept out.

    A monitoring system is not to wait until a server has been away for as long as makes the finding critical.
    """
    findings = sort_by_urgency(frame.findings)
    if frame.target.state == "connected":
        return findings
    known = next((one for one in findings if _is_outage(one)), None)
    if known is not None and (known.state == "silenced" or _is_console_only(known)):
        return findings
    note, _ = split_note(frame.target.note, "the server does not answer")
    if known is None:
        lost = Finding(id=NOT_CONNECTED, severity="critical", subject="", text=f"not connected: {note}")
    else:
        lost = structs.replace(known, severity="critical")
    return [lost, *(one for one in findings if one is not known)]


def _is_outage(one: Finding) -> bool:
    return any(part.partition(":")[0] in ("server-down", "console-blind") for part in (one.id, *one.chain, *one.also))


def _is_console_only(outage: Finding) -> bool:
    """Whether nobody but the console is kept out: by its password, or by the limit of its role or database."""
    kind, refused_by = outage.evidence.get("outage"), outage.evidence.get("refused_by")
    return kind in CONSOLE_ONLY_OUTAGES or (kind == "no_slots" and refused_by in ("role", "database"))


def _verdict_without_finding(frame: Frame, connections_text: str) -> tuple[int, str]:
    """No finding speaks: is that because all is well, or because it is not known?"""
    if not frame.judged:
        return 3, "not judged: the rules gave no answer"
    if frame.findings_note:
        return 3, frame.findings_note
    if frame.target.state != "connected":
        return 3, f"not connected: {split_note(frame.target.note, 'the server does not answer')[0]}"
    if frame.connections.used_pct is None:
        return 3, f"connections not known: {split_note(frame.connections.note, 'no reading')[0]}"
    if open_ids := undecided_findings(frame):
        undecided_text = ", ".join(f"{name} must last {human_duration(frame.pending[name])}" for name in open_ids)
        return 3, f"not decided after {human_duration(frame.judged_s)}: {undecided_text}; `--watch` watches for longer"
    silent = sum(one.state == "silenced" for one in frame.findings)
    sentence = (f"nothing but {silent} silenced, " if silent else "no finding, ") + connections_text
    if frame.connections.active is None and frame.connections.note:
        sentence += f"; {split_note(frame.connections.note, '')[0]}"
    return 0, sentence


def _finding_line(one: Finding) -> str:
    state = ""
    if one.state != "open":
        until = f" until {local_date_and_time(one.until)}" if one.state == "silenced" else ""
        state = f" ({one.state}{until} by {one.who or '?'})"
    runbook = f", runbook {one.runbook}" if one.runbook else ""
    since = "" if one.since is None else f"; since {local_date_and_time(one.since)}"
    return f"{one.severity}: {one.text}{since} [{one.id}{runbook}]{state}"


def plain_text(verdict: Verdict) -> str:
    """The verdict as a plugin prints it: the line with its performance data, and the further lines."""

    # A bar ends the sentence for the monitoring system, so none may come from the server's words.
    def bare(text: str) -> str:
        return clean(text).replace("|", "/")

    performance = f" | {verdict.performance}" if verdict.performance else ""
    first = f"DBACONSOLE {STATUS_WORDS[verdict.code]} - {bare(verdict.text)}{performance}"
    return "\n".join([first, *(bare(line) for line in verdict.further_lines)])


def _json(frame: Frame, verdict: Verdict) -> dict[str, Any]:
    return {
        "status": STATUS_WORDS[verdict.code],
        "code": verdict.code,
        "text": verdict.text,
        "findings": verdict.findings,
        "judged": frame.judged,
        "watched_s": frame.judged_s,
        "not_judged": verdict.not_judged,
        "undecided": undecided_findings(frame),
        "note": frame.findings_note,
        "target": frame.target,
        "connections": {
            "used": frame.connections.used,
            "usable": frame.connections.usable,
            "used_pct": frame.connections.used_pct,
        },
    }


def _connections_text(connections: Connections) -> str:
    if connections.used is None:
        return ""
    if connections.usable is None or connections.used_pct is None:
        return f"{connections.used} connections in use"
    return f"{connections.used} of {connections.usable} usable connections in use ({human_pct(connections.used_pct)})"


def _performance_data(frame: Frame, findings: Sequence[Finding], limits: ConnectionLimits) -> str:
    words = [f"{name}={count}" for name, count in _severity_counts(findings)]
    connections = frame.connections
    if connections.used is None:
        return " ".join(words)
    if connections.usable is None:
        return " ".join([f"connections={connections.used};;;0", *words])
    marks = [f"{connections.usable * pct / 100:g}" for pct in (limits.near_pct, limits.critical_pct)]
    share = "U" if connections.used_pct is None else f"{connections.used_pct:.1f}%"
    return " ".join(
        [
            f"connections={connections.used};{marks[0]};{marks[1]};0;{connections.usable}",
            f"used_pct={share};{limits.near_pct:g};{limits.critical_pct:g};0;100",
            *words,
        ]
    )


def _severity_counts(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    speaking = [one.severity for one in findings if one.state != "silenced"]
    return [(severity, speaking.count(severity)) for severity in ("critical", "warning")]
