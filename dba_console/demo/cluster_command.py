"""`dba-console demo --cluster`: the practice cluster, the console on its primary, and what became of the load."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from dba_console.clock import SYSTEM
from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.cutover_readiness import cutover_readiness
from dba_console.clusters.last_primary import state_file
from dba_console.clusters.survey import survey
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
from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.registry import find_cluster_incident
from dba_console.demo.pooler import find_pgbouncer
from dba_console.demo.practice_cluster import NAME, NODES, PracticeCluster
from dba_console.demo.rehearsal import TriggeredIncident
from dba_console.errors import ConsoleError, ExitCode, Unsupported

TARGET = NODES[1]
CHECK_FAILED = 1
"""The exit code where the incident was not named, or the load lost a commit: no error of the command's own."""


def run_cluster_demo(headless: bool, duration_s: float | None, keep: bool, incident_name: str | None) -> int:
    """Run the demo on a cluster and return an exit code. Raises ConsoleError when it cannot be started.

    BROKEN: headless, and `cluster check` did not name the incident, or an acknowledged commit was lost or came twice.
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
            usual = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
            code = record(ground, usual if duration_s is None else duration_s, occurrence)
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
            "PgBouncer is not installed: the load connects to the primary directly, and a cutover holds no clients"
        )
    if ground.keep:
        print_message(
            f"kept afterwards: {ground.directory}, the servers to be started again with: {ground.start_command()}"
        )
    print_message("to use it from another shell:")
    print_message(f"export DBA_CONSOLE_CONFIG={ground.config_file}")
    print_message(f"dba-console cluster check {NAME} --to {TARGET}")
    print_message(f"dba-console runbook run cutover --input cluster={NAME} --input to={TARGET} --dsn '{ground.dsn}'")


def _remove_old_state() -> None:
    """What is kept about a cluster of this name is of an earlier demo: other servers."""
    for path in (state_file(NAME, "", "seen"), *(state_file(NAME, node) for node in NODES)):
        with suppress(OSError):
            path.unlink()


def _check_incident(ground: PracticeCluster, incident: ClusterIncident) -> int:
    """Show what `cluster check` says, and whether it names the incident: 0 where it does, else BROKEN."""
    _run_cluster_command(ground, "check", NAME, "--to", TARGET)
    found = failing_check(ground, incident)
    print_message(
        f"{incident.check} is {found.state}: {found.text}" if found else f"{incident.check} was not seen to fail"
    )
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
    """The check that the incident fails now; None where it does not."""
    checks = cutover_readiness(survey(NAME, ground.config, SYSTEM, to=TARGET), TARGET)
    return next((one for one in checks if one.id == incident.check and one.state == "failed"), None)


def _check_ledger(ground: PracticeCluster) -> int:
    """What became of the load's commits: 0 where all that were acknowledged are there once, else BROKEN."""
    ground.stop_load()
    if ground.primary() is None:
        print_message("the ledger was not compared: no node takes writes")
        return ExitCode.OK
    try:
        found = ground.verdict()
    except ConsoleError as error:
        print_message(f"the ledger was not compared: {error.message}")
        return ExitCode.OK
    print_message(found.sentence())
    return ExitCode.OK if found.all_kept else CHECK_FAILED
