"""Shipped runbooks walked by the real command, on a server that is in the state they are for.

    with incident("lock-queue", SMALL) as scene:
        assert_named(scene.named())
        walk = scene.headless("lock-queue", "what-to-stop=ddl", ...)
        assert walk.code == 0
        scene.cleared("lock-queue")

A scene is a server, an agent that watches it, and a console that has nothing of this user. `named` causes the incident
and returns what the recording says about it. `headless` walks as a job does, with every answer given beforehand;
`person` as somebody who is asked; `lines` is the same at a terminal.

The agent of an incident samples each second, because its finding is promised within seconds; other agents sample four
times as often.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from dba_console.agent.client import AgentClient
from dba_console.core.errors import ConnectError
from dba_console.demo.binaries import Binaries
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.cluster import Cluster
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.registry import find_incident
from dba_console.demo.practice_ground import PracticeGround
from dba_console.demo.rehearsal import IncidentVerdict, Rehearsal
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.watch.frames.model import Frame
from tests.agent.agents import Watch
from tests.attacks.hostile_database import besiege, calls
from tests.background import wait_until
from tests.cli.console import Console
from tests.runbooks.forked_console import Agent, Talk, recording, talking
from tests.terminal.tmux import Tmux

WAIT_S = 240.0
"""For whatever is waited for: the machine may have other things to do."""
CALM_TICKS = 3
"""Samples before an incident: what the first one shows is the state the agent found, and no news."""
AFTERWARDS_TICKS = 3
"""Samples after the finding was raised: time for other findings to be raised too."""
SECOND = "1s"
QUARTER = "250ms"
SMALL = LoadPlan(clients=12, rate_per_s=60, idle=6, forgotten=False, scale=1)
"""A load that is enough for sessions to queue up, and no more."""

Event = dict[str, Any]
Says = str | Callable[[], str]
"""An answer, or what is done when the question comes and gives it."""
BUSY = 2
"""So much longer may things take beside other tests."""
ASKED = "="
"""Answers what the question asks to be typed."""


@dataclass(frozen=True)
class Walk:
    """What became of a walk: the exit code, what was said as objects, and its journal."""

    code: int
    events: list[Event]
    err: str

    @property
    def text(self) -> str:
        """Everything it said."""
        return "\n".join([*(json.dumps(event, ensure_ascii=False) for event in self.events), self.err])

    @property
    def papers(self) -> StoredRun:
        """Its directory, as it is now."""
        return read_run(Path(next(event["directory"] for event in self.events if event["event"] == "run")))

    @property
    def ending(self) -> str:
        return str(next((event["text"] for event in reversed(self.events) if event["event"] == "ended"), ""))

    @property
    def questions(self) -> list[Event]:
        return [event for event in self.events if event["event"] == "question"]

    @property
    def output(self) -> str:
        """What its commands printed."""
        return "\n".join(event["text"] for event in self.events if event["event"] == "line")

    def records(self, kind: str, step: str = "") -> list[JournalRecord]:
        """Records of the journal of that kind, and of that step where one is named."""
        return [one for one in self.papers.records if one.kind == kind and step in ("", one.step)]

    def rows(self, block: str) -> list[Event]:
        """What a preview gave, the last time it was looked at."""
        seen = [one.fields["rows"] for one in self.records("block.seen") if one.block == block and "rows" in one.fields]
        return list(seen[-1])

    def done(self) -> list[str]:
        """The steps in which something was acted on."""
        return [one.step for one in self.records("block.intent")]

    def red(self) -> list[str]:
        """What was looked at and did not hold, could not be told, or was refused."""
        return [one.block for one in self.records("block.seen") if one.state == "failed"]

    def failed(self) -> list[str]:
        """What was acted on and failed."""
        return [one.block for one in self.records("block.result") if one.state == "failed"]

    def states(self) -> dict[str, str]:
        """How each step ended."""
        return {one.step: one.state for one in self.records("step.ended")}


@dataclass(frozen=True)
class Scene:
    """A watched server. `ground` and `what` are there where it is that of an incident."""

    console: Console
    dsn: str
    target: str
    socket: Path
    ground: PracticeGround | None = None
    what: Incident | None = None

    @property
    def cluster(self) -> Cluster:
        assert self.ground is not None
        return self.ground.cluster

    def cause(self) -> None:
        """The incident; returns when its cause is there. Some of them want some calm before."""
        assert self.ground is not None and self.what is not None
        self.what.cause(self.ground)

    def end(self) -> None:
        """Undo the incident; it may be caused again."""
        assert self.ground is not None and self.what is not None
        self.what.end(self.ground)

    def rest(self) -> None:
        """End the load: nobody works on the server, not even for a moment does anybody wait."""
        assert self.ground is not None
        self.ground.load.stop()
        wait_until(lambda: self.ground is not None and not self.ground.load.connected(), WAIT_S, what="rest")

    def work(self) -> None:
        """Have the load go on, where it has been ended."""
        assert self.ground is not None
        if not self.ground.load.connected():
            self.ground.load.start()
            self.ground.wait_connected(WAIT_S)

    def sql(self, text: str) -> str:
        """What psql says, in the database that is watched."""
        assert self.ground is not None
        return self.ground.cluster.psql(text, dbname=DATABASE)

    def frame(self, wanted: Callable[[Frame], object], what: str) -> Frame:
        """The first frame of a tick from now on that `wanted` accepts; an agent greets with what it read before."""
        patience, begun_us = time.monotonic() + WAIT_S, time.time_ns() // 1000
        with self._watch() as watch:
            while (frame := watch.next_frame(WAIT_S)).at_us < begun_us or not wanted(frame):
                assert time.monotonic() < patience, f"{what} did not come in {WAIT_S:g} s; last: {frame}"
            return frame

    def calm(self) -> None:
        """Let the agent see what is usual here."""
        with self._watch() as watch:
            for _ in range(CALM_TICKS):
                watch.next_frame(WAIT_S)

    def named(self) -> IncidentVerdict:
        """Cause the incident after some calm, and return the verdict of the recording.

        It is given a few samples after the finding was raised, or when the recording is too long for it to be in time.
        """
        assert self.ground is not None and self.what is not None
        self.calm()
        rehearsal = Rehearsal(self.ground, self.what, lambda _: None, self.dsn)
        with self._watch() as watch, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DBA_CONSOLE_RUNTIME", str(self.console.runtime))
            rehearsal.begin()
            afterwards = 0
            while afterwards <= AFTERWARDS_TICKS and rehearsal.recorded_s <= BUSY * self.what.within_s + 5:
                watch.next_frame(WAIT_S)
                afterwards += rehearsal.recorded_s > 0 and rehearsal.verdict().detected is not None
            return rehearsal.verdict()

    def raised(self, rule: str) -> Frame:
        """Wait until the agent has found it."""
        return self.frame(lambda frame: rule in open_rules(frame), f"the finding {rule}")

    def cleared(self, rule: str) -> Frame:
        """Wait until it is no longer found."""
        return self.frame(lambda frame: frame.judged and rule not in open_rules(frame), f"the end of {rule}")

    def headless(
        self, book: str, *confirmed: str, verb: str = "run", yes: bool = True, rows: Sequence[str] = (), **inputs: str
    ) -> Walk:
        """Walked with answers given beforehand, as STEP=TEXT; `rows` are `--choose=…` and `--leave-out=…`."""
        done = self.console.run(
            *self._words(verb, book, inputs), *(word for one in confirmed for word in ("--confirm", one)), *rows,
            *(["--yes"] if yes and verb == "run" else []), "--json", timeout=WAIT_S,
        )  # fmt: skip
        return Walk(done.code, objects(done.out), done.err)

    def person(self, book: str, answers: Mapping[str, Says], **inputs: str) -> Walk:
        """Walked by somebody who is asked. `answers` are by block, step or kind of question; `*` is for
        all others. What to do about a failure, and what to take back, is answered by kind only.

        Raises AssertionError where something is asked that has no answer.
        """
        words = [*self._words("run", book, inputs), "--plain", "--json"]
        with talking(self.console, words, patience_s=WAIT_S) as talk:
            events, surprises = _answered(talk, answers)
            code, err = talk.process.wait(WAIT_S), talk.stderr.read()
        assert not surprises, f"asked, and no answer given: {surprises}\n{events}"
        return Walk(code, events, err)

    def lines(self, book: str, **inputs: str) -> Tmux:
        """A terminal with the walk in it as lines of text."""
        script = '"$@"; echo "code=$?"; exec cat'
        command = self.console.command(*self._words("run", book, inputs), "--plain")
        environment = {**self.console.environ(), "TERM": "screen"}
        return Tmux(["sh", "-c", script, "sh", *command], columns=120, lines=120, environment=environment)

    @contextmanager
    def _watch(self) -> Iterator[Watch]:
        client = AgentClient.connect(self.socket, timeout_s=WAIT_S)
        try:
            yield Watch(client)
        finally:
            client.close()

    def _words(self, verb: str, book: str, inputs: Mapping[str, str]) -> list[str]:
        given = [word for name, value in inputs.items() for word in ("--input", f"{name}={value}")]
        return ["runbook", verb, book, "--dsn", self.dsn, *given]


def open_rules(frame: Frame) -> set[str]:
    """The rules whose findings are open at that moment, those within a chain too."""
    rows = frame.findings
    return {row.rule for row in rows} | {one.partition(":")[0] for row in rows for one in row.chain}


def objects(text: str) -> list[Event]:
    return [json.loads(line) for line in text.splitlines()]


def assert_named(verdict: IncidentVerdict) -> None:
    """The finding came in time by the times of the recording, and nothing else critical with it.

    In twice the time that is promised of a host that has nothing else to do: this one runs other tests beside.
    """
    late = f"{verdict.sentence()}; raised: {[event.text for event in verdict.findings]}"
    assert verdict.after_s is not None and verdict.after_s <= BUSY * verdict.within_s, late
    assert [event.text for event in verdict.others] == []


@contextmanager
def watched(dsn: str, interval: str = QUARTER) -> Iterator[Scene]:
    """A scene on any server: an agent watches it until the end of the block."""
    # pytest's own directories are too deep for the path of a socket.
    home = Path(tempfile.mkdtemp(prefix="dbac-book-"))
    console = Console(home, {"DBA_CONSOLE_AGENT_INTERVAL": interval})
    try:
        with recording(console, dsn) as agent:
            path, target = wait_until(lambda: _listening(console, agent), WAIT_S, what="the agent")
            yield Scene(console, dsn, target, path)
    finally:
        shutil.rmtree(home)


@contextmanager
def besieged(cluster: Cluster, dbname: str = "postgres", interval: str = QUARTER, **more: str) -> Iterator[Scene]:
    """A scene in a database whose owner has all of `pg_catalog` once more: at its end, nothing of that was called.

    Roles that exist when it begins find what they always did; `more` is for the connection string.
    """
    dsn = besiege(cluster, dbname)
    with watched(make_conninfo(dsn, **more), interval) as scene:
        yield scene
    assert calls(cluster) == []


@contextmanager
def incident(
    name: str | Incident,
    plan: LoadPlan | None = None,
    *,
    binaries: Binaries | None = None,
    interval: str = SECOND,
    durable: bool = False,
    hostile: bool = True,
) -> Iterator[Scene]:
    """The scene of an incident of the demo, which is not there yet unless it stands; `plan` is a smaller load.

    Unless told otherwise it is `besieged`, which makes the database slow to dump.

    Unless it is `durable`, sessions do not wait for the host's disks, which other tests keep busy: a stall of those
    would be one more critical finding.
    """
    what = find_incident(name) if isinstance(name, str) else name
    ground = PracticeGround(plan, binaries=binaries, incident=what)
    if not durable:
        ground.cluster.settings["fsync"] = "off"
    with ground, besieged(ground.cluster, DATABASE, interval) if hostile else watched(ground.dsn, interval) as scene:
        yield Scene(scene.console, scene.dsn, scene.target, scene.socket, ground, what)


def _listening(console: Console, agent: Agent) -> tuple[Path, str] | None:
    """The agent's socket and the name of its target, None while it does not answer yet."""
    agent.check()
    for path in console.runtime.glob("*.sock"):
        try:
            client = AgentClient.connect(path, role="show", timeout_s=WAIT_S)
        except ConnectError:
            continue
        client.close()
        return path, client.hello.target
    return None


def _answered(talk: Talk, answers: Mapping[str, Says]) -> tuple[list[Event], list[Event]]:
    """Everything the command said until it ended, and the questions nobody had an answer to."""
    events: list[Event] = []
    surprises: list[Event] = []
    for line in talk.stdout:
        event = json.loads(line)
        events.append(event)
        if event["event"] == "refused":
            surprises.append(event)
        if event["event"] != "question":
            continue
        try:
            said = None if surprises else _answer(event, answers)
        except Exception as error:  # the run is ended all the same: the next walk finds the agent free
            event, said = event | {"trouble": repr(error)}, None
        if said is None:
            surprises.append(event)
            said = "none" if event["kind"] == "undo" else "/abort nobody knows what to say"
        talk.stdin.write(said + "\n")
        talk.stdin.flush()
    return events, surprises


def _answer(event: Event, answers: Mapping[str, Says]) -> str | None:
    kind = event["kind"]
    trouble = kind in ("failed", "settle", "undo")  # whatever block it is about
    for place in (kind, "*") if trouble else (event.get("block"), event.get("step"), kind, "*"):
        says = answers.get(place) if place else None
        if says is not None:
            said = says if isinstance(says, str) else says()
            return str(event["expects"]) if said == ASKED else said
    return None
