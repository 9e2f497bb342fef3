"""`dba-console demo`: the practice ground, and the console on it, as a user would open it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from dba_console.demo.console_processes import (
    HEADLESS_S,
    console_command,
    console_environment,
    exit_on_signals,
    ignore_message,
    ignore_signals,
    open_console,
    print_message,
    record,
    stop_agent,
)
from dba_console.demo.incident_verdict import IncidentVerdict, clock_text, finding_text, severity_of
from dba_console.demo.incidents.incident import Incident, substitute_recording
from dba_console.demo.incidents.registry import CLUSTER_INCIDENTS, find_incident
from dba_console.demo.practice_ground import PracticeGround
from dba_console.demo.rehearsal import Rehearsal, recorded_verdict
from dba_console.errors import ExitCode, SessionError

NOT_DETECTED = 1
"""The exit code where an incident was not seen: no error of the command's own."""


def run_demo(
    headless: bool, duration_s: float | None, keep: bool, incident_name: str | None = None, cluster: bool = False
) -> int:
    """Run the demo and return an exit code. Raises ConsoleError when no server can be started.

    `headless`, or no terminal: records for `duration_s` (20 s unless given), then prints the overview. Otherwise the
    console opens, until it is left or `duration_s` has passed. NOT_SEEN: headless, and no finding named the incident.
    `cluster`, or an incident of the practice cluster: there are three servers and a pooler.
    """
    headless = headless or not (sys.stdin.isatty() and sys.stdout.isatty())
    if cluster or incident_name in CLUSTER_INCIDENTS:
        from dba_console.demo.cluster_command import run_cluster_demo

        return run_cluster_demo(headless, duration_s, keep, incident_name)
    incident = None if incident_name is None else find_incident(incident_name)
    if incident is not None and (recording := substitute_recording(incident)) is not None:
        return _replay(incident, recording, headless)
    with exit_on_signals(), PracticeGround(keep=keep, say=print_message, incident=incident) as ground:
        if keep:
            print_message(_kept_text(ground))
        print_message(f"dba-console '{ground.dsn}'")
        rehearsal = (
            None if incident is None else Rehearsal(ground, incident, print_message if headless else ignore_message)
        )
        try:
            if headless:
                usual = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
                code = record(ground, usual if duration_s is None else duration_s, rehearsal)
                return code if rehearsal is None or code != ExitCode.OK else _print_verdict(rehearsal.verdict())
            code = open_console(ground, duration_s, rehearsal)
            if rehearsal is not None and rehearsal.begun:
                print_message(_verdict_text(rehearsal))
            return code
        finally:
            ignore_signals()
            stop_agent(ground.dsn)


def _verdict_text(rehearsal: Rehearsal) -> str:
    """What the recording says of the incident, or why it says nothing: leaving a console is no failure."""
    try:
        return rehearsal.verdict().sentence()
    except SessionError as error:
        return error.message


def _replay(incident: Incident, directory: Path, headless: bool) -> int:
    """Show a recording of the incident, and say that it is one; without a screen, its findings and the verdict too."""
    verdict = recorded_verdict(directory, incident)
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verdict.begun_us / 1e6))
    print_message(f"{incident.name} needs root: {incident.title}")
    print_message(f"this is a RECORDING of it, of {made}, on another host; nothing happens here")
    at = ["--at", f"finding:{incident.finding}"] if verdict.detected is not None else []
    shown = ["--show", *at] if headless else []
    code = subprocess.run(
        console_command("replay", str(directory), *shown), env=console_environment(), check=False
    ).returncode
    return code if not headless or code != ExitCode.OK else _print_verdict(verdict)


def _print_verdict(verdict: IncidentVerdict) -> int:
    """The findings to stdout, the verdict to stderr; 0 where the incident was seen, else 1."""
    print("\nFindings raised:" if verdict.findings else "\nNo finding was raised.")
    for event in verdict.findings:
        print(f"  {clock_text(event.wall_us)} {severity_of(event):<8} {finding_text(event)}")
    sys.stdout.flush()
    print_message(verdict.sentence())
    for event in verdict.others:
        print_message(f"another critical finding at {clock_text(event.wall_us)}: {finding_text(event)}")
    return 0 if verdict.detected is not None else NOT_DETECTED


def _kept_text(ground: PracticeGround) -> str:
    cluster = ground.cluster
    if not cluster.data_directory.is_relative_to(cluster.base):
        return f"kept afterwards: the logs in {cluster.base}; the data is not kept, its disk goes with the demo"
    return f"kept afterwards: {cluster.base}, to be started again with: {_start_command(ground)}"


def _start_command(ground: PracticeGround) -> str:
    cluster = ground.cluster
    server = f"{cluster.binaries.program('postgres')} -D {cluster.data_directory}"
    return f"runuser -u {cluster.account.name} -- {server}" if cluster.account.switched else server
