"""Write outage of a change of the primary: the runbook `cutover` compared with a bare script and repmgr.

One pair, PgBouncer in transaction mode, pgbench at 70 % of its maximum, the load with a ledger and a heartbeat. Each
round is a cutover and a fail-back by every method, in turns, so that other work on the machine affects all equally.
CUTOVER_ROUNDS (10). CUTOVER_WAYS: some of bare, repmgr, ours, separated by spaces. CUTOVER_MAJOR: version of the
servers, if not the one that is installed. CUTOVER_STEPS: any value prints the seconds of every step to stderr.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.console import PROGRAM, own_directories
from bench.figure import Figure
from bench.pair import NAME, Pair
from bench.switchovers import Repmgr, Steps, bare, ours
from bench.traffic import SHARE, Traffic, maximum_tps
from dba_console.clusters.heartbeat import HeartbeatOutage, read_outage, start_heartbeat, stop_heartbeat
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConsoleError

METHODS = ("bare", "ours", "repmgr")
GOAL = 1.1
"""Maximum ratio to the outage of the bare script."""
CHECK_S = 2.0
CHECKS = 10


class Outages:
    """Outages, in seconds, of each cutover and fail-back by one method."""

    def __init__(self, method: str) -> None:
        self.way = method
        self.write: list[float] = []
        self.read: list[float] = []
        self.steps: dict[str, list[float]] = {}
        self.errors = 0

    def add(self, beat: HeartbeatOutage, steps: Steps) -> None:
        assert beat.write_s is not None and beat.read_s is not None, beat
        self.write.append(beat.write_s)
        self.read.append(beat.read_s)
        self.errors += sum(beat.errors.values())
        for step, seconds in steps.items():
            self.steps.setdefault(step, []).append(seconds)
        if os.environ.get("CUTOVER_STEPS"):
            text = ", ".join(f"{step} {seconds:.3f}" for step, seconds in steps.items())
            print(f"{self.way}: no writes for {self.write[-1]:.3f} s; {text}", file=sys.stderr, flush=True)

    @property
    def sentence(self) -> str:
        return (
            f"worst {max(self.write):.3g} s; reads {statistics.median(self.read):.3g} s, worst {max(self.read):.3g} s; "
            f"{len(self.write)} switchovers, {self.errors / len(self.write):.3g} errors at the heartbeat each"
        )


def configured(pair: Pair, place: Path) -> None:
    """Write the console's configuration of the pair to the directory of `own_directories`."""
    path = place / "config" / "dba-console" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pair.configuration())
    path.chmod(0o600)


def switch(
    pair: Pair, seen: Outages, roles: list[str], repmgr: Repmgr | None, traffic: Traffic, settle_s: float
) -> None:
    """Change the primary once, measured by its own heartbeat. `roles` is (primary, standby), and is swapped."""
    old, new = roles
    with tempfile.TemporaryDirectory(dir=pair.base) as place:
        beat = Path(place)
        start_heartbeat(beat, pair.clients, SYSTEM)
        time.sleep(settle_s)
        if seen.way == "repmgr" and repmgr is not None:
            steps = repmgr.switch(old, new)
        else:
            steps = bare(pair, old, new) if seen.way == "bare" else ours(new)
        time.sleep(settle_s)
        try:
            pair.await_standbys()
        except ConsoleError as error:
            log = pair.nodes[old].log_text()[-2000:]
            raise ConsoleError(
                f"after {seen.way} from {old} to {new}: {error}; the log of {old} ends with\n{log}"
            ) from None
        stop_heartbeat(beat)
        found = read_outage(beat)
    roles.reverse()
    if seen.way == "repmgr" and repmgr is not None:
        repmgr.forget(new)
    traffic.keep_going()
    seen.add(found, steps)


def measured(rounds: int, ways: Sequence[str], *, top_s: int, settle_s: float) -> list[Figure]:
    outages = {method: Outages(method) for method in ways}
    with ExitStack() as stack:
        place = stack.enter_context(own_directories())
        pair = stack.enter_context(Pair(major=int(os.environ.get("CUTOVER_MAJOR", "0"))))
        repmgr = stack.enter_context(Repmgr(pair)) if "repmgr" in ways else None
        configured(pair, place)
        top = maximum_tps(pair, top_s)
        traffic = stack.enter_context(Traffic(pair, SHARE * top))
        roles = list(pair.names)
        time.sleep(settle_s)
        for number in range(rounds):
            for method in (*ways[number % len(ways) :], *ways[: number % len(ways)]):
                for _ in range(2):
                    switch(pair, outages[method], roles, repmgr, traffic, settle_s)
        found = traffic.verdict(roles[0])
    figures = []
    for method in ways:
        each = outages[method]
        figures.append(Figure(f"cutover, {method}: write outage, median", statistics.median(each.write), "s", None,
                              each.sentence))  # fmt: skip
    if "ours" in ways and "bare" in ways:
        median = {method: statistics.median(outages[method].write) for method in ways}
        worst = {method: max(outages[method].write) for method in ways}
        figures.append(Figure("cutover, write outage against the bare script, median", median["ours"] / median["bare"],
                              "×", GOAL, f"{median['ours']:.3g} s against {median['bare']:.3g} s"))  # fmt: skip
        figures.append(Figure("the same, worst against worst", worst["ours"] / worst["bare"], "×", GOAL,
                              f"{worst['ours']:.3g} s against {worst['bare']:.3g} s"))  # fmt: skip
    text = f"pgbench at {SHARE * top:.0f} transactions per second; {found.sentence()}"
    figures.append(Figure("the same: acknowledged commits lost", len(found.lost), "commits", 0, text))
    figures.append(Figure("the same: commits duplicated", len(found.duplicated), "commits", 0))
    return figures


def check_seconds(checks: int) -> Figure:
    """Time `cluster check` of three nodes and a pooler, including the start of the program."""
    took = []
    with own_directories() as place, Pair(("db1", "db2", "db3"), scale=0) as pair:
        configured(pair, place)
        for _ in range(checks):
            begun = time.monotonic()
            done = subprocess.run(
                [PROGRAM, "cluster", "check", NAME, "--to", "db2"], capture_output=True, text=True, check=False
            )
            took.append(time.monotonic() - begun)
            if done.returncode not in (0, 7):
                raise RuntimeError(done.stdout + done.stderr)
    text = f"slowest {max(took):.3g} s of {checks}"
    return Figure("cluster check, three nodes and a pooler, median", statistics.median(took), "s", CHECK_S, text)


def run(smoke: bool) -> list[Figure]:
    rounds = 1 if smoke else int(os.environ.get("CUTOVER_ROUNDS", "10"))
    wanted = os.environ.get("CUTOVER_WAYS", "").split()
    ways = (
        [method for method in METHODS if method in wanted]
        if wanted
        else [method for method in METHODS if not smoke or method != "repmgr"]
    )
    figures = measured(rounds, ways, top_s=2 if smoke else 20, settle_s=0.5 if smoke else 2.0)
    return [*figures, check_seconds(2 if smoke else CHECKS)]
