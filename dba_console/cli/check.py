"""`dba-console check`: the findings as one line for a monitoring system, in the form of the plugin guidelines.

Exit codes 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The first line holds the worst finding, each further one has a line
of its own below it; what an operator silenced is counted and does not alarm. What is not known is never taken for well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from dba_console.cli.config_file import load_config
from dba_console.cli.framing import Framer
from dba_console.cli.live import Live, first_view, open_live
from dba_console.cli.notes import split_note
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.output import put_json
from dba_console.cli.stdout import put
from dba_console.cli.targeting import resolve_target
from dba_console.config import Config
from dba_console.frames.model import Connections, Finding, Frame
from dba_console.limits.connections import ConnectionLimits
from dba_console.panels.cells import clean
from dba_console.panels.findings import ordered
from dba_console.panels.times import moment_of
from dba_console.target import Target
from dba_console.units import human_pct, parse_duration

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_CODES = {"critical": 2, "warning": 1}
WATCH = "3s"
"""Without an agent: long enough for rates and for what must hold some seconds, short enough for a plugin's time-out."""

app = new_app("One line for a monitoring system.")


class Verdict(NamedTuple):
    """Code of the plugin convention, the sentence, lines that go below it, and performance data."""

    code: int
    text: str
    more: tuple[str, ...] = ()
    performance: str = ""


@app.command()
def check(
    dsn: Dsn = None,
    json: Json = False,
    watch: Annotated[
        str, typer.Option("--watch", metavar="TIME", help="How long to watch where no agent does already.")
    ] = WATCH,
) -> int:
    """What is wrong, as one line for a monitoring system, and every finding below it.

    Exit codes of the monitoring-plugin convention: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. The figures are those of
    the configuration ([findings.…]); a running agent uses the ones it was started with.
    """
    watch_s = parse_duration(watch)
    loaded = load_config()
    return run_check(resolve_target(dsn, loaded), loaded.config, watch_s, as_json=json)


def run_check(target: Target, config: Config, watch_s: float, *, as_json: bool) -> int:
    """Look, print the verdict, return its code."""
    with open_live(target, config) as live:
        frame = looked_at(live, watch_s)
    verdict = judge(frame, config.findings.connections)
    if as_json:
        put_json(_json(frame, verdict))
    else:
        put(_plain(verdict))
    return verdict.code


def looked_at(live: Live, watch_s: float) -> Frame:
    """The frame to judge by: the agent's next one, or after `watch_s` seconds of our own."""
    view = first_view(live)
    framer = Framer(live.session, view.picture.wall_us)
    begun_us = view.picture.mono_us
    frame = framer.frame(view)
    while not frame.judged or (not live.watched and view.picture.mono_us - begun_us < watch_s * 1e6):
        view = live.next()
        frame = framer.frame(view)
        if view.picture.mono_us - begun_us > max(watch_s, 10.0) * 1e6:
            break
    return frame


def judge(frame: Frame, limits: ConnectionLimits) -> Verdict:
    """What the frame means: the worst finding that speaks, no connection, or what keeps it from being known."""
    findings = ordered(frame.findings)
    speaking = [one for one in findings if one.state != "silenced"]
    code = max((_CODES.get(one.severity, 0) for one in speaking), default=0)
    worst = next((one for one in speaking if code and _CODES.get(one.severity, 0) == code), None)
    if worst is not None:
        findings = [worst, *(one for one in findings if one is not worst)]
    lines = [_line(one) for one in findings]
    sentence = lines[0] if worst is not None else ""
    more = lines[1:] if sentence else lines
    counted = _counted(frame.connections)
    if frame.target.state != "connected" and code < 2:
        note, _ = split_note(frame.target.note, "the server does not answer")
        code, sentence, more = 2, f"not connected: {note}", lines
    elif code == 0:
        code, sentence = _calm(frame, counted)
    if counted and counted not in sentence:
        more = [*more, counted]
    return Verdict(code, sentence, tuple(more), _performance(frame, limits))


def _calm(frame: Frame, counted: str) -> tuple[int, str]:
    """No finding speaks: is that because all is well, or because it is not known?"""
    if not frame.judged:
        return 3, "not judged: the rules gave no answer"
    if frame.findings_note:
        return 3, frame.findings_note
    if frame.connections.used_pct is None:
        return 3, f"connections not known: {split_note(frame.connections.note, 'no reading')[0]}"
    silent = sum(one.state == "silenced" for one in frame.findings)
    return 0, (f"nothing but {silent} silenced, " if silent else "no finding, ") + counted


def _line(one: Finding) -> str:
    state = ""
    if one.state != "open":
        until = f" until {moment_of(one.until)}" if one.state == "silenced" else ""
        state = f" ({one.state}{until} by {one.who or '?'})"
    runbook = f", runbook {one.runbook}" if one.runbook else ""
    return f"{one.severity}: {one.text}; since {moment_of(one.since)} [{one.id}{runbook}]{state}"


def _plain(verdict: Verdict) -> str:
    # A bar ends the sentence for the monitoring system, so none may come from the server's words.
    def bare(text: str) -> str:
        return clean(text).replace("|", "/")

    performance = f" | {verdict.performance}" if verdict.performance else ""
    first = f"DBACONSOLE {WORDS[verdict.code]} - {bare(verdict.text)}{performance}"
    return "\n".join([first, *(bare(line) for line in verdict.more)])


def _json(frame: Frame, verdict: Verdict) -> dict[str, Any]:
    return {
        "status": WORDS[verdict.code],
        "code": verdict.code,
        "text": verdict.text,
        "findings": frame.findings,
        "judged": frame.judged,
        "note": frame.findings_note,
        "target": frame.target,
        "connections": {
            "used": frame.connections.used,
            "usable": frame.connections.usable,
            "used_pct": frame.connections.used_pct,
        },
    }


def _counted(connections: Connections) -> str:
    if connections.used is None:
        return ""
    usable = "?" if connections.usable is None else str(connections.usable)
    return f"{connections.used} of {usable} usable connections in use ({human_pct(connections.used_pct)})"


def _performance(frame: Frame, limits: ConnectionLimits) -> str:
    words = [f"{name}={count}" for name, count in _counts(frame.findings)]
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


def _counts(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    speaking = [one.severity for one in findings if one.state != "silenced"]
    return [(severity, speaking.count(severity)) for severity in ("critical", "warning")]
