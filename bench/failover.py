"""Failovers of a real trio in trouble: second primaries, wrong losses, commits lost that could be read, dead ends.

Each case has hosts, servers, a pooler and three loads of its own, and an operator who does what the screen says.
FAILOVER_CASES, or `--case NAME`: the cases to run, separated by spaces. Root only. FAILOVER_KEEP: a directory for what
each run asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from bench.console import PROGRAM
from bench.failover_cases import CASES, Case, nothing
from bench.failover_managed import MANAGERS, play_managed
from bench.failover_operator import RUNS, Hands, Walk, console, other_target, walk
from bench.figure import Figure
from bench.trio import NAME, NODES, HostNode, Trio
from dba_console.core.errors import ConsoleError
from dba_console.runbooks.run_view import Question
from tests.agent.agents import environment
from tests.background import wait_until

SETTLE_S = 4.0
"""Time that is watched after everything has ended."""
RELEASED_S = 20.0
"""Time within which clients must write again."""
TOLERANCE = 8192
"""Bytes by which a loss may differ from the truth: what begins in a page may be counted to its end."""
SMOKE = ("killed",)


class Writers:
    """Tries to write on every node at all times, through its socket: which accepts writes, and when."""

    def __init__(self, trio: Trio) -> None:
        self.accepted: dict[str, list[float]] = {name: [] for name in NODES}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(node,), daemon=True) for node in trio.nodes.values()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def _write(self, node: HostNode) -> None:
        dsn = node.dsn(connect_timeout=2, application_name="dba-console:cutover probe")
        while not self._over.wait(0.3):
            with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as connection:
                while not self._over.wait(0.3):
                    if connection.execute("select pg_is_in_recovery()").fetchone() == (False,):
                        connection.execute("insert into probe (node) values (%s)", [node.name])
                        self.accepted[node.name].append(time.monotonic())

    def promoted(self, old: str = "db1") -> str | None:
        """The first other node that accepted a write."""
        first = {name: times[0] for name, times in self.accepted.items() if times and name != old}
        return min(first, key=lambda name: first[name], default=None)

    def second(self) -> list[str]:
        """Nodes that accepted a write after another had been promoted."""
        new = self.promoted()
        if new is None:
            return []
        since = self.accepted[new][0]
        return [name for name, times in self.accepted.items() if name != new and times and times[-1] > since]


@dataclass
class Outcome:
    """What came of a case."""

    case: Case
    promoted: str | None = None
    second: list[str] = field(default_factory=list)
    said: str = ""
    true_loss: int | None = None
    lost: int = 0
    """Acknowledged commits that the new primary lacks."""
    duplicated: int = 0
    released: bool = False
    notes: list[str] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""

    @property
    def wrong_loss(self) -> bool:
        """A number was said that is not the loss, or none although commits are lost."""
        if not self.promoted or not self.said.isdigit():
            return False
        if self.said == "0" and self.lost:
            return True
        return self.true_loss is not None and abs(int(self.said) - self.true_loss) > TOLERANCE

    @property
    def lost_readable(self) -> int:
        return self.lost if self.case.readable and self.promoted != self.case.most else 0

    @property
    def stuck(self) -> str:
        """Why nobody could go on; empty: somebody could."""
        if any(one.state == "stuck" for one in self.walks):
            return "a run could not be ended"
        if self.case.ends == "promoted" and not self.promoted:
            return "nothing was promoted"
        return "" if self.released else "clients cannot write"

    @property
    def needless(self) -> bool:
        return self.case.ends == "refused" and self.promoted is not None

    @property
    def bad(self) -> list[str]:
        found = [f"SECOND PRIMARY: {', '.join(self.second)}"] if self.second else []
        found += ["WRONG LOSS"] if self.wrong_loss else []
        found += [f"{self.lost_readable} READABLE COMMITS LOST"] if self.lost_readable else []
        found += [f"{self.duplicated} DUPLICATED"] if self.duplicated else []
        found += [f"STUCK: {self.stuck}"] if self.stuck else []
        found += ["A LIVING PRIMARY WAS REPLACED"] if self.needless else []
        return found + ([f"HARNESS: {self.error}"] if self.error else [])

    def sentence(self) -> str:
        ended = f"{self.promoted} promoted" if self.promoted else "refused"
        true = "?" if self.true_loss is None else self.true_loss
        loss = f", loss said {self.said}, true {true} B" if self.said else ""
        return "; ".join([f"{self.case.what}: {ended}{loss}, {self.lost} commits lost", *self.bad, *self.notes])


def play(case: Case) -> Outcome:
    """Run one case."""
    outcome = Outcome(case)
    try:
        with Trio(case.settings) as trio:
            trio.write_config(data_directory=case.data_directory, extra=case.extra)
            _play(trio, case, outcome)
    except Exception as error:  # the other cases go on
        outcome.error = f"{type(error).__name__}: {error}"[:300]
        traceback.print_exc()
    return outcome


def _play(trio: Trio, case: Case, outcome: Outcome) -> None:
    trio.more_commits(20)
    place = trio.base / "second"
    place.mkdir()
    if case.observed:
        _observe(trio, place, case.to)
    interrupted = "first" if "interrupted" in case.name else ""
    if interrupted:
        case.fault(trio)
    with Writers(trio) as writers:
        if not interrupted:
            case.fault(trio)
        acknowledged, begun = trio.acknowledged(), time.monotonic()
        truth = _Truth(trio)
        hands = Hands(
            trio, patience_s=case.patience_s, comes_back=case.comes_back, fixes=case.fixes, at=case.at,
            knows=case.ends != "refused", cut_off=case.cut_off, before=truth.look,
        )  # fmt: skip
        _walk(trio, case, hands, outcome, place)
        outcome.seconds = time.monotonic() - begun
        case.after(trio)
        _start_again(trio)
        released = time.monotonic() + RELEASED_S
        while not outcome.released and time.monotonic() < released:
            outcome.released = trio.acknowledged() >= acknowledged + 5
            time.sleep(0.1)
        time.sleep(SETTLE_S)
        outcome.promoted, outcome.second = writers.promoted(), writers.second()
    primary = trio.nodes[outcome.promoted or "db1"]
    if not primary.is_primary():
        outcome.notes.append(f"{primary.name} is not primary at the end")
        return
    found = trio.verdicts(primary).values()
    outcome.lost = sum(len(one.lost) for one in found)
    outcome.duplicated = sum(len(one.duplicated) for one in found)
    if outcome.promoted:
        fork = primary.forked_at(int(primary.psql("select pg_walfile_name(pg_current_wal_lsn())")[:8], 16))
        outcome.true_loss = None if fork is None or truth.end is None else max(0, truth.end - fork)
        outcome.notes += _left(trio, primary)


def _walk(trio: Trio, case: Case, hands: Hands, outcome: Outcome, place: Path) -> None:
    """As often as the screen advises, each time to the node that it names."""
    to = case.to
    with console(trio.environment, place) as running:
        for _ in range(RUNS):
            walked = walk(running, "failover", to, hands)
            outcome.walks.append(walked)
            outcome.said = walked.typed_loss or outcome.said
            other = other_target(walked)
            if walked.state in ("done", "stuck") or case.ends == "refused":
                return
            gone = set() if case.ends == "either" else {"db1"}
            if any(trio.nodes[name].is_primary() for name in set(NODES) - gone):
                return
            to = other or to


class _Truth:
    """The end of WAL in the directory of the old primary, while its server is down and nobody has changed it."""

    def __init__(self, trio: Trio) -> None:
        self._node = trio.nodes["db1"]
        self.end: int | None = None
        self._over = False

    def look(self, asked: Question) -> None:
        if asked.kind == "choose":
            self._over = True  # what follows rewinds it, or copies
        elif not self._over and not self._node.running:
            with suppress(AssertionError, ConsoleError):
                self.end = max(self.end or 0, self._node.end_of_wal())


def _observe(trio: Trio, place: Path, to: str) -> None:
    """The console sees the primary once."""
    done = subprocess.run(
        [PROGRAM, "cluster", "check", NAME, "--to", to], capture_output=True, text=True, check=False,
        env={**os.environ, **environment(place), **trio.environment},
    )  # fmt: skip
    assert done.returncode in (0, 7), done


def _start_again(trio: Trio) -> None:
    """The supervisor of the old primary starts it, if it is down and its host has power."""
    db1 = trio.nodes["db1"]
    if db1.host.has_power and not db1.running:
        with suppress(ConsoleError):
            db1.start(timeout_s=20.0)


def _left(trio: Trio, primary: HostNode) -> Iterator[str]:
    """What is not as it should be, although clients work."""
    unused = primary.psql("select string_agg(slot_name, ', ') from pg_replication_slots where not active")
    if unused:
        yield f"unused slots: {unused}"
    if primary.psql("select 1 from pg_database where datconnlimit = 0"):
        yield "a connection limit of 0 is left"
    primary.psql("create table if not exists last (n int); select pg_switch_wal()")
    with suppress(AssertionError):
        ready = "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'"
        wait_until(lambda: primary.psql(ready) == "0", 10.0, what="the archive")
    if missing := _holes(trio.archive):
        yield f"missing in the archive: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"


def _holes(archive: Path) -> list[str]:
    """Numbers of segments that no timeline in the archive has, between its first and its last one."""
    numbers = {
        int(path.name[8:16], 16) * 256 + int(path.name[16:], 16)
        for path in archive.iterdir()
        if re.fullmatch("[0-9A-F]{24}", path.name)
    }
    if not numbers:
        return ["everything"]
    return [f"{number:X}" for number in range(min(numbers), max(numbers)) if number not in numbers]


def chosen() -> dict[str, Case | None]:
    """The cases to run by name; None: a manager's."""
    wanted = os.environ.get("FAILOVER_CASES", "").split()
    known = {**{case.name: case for case in CASES}, **dict.fromkeys(MANAGERS)}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"unknown case: {', '.join(unknown)}; known: {', '.join(known)}")
    return {name: known[name] for name in wanted or known}


def managed(name: str) -> Outcome:
    """Run one case of a cluster that `name` manages."""
    what = f"{name} manages the cluster, and its primary is killed"
    outcome = Outcome(Case(name, what, nothing, ends="refused"))
    found = play_managed(name)
    if isinstance(found, str):
        outcome.error = found
        return outcome
    outcome.walks, outcome.seconds = [found.walked], found.seconds
    outcome.released = found.after == ["db2"]
    outcome.second = found.after[1:]
    by_us = [node for node in found.before if node != "db1"] if found.walked.typed_loss else []
    outcome.promoted = by_us[0] if by_us else None
    if not found.names_command:
        outcome.notes.append("the refusal does not name the manager's command")
    return outcome


def _keep(outcome: Outcome) -> None:
    if directory := os.environ.get("FAILOVER_KEEP"):
        text = "\n\n".join([outcome.sentence(), *map(str, outcome.walks)])
        Path(directory).mkdir(parents=True, exist_ok=True)
        (Path(directory) / f"{outcome.case.name}.txt").write_text(text + "\n")


def run(smoke: bool = False) -> list[Figure]:
    if os.geteuid() != 0:
        print("failover: needs root for network namespaces", file=sys.stderr)
        return []
    outcomes = []
    for name, case in chosen().items():
        if smoke and name not in SMOKE:
            continue
        print(f"failover, {name} …", file=sys.stderr, flush=True)
        outcomes.append(outcome := managed(name) if case is None else play(case))
        _keep(outcome)
        print(f"  {outcome.seconds:.0f} s: {outcome.sentence()}", file=sys.stderr, flush=True)
    figures = [Figure(f"failover, {one.case.name}", one.seconds, "s", None, one.sentence()) for one in outcomes]
    text = f"{len(outcomes)} cases"
    goals = {
        "second primaries that accepted writes": sum(bool(one.second) for one in outcomes),
        "wrong losses": sum(one.wrong_loss for one in outcomes),
        "commits lost that could be read": sum(one.lost_readable for one in outcomes),
        "cases in which nobody could go on": sum(bool(one.stuck) for one in outcomes),
        "living primaries replaced": sum(one.needless for one in outcomes),
    }
    return figures + [Figure(f"failover: {what}", value, "", 0, text) for what, value in goals.items()]
