"""`dba-console check`: one line for a monitoring system, in the form of the monitoring-plugins guidelines.

Exit codes 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. A number that is not known is never taken for a good one.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from dba_console.cli.config_file import load_config
from dba_console.cli.framing import Framer
from dba_console.cli.live import first_view, open_live
from dba_console.cli.notes import split_note
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.output import put_json
from dba_console.cli.stdout import put
from dba_console.cli.targeting import resolve_target
from dba_console.config import Config
from dba_console.errors import UsageError
from dba_console.frames.model import Connections, Frame
from dba_console.panels.cells import clean
from dba_console.target import Target
from dba_console.units import human_pct

WARNING_PCT, CRITICAL_PCT = 80.0, 95.0
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
COVERS = "covers: connection to the server, share of the usable connections in use"

app = new_app("One line for a monitoring system.")


class Verdict(NamedTuple):
    """Code of the plugin convention, sentence, and performance data (`name=value;warning;critical;min;max`)."""

    code: int
    text: str
    performance: str = ""


@app.command()
def check(
    dsn: Dsn = None,
    json: Json = False,
    warning: Annotated[float, typer.Option("--warning", metavar="PCT", min=0, max=100)] = WARNING_PCT,
    critical: Annotated[float, typer.Option("--critical", metavar="PCT", min=0, max=100)] = CRITICAL_PCT,
) -> int:
    """Can the server be reached, and how many of its usable connections are taken.

    Exit codes of the monitoring-plugin convention: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """
    if warning > critical:
        raise UsageError(f"--warning {warning:g} is above --critical {critical:g}", hint="the warning comes first")
    loaded = load_config()
    return run_check(resolve_target(dsn, loaded), loaded.config, warning, critical, as_json=json)


def run_check(target: Target, config: Config, warning: float, critical: float, *, as_json: bool) -> int:
    """Read once, print the verdict, return its code."""
    with open_live(target, config) as live:
        frame = Framer().frame(first_view(live))
    verdict = judge(frame, warning, critical)
    if as_json:
        put_json({"status": WORDS[verdict.code], "code": verdict.code, "text": verdict.text, "covers": COVERS,
                  "connections": {"used": frame.connections.used, "usable": frame.connections.usable,
                                  "used_pct": frame.connections.used_pct}})  # fmt: skip
    else:
        performance = f" | {verdict.performance}" if verdict.performance else ""
        # A bar ends the sentence for the monitoring system, so none may come from the server's words.
        put(f"DBACONSOLE {WORDS[verdict.code]} - {clean(verdict.text).replace('|', '/')}{performance}\n{COVERS}")
    return verdict.code


def judge(frame: Frame, warning: float = WARNING_PCT, critical: float = CRITICAL_PCT) -> Verdict:
    """What the frame means for the two rules: not connected is critical, then the share of connections decides."""
    connections = frame.connections
    performance = _performance(connections, warning, critical)
    counted = _counted(connections)
    if frame.target.state != "connected":
        note, _ = split_note(frame.target.note, "the server does not answer")
        return Verdict(2, f"not connected: {note}" + (f"; {counted}" if counted else ""), performance)
    if connections.used_pct is None:
        return Verdict(3, f"connections not known: {split_note(connections.note, 'no reading')[0]}", performance)
    code = 2 if connections.used_pct >= critical else 1 if connections.used_pct >= warning else 0
    return Verdict(code, counted, performance)


def _counted(connections: Connections) -> str:
    if connections.used is None:
        return ""
    usable = "?" if connections.usable is None else str(connections.usable)
    return f"{connections.used} of {usable} usable connections in use ({human_pct(connections.used_pct)})"


def _performance(connections: Connections, warning: float, critical: float) -> str:
    if connections.used is None:
        return ""
    if connections.usable is None:
        return f"connections={connections.used};;;0"
    limits = [f"{connections.usable * share / 100:g}" for share in (warning, critical)]
    share = "U" if connections.used_pct is None else f"{connections.used_pct:.1f}%"
    return (
        f"connections={connections.used};{limits[0]};{limits[1]};0;{connections.usable} "
        f"used_pct={share};{warning:g};{critical:g};0;100"
    )
