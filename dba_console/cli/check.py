"""`dba-console check`: the findings as a monitoring plugin reports them (monitoring plugin guidelines).

Exit codes 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The first line holds the worst finding, each other finding has its
own line below. Silenced findings are counted and do not alarm. Unknown is never reported as OK: without an agent the
first line names the rules that need to watch longer than this command did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
from dba_console.core.units import human_duration, human_pct, parse_duration
from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.drawing.findings import sort_by_urgency
from dba_console.watch.drawing.text_elements import clean
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.model import Finding, Frame

if TYPE_CHECKING:
    from dba_console.watch.connections.slot_usage import ConnectionLimits

STATUS_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_SEVERITY_CODES = {"critical": 2, "warning": 1}
MIN_WATCH_S = 3.0
"""Minimum watch time without an agent: enough for rates."""
MAX_WATCH_S = 9.0
"""Maximum watch time while a finding is undecided: check_nrpe times out after 10 s."""
CONSOLE_ONLY_OUTAGES = ("auth", "ssl", "unknown_host")
"""Outages of the console alone (watch/findings/rule.py): reported as a warning, like the finding."""
NOT_CONNECTED = "not-connected"
"""Id used while no rule has raised an outage finding yet."""

app = new_app("Print the findings for a monitoring system.")


class Verdict(NamedTuple):
    """Exit code of the plugin convention, first line, further lines and performance data."""

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
            help="How long to watch without an agent; default: 3s, or up to 9s until all is decided.",
        ),
    ] = None,
) -> int:
    """Print the worst finding as one line for a monitoring system, and every finding below it.

    Exit codes of the monitoring-plugin convention: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The thresholds are those of
    the configuration ([findings.…]); a running agent uses the thresholds it was started with.
    """
    watch_s = None if watch is None else parse_duration(watch)
    loaded = load_config()
    return run_check(resolve_target(dsn, loaded), loaded.config, watch_s, as_json=json)


def run_check(target: Target, config: Config, watch_s: float | None, *, as_json: bool) -> int:
    """Read a frame, print the verdict and return its code."""
    with open_live(target, config) as live:
        frame = read_frame(live, watch_s)
    # Loaded with the server's data, because it loads rules.
    from dba_console.watch.connections.slot_usage import ConnectionLimits
    from dba_console.watch.findings.thresholds import Limits

    limits = Limits.configured(config.findings)
    verdict = make_verdict(frame, limits.of(ConnectionLimits), rules_not_judged(frame, limits.off))
    if as_json:
        print_json(_json(frame, verdict))
    else:
        put(plain_text(verdict))
    return verdict.code


def read_frame(live: LiveSource, watch_s: float | None = None) -> Frame:
    """Return the frame to judge: the agent's next one, or one after `watch_s` seconds of own observation.

    Without `watch_s`: MIN_WATCH_S, and up to MAX_WATCH_S while a finding is undecided.
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
    """Return whether a finding could still be raised because it was not watched long enough."""
    return bool(undecided_findings(frame)) or (
        frame.target.state == "disconnected" and not any(map(_is_outage, frame.findings))
    )


def undecided_findings(frame: Frame) -> list[str]:
    """Return the ids of pending findings that need longer than the watch time so far.

    What a finding needs counts from the first reading of its parts, which is up to an interval after the start.
    """
    if not frame.pending:
        return []
    from dba_console.watch.findings.rule_engine import RULES
    from dba_console.watch.samples.sample import PARTS

    watched_s = frame.judged_s or 0.0
    read_s = {rule.name: min(PARTS[part].every_s for part in rule.parts) for rule in RULES}
    return sorted(
        name for name, needs_s in frame.pending.items() if needs_s + read_s.get(name.partition(":")[0], 0) > watched_s
    )


def rules_not_judged(frame: Frame, off: Sequence[str]) -> list[str]:
    """Return the names of the rules whose warm-up is longer than the watch time so far."""
    if frame.judged_s is None:
        return []
    from dba_console.watch.findings.rule_engine import (
        RULES,  # imported only in the first minutes: an agent has watched longer
    )

    return sorted(rule.name for rule in RULES if rule.warm_up_s > frame.judged_s and rule.name not in off)


def make_verdict(frame: Frame, limits: ConnectionLimits, unjudged: Sequence[str] = ()) -> Verdict:
    """Return the verdict: the worst finding that is not silenced, no connection, or why the state is unknown.

    Code, text, lines and performance data come from one list of findings, so they agree.
    """
    findings = _with_outage(frame)
    alarming = [one for one in findings if one.state != "silenced"]
    code = max((_SEVERITY_CODES.get(one.severity, 0) for one in alarming), default=0)
    worst = next((one for one in alarming if code and _SEVERITY_CODES.get(one.severity, 0) == code), None)
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
        not_judged_text = f"not evaluated in {human_duration(frame.judged_s)}: {', '.join(unjudged)}"
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
    """Return the findings, most urgent first, with an outage as critical unless only the console is kept out.

    Monitoring must not wait for the time after which the finding itself becomes critical.
    """
    findings = sort_by_urgency(frame.findings)
    if frame.target.state == "connected":
        return findings
    outage = next((one for one in findings if _is_outage(one)), None)
    if outage is not None and (outage.state == "silenced" or _is_console_only(outage)):
        return findings
    note, _ = split_note(frame.target.note, "the server does not answer")
    if outage is None:
        lost = Finding(id=NOT_CONNECTED, severity="critical", subject="", text=f"not connected: {note}")
    else:
        lost = structs.replace(outage, severity="critical")
    return [lost, *(one for one in findings if one is not outage)]


def _is_outage(one: Finding) -> bool:
    return any(part.partition(":")[0] in ("server-down", "console-blind") for part in (one.id, *one.chain, *one.also))


def _is_console_only(outage: Finding) -> bool:
    """Return whether only the console is refused: by its password, or by the limit of its role or database."""
    kind, refused_by = outage.evidence.get("outage"), outage.evidence.get("refused_by")
    return kind in CONSOLE_ONLY_OUTAGES or (kind == "no_slots" and refused_by in ("role", "database"))


def _verdict_without_finding(frame: Frame, connections_text: str) -> tuple[int, str]:
    """Return code and text if no finding alarms: OK only if the state is known."""
    if not frame.judged:
        return 3, "not evaluated: the rules returned no result"
    if frame.findings_note:
        return 3, frame.findings_note
    if frame.target.state != "connected":
        return 3, f"not connected: {split_note(frame.target.note, 'the server does not answer')[0]}"
    if frame.connections.used_pct is None:
        return 3, f"connections unknown: {split_note(frame.connections.note, 'no reading')[0]}"
    if open_ids := undecided_findings(frame):
        undecided_text = ", ".join(f"{name} must last {human_duration(frame.pending[name])}" for name in open_ids)
        return 3, f"undecided after {human_duration(frame.judged_s)}: {undecided_text}; use --watch to watch longer"
    silent = sum(one.state == "silenced" for one in frame.findings)
    sentence = (f"only {silent} silenced, " if silent else "no finding, ") + connections_text
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
    """Return the plugin output: the first line with performance data, then the further lines."""

    # A bar starts the performance data, so server text must not contain one.
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


def _connections_text(connections: ConnectionsPanel) -> str:
    if connections.used is None:
        return ""
    if connections.usable is None or connections.used_pct is None:
        return f"{connections.used} connections in use"
    return f"{connections.used} of {connections.usable} usable connections in use ({human_pct(connections.used_pct)})"


def _performance_data(frame: Frame, findings: Sequence[Finding], limits: ConnectionLimits) -> str:
    fields = [f"{name}={count}" for name, count in _severity_counts(findings)]
    connections = frame.connections
    if connections.used is None:
        return " ".join(fields)
    if connections.usable is None:
        return " ".join([f"connections={connections.used};;;0", *fields])
    marks = [f"{connections.usable * pct / 100:g}" for pct in (limits.near_pct, limits.critical_pct)]
    share = "U" if connections.used_pct is None else f"{connections.used_pct:.1f}%"
    return " ".join(
        [
            f"connections={connections.used};{marks[0]};{marks[1]};0;{connections.usable}",
            f"used_pct={share};{limits.near_pct:g};{limits.critical_pct:g};0;100",
            *fields,
        ]
    )


def _severity_counts(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    alarming = [one.severity for one in findings if one.state != "silenced"]
    return [(severity, alarming.count(severity)) for severity in ("critical", "warning")]
