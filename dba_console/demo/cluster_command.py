"""`dba-console demo --cluster`: the practice cluster, the console on its primary, and what became of the load."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from dba_console.clock import SYSTEM
from dba_console.clusters.checks import Check
from dba_console.clusters.readiness import readiness
from dba_console.clusters.seen import state_file
from dba_console.clusters.survey import survey
from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.registry import find_of_cluster
from dba_console.demo.pooler import find_pgbouncer
from dba_console.demo.practice_cluster import NAME, NODES, PracticeCluster
from dba_console.demo.rehearsal import Occurrence
from dba_console.demo.running import (
    HEADLESS_S,
    command,
    deaf_to_signals,
    end_agent,
    environment,
    open_console,
    record,
    say,
    silent,
    stopped_by_signals,
)
from dba_console.errors import ConsoleError, ExitCode, Unsupported

TARGET = NODES[1]
BROKEN = 1
"""The exit code where the incident was not named, or the load lost a commit: no error of the command's own."""


def run_cluster_demo(headless: bool, duration_s: float | None, keep: bool, incident_name: str | None) -> int:
    """Run the demo on a cluster and return an exit code. Raises ConsoleError when it cannot be started.

    BROKEN: headless, and `cluster check` did not name the incident, or an acknowledged commit was lost or came twice.
    """
    incident = None if incident_name is None else find_of_cluster(incident_name)
    if incident is not None and incident.needs_pooler and find_pgbouncer() is None:
        raise Unsupported(f"the incident {incident.name} needs PgBouncer", hint="apt-get install pgbouncer")
    with stopped_by_signals(), PracticeCluster(keep=keep, say=say, incident=incident) as ground:
        _introduce(ground)
        _forget_earlier_ones()
        occurrence = None
        if incident is not None:
            cause = lambda: incident.cause(ground)  # noqa: E731
            occurrence = Occurrence(ground.dsn, incident.name, incident.title, cause, say if headless else silent)
        try:
            if not headless:
                code = open_console(ground, duration_s, occurrence)
                _ledger(ground)
                return code
            usual = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
            code = record(ground, usual if duration_s is None else duration_s, occurrence)
            if incident is None:
                _show(ground, "show", NAME)
            else:
                code = _named(ground, incident)
            return max(code, _ledger(ground))
        finally:
            deaf_to_signals()
            for node in ground.config.nodes.values():
                end_agent(node.dsn)


def _introduce(ground: PracticeCluster) -> None:
    if ground.pooler is None:
        say("PgBouncer is not installed: the load connects to the primary directly, and a cutover holds no clients")
    if ground.keep:
        say(f"kept afterwards: {ground.site}, the servers to be started again with: {ground.start_again()}")
    say("to use it from another shell:")
    say(f"export DBA_CONSOLE_CONFIG={ground.config_file}")
    say(f"dba-console cluster check {NAME} --to {TARGET}")
    say(f"dba-console runbook run cutover --input cluster={NAME} --input to={TARGET} --dsn '{ground.dsn}'")


def _forget_earlier_ones() -> None:
    """What is kept about a cluster of this name is of an earlier demo: other servers."""
    for path in (state_file(NAME, "", "seen"), *(state_file(NAME, node) for node in NODES)):
        with suppress(OSError):
            path.unlink()


def _named(ground: PracticeCluster, incident: ClusterIncident) -> int:
    """Show what `cluster check` says, and whether it names the incident: 0 where it does, else BROKEN."""
    _show(ground, "check", NAME, "--to", TARGET)
    found = failing(ground, incident)
    say(f"{incident.check} is {found.state}: {found.text}" if found else f"{incident.check} was not seen to fail")
    return ExitCode.OK if found else BROKEN


def _show(ground: PracticeCluster, *arguments: str) -> None:
    print(flush=True)
    subprocess.run(
        command("cluster", *arguments), env=environment(ground), stdin=subprocess.DEVNULL, timeout=60, check=False
    )


def failing(ground: PracticeCluster, incident: ClusterIncident) -> Check | None:
    """The check that the incident fails now; None where it does not."""
    checks = readiness(survey(NAME, ground.config, SYSTEM, to=TARGET), TARGET)
    return next((one for one in checks if one.id == incident.check and one.state == "failed"), None)


def _ledger(ground: PracticeCluster) -> int:
    """What became of the load's commits: 0 where all that were acknowledged are there once, else BROKEN."""
    ground.stop_load()
    if ground.primary() is None:
        say("the ledger was not compared: no node takes writes")
        return ExitCode.OK
    try:
        found = ground.verdict()
    except ConsoleError as error:
        say(f"the ledger was not compared: {error.message}")
        return ExitCode.OK
    say(found.sentence())
    return ExitCode.OK if found.kept else BROKEN
