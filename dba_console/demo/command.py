"""`dba-console demo`: runs practice servers, and the console or a recorder on them as a user would."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from dba_console.agent.target_lock import TargetLock
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.last_primary import state_file
from dba_console.clusters.survey import survey
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConsoleError, ExitCode, SessionError, Unsupported
from dba_console.core.safe_environment import python_command
from dba_console.core.target import make_target
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.incident_detection import (
    CALM_TICKS,
    IncidentVerdict,
    Rehearsal,
    TriggeredIncident,
    clock_text,
    finding_text,
    recorded_verdict,
    severity_of,
)
from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.incident import Incident, substitute_recording
from dba_console.demo.incidents.registry import CLUSTER_INCIDENTS, find_cluster_incident, find_incident
from dba_console.demo.pooler import find_pgbouncer
from dba_console.demo.practice_cluster import NAME, NODES, PracticeCluster
from dba_console.demo.practice_server import PracticeGround

# The commands that the demo runs on its servers: the console, or a recorder and the text view. They are the commands a
# user types, as separate processes; so the demo shows nothing artificial, and this process stays free to clean up.

HEADLESS_S = 20.0
CONSOLE_CALM_TICKS = 11
"""With a screen the incident begins after ten seconds, so that the normal state is visible first."""
RECORDER_PATIENCE_S = 30.0
"""The recorder writes its buffered samples before it ends; on a stalled disk that takes a while, and the verdict is
read from the recording."""
AGENT_GRACE = "3s"
"""The agent has nothing to watch once the practice ground is gone."""


class DemoServers(Protocol):
    """The servers a demo started: one server under load, or several."""

    @property
    def dsn(self) -> str: ...

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that the commands need in addition to the caller's."""

    def check(self) -> None:
        """Raises ConnectError if the load ended."""


def open_console(ground: DemoServers, duration_s: float | None, incident: TriggeredIncident | None) -> int:
    """Open the console until it is closed or `duration_s` has passed; the incident begins after a while."""
    console = start_child(
        console_command(ground.dsn),
        stdin=sys.stdin.fileno(),
        output=None,
        environment=console_environment(ground),
        own_session=False,
    )
    # ctrl-C is a key of the console: it reaches both processes, and only the console handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    until = math.inf if duration_s is None else time.monotonic() + duration_s
    try:
        # The console is a separate process, so it stays usable while this one causes the incident.
        if incident is not None and incident.wait_calm(
            CONSOLE_CALM_TICKS, lambda: console.poll() is None and time.monotonic() < until
        ):
            incident.begin()
        code = console.wait(None if duration_s is None else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = ExitCode.OK
    finally:
        end_child(console)
    return code


def record(ground: DemoServers, duration_s: float, incident: TriggeredIncident | None) -> int:
    """Record for `duration_s`, then show the overview. Return the exit code of the latter."""
    recorder = start_child(
        console_command("record", "--for", f"{duration_s + 60:.0f}s", ground.dsn),
        environment=console_environment(ground),
        output=2,
    )
    until = time.monotonic() + duration_s
    try:
        print_message(f"recording for {duration_s:g} s, then the overview")
        if incident is not None:
            if incident.wait_calm(CALM_TICKS, lambda: recorder.poll() is None and time.monotonic() < until):
                incident.begin()
            else:
                print_message(f"the incident did not begin: {CALM_TICKS} samples must be recorded first")
        _wait_recording(ground, recorder, until)
        if recorder.poll() is not None:
            raise ConsoleError(f"the recorder ended unexpectedly, with exit code {recorder.returncode}")
        return subprocess.run(
            console_command("show", ground.dsn),
            env=console_environment(ground),
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        ).returncode
    finally:
        end_child(recorder, patience_s=RECORDER_PATIENCE_S)


def stop_agent(dsn: str) -> None:
    """End the agent, since its server ends now. By default an agent ends after a while, but not during a runbook."""
    if (agent := TargetLock(make_target(dsn).key).holder()) is None:
        return
    try:
        os.kill(agent, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended


def _wait_recording(ground: DemoServers, recorder: subprocess.Popen[bytes], until: float) -> None:
    while (left := until - time.monotonic()) > 0 and recorder.poll() is None:
        ground.check()
        time.sleep(min(left, 0.5))


def console_command(*arguments: str) -> list[str]:
    return [*python_command("dba_console"), *arguments]


def console_environment(ground: DemoServers | None = None) -> dict[str, str]:
    return {**os.environ, "DBA_CONSOLE_AGENT_GRACE": AGENT_GRACE, **({} if ground is None else ground.environment)}


def print_message(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def ignore_message(_text: str) -> None:
    """The console uses the screen."""


class _Stopped(SystemExit):
    """A signal requested the end; unwinding does the cleanup."""


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the block as ctrl-C does; restore the previous handlers afterwards."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Stopped(128 + number)

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    """Ignore signals during the cleanup: a second ctrl-C must not interrupt it."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


NOT_DETECTED = 1
"""Exit code if an incident was not detected; the command itself succeeded."""


def run_demo(
    headless: bool, duration_s: float | None, keep: bool, incident_name: str | None = None, cluster: bool = False
) -> int:
    """Run the demo and return an exit code. Raises ConsoleError if no server can be started.

    `headless`, or without a terminal: record for `duration_s` (default 20 s), then print the overview. Otherwise open
    the console until it is closed or `duration_s` has passed. NOT_DETECTED: headless, and no finding named the
    incident. `cluster`, or an incident of the practice cluster: run three servers and a pooler.
    """
    headless = headless or not (sys.stdin.isatty() and sys.stdout.isatty())
    if cluster or incident_name in CLUSTER_INCIDENTS:
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
                default_s = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
                code = record(ground, default_s if duration_s is None else duration_s, rehearsal)
                return code if rehearsal is None or code != ExitCode.OK else _print_verdict(rehearsal.verdict())
            code = open_console(ground, duration_s, rehearsal)
            if rehearsal is not None and rehearsal.begun:
                print_message(_verdict_text(rehearsal))
            return code
        finally:
            ignore_signals()
            stop_agent(ground.dsn)


def _verdict_text(rehearsal: Rehearsal) -> str:
    """Return the verdict from the recording, or why it has none: closing a console early is not a failure."""
    try:
        return rehearsal.verdict().sentence()
    except SessionError as error:
        return error.message


def _replay(incident: Incident, directory: Path, headless: bool) -> int:
    """Show a recording of the incident, and say that it is one; without a screen, also its findings and the verdict."""
    verdict = recorded_verdict(directory, incident)
    recorded_at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verdict.begun_us / 1e6))
    print_message(f"{incident.name} needs root: {incident.title}")
    print_message(f"this is a RECORDING of it, from another host at {recorded_at}; nothing happens on this host")
    at = ["--at", f"finding:{incident.finding}"] if verdict.detected is not None else []
    shown = ["--show", *at] if headless else []
    code = subprocess.run(
        console_command("replay", str(directory), *shown), env=console_environment(), check=False
    ).returncode
    return code if not headless or code != ExitCode.OK else _print_verdict(verdict)


def _print_verdict(verdict: IncidentVerdict) -> int:
    """Print the findings to stdout, the verdict to stderr; return 0 if the incident was detected, else 1."""
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
        return f"kept afterwards: the logs in {cluster.base}; the data is not kept, its disk is removed with the demo"
    return f"kept afterwards: {cluster.base}, start it again with: {_start_command(ground)}"


def _start_command(ground: PracticeGround) -> str:
    cluster = ground.cluster
    server = f"{cluster.binaries.program('postgres')} -D {cluster.data_directory}"
    return f"runuser -u {cluster.account.name} -- {server}" if cluster.account.switched else server


# `dba-console demo --cluster`: the practice cluster, the console on its primary, and the result of the load.

TARGET = NODES[1]
CHECK_FAILED = 1
"""Exit code if no check named the incident, or the load lost a commit; the command itself succeeded."""


def run_cluster_demo(headless: bool, duration_s: float | None, keep: bool, incident_name: str | None) -> int:
    """Run the demo on a cluster and return an exit code. Raises ConsoleError if it cannot be started.

    CHECK_FAILED: headless, and `cluster check` did not name the incident, or an acknowledged commit was lost or
    duplicated.
    """
    incident = None if incident_name is None else find_cluster_incident(incident_name)
    if incident is not None and incident.needs_pooler and find_pgbouncer() is None:
        raise Unsupported(f"the incident {incident.name} needs PgBouncer", hint="apt-get install pgbouncer")
    with exit_on_signals(), PracticeCluster(keep=keep, say=print_message, incident=incident) as ground:
        _print_introduction(ground)
        _remove_old_state()
        occurrence = None
        if incident is not None:
            cause = lambda: incident.cause(ground)  # noqa: E731
            occurrence = TriggeredIncident(
                ground.dsn, incident.name, incident.title, cause, print_message if headless else ignore_message
            )
        try:
            if not headless:
                code = open_console(ground, duration_s, occurrence)
                _check_ledger(ground)
                return code
            default_s = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
            code = record(ground, default_s if duration_s is None else duration_s, occurrence)
            if incident is None:
                _run_cluster_command(ground, "show", NAME)
            else:
                code = _check_incident(ground, incident)
            return max(code, _check_ledger(ground))
        finally:
            ignore_signals()
            for node in ground.config.nodes.values():
                stop_agent(node.dsn)


def _print_introduction(ground: PracticeCluster) -> None:
    if ground.pooler is None:
        print_message(
            "PgBouncer is not installed: the load connects to the primary directly, and a cutover cannot pause clients"
        )
    if ground.keep:
        print_message(f"kept afterwards: {ground.directory}, start the servers again with: {ground.start_command()}")
    print_message("to use it from another shell:")
    print_message(f"export DBA_CONSOLE_CONFIG={ground.config_file}")
    print_message(f"dba-console cluster check {NAME} --to {TARGET}")
    print_message(f"dba-console runbook run cutover --input cluster={NAME} --input to={TARGET} --dsn '{ground.dsn}'")


def _remove_old_state() -> None:
    """Delete stored state of a cluster with this name: it belongs to an earlier demo with other servers."""
    for path in (state_file(NAME, "", "seen"), *(state_file(NAME, node) for node in NODES)):
        with suppress(OSError):
            path.unlink()


def _check_incident(ground: PracticeCluster, incident: ClusterIncident) -> int:
    """Show the output of `cluster check`, and whether it names the incident: 0 if it does, else CHECK_FAILED."""
    _run_cluster_command(ground, "check", NAME, "--to", TARGET)
    found = failing_check(ground, incident)
    print_message(f"{incident.check} is {found.state}: {found.text}" if found else f"{incident.check} did not fail")
    return ExitCode.OK if found else CHECK_FAILED


def _run_cluster_command(ground: PracticeCluster, *arguments: str) -> None:
    print(flush=True)
    subprocess.run(
        console_command("cluster", *arguments),
        env=console_environment(ground),
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def failing_check(ground: PracticeCluster, incident: ClusterIncident) -> ClusterCheck | None:
    """Return the check that the incident fails now; None if it does not."""
    checks = cutover_readiness(survey(NAME, ground.config, SYSTEM, to=TARGET), TARGET)
    return next((one for one in checks if one.id == incident.check and one.state == "failed"), None)


def _check_ledger(ground: PracticeCluster) -> int:
    """Compare the load's commits: 0 if each acknowledged one exists exactly once, else CHECK_FAILED."""
    ground.stop_load()
    if ground.primary() is None:
        print_message("the ledger was not compared: no node accepts writes")
        return ExitCode.OK
    try:
        found = ground.verdict()
    except ConsoleError as error:
        print_message(f"the ledger was not compared: {error.message}")
        return ExitCode.OK
    print_message(found.sentence())
    return ExitCode.OK if found.all_kept else CHECK_FAILED
