"""Shipped runbooks run by the real command, on a server in the state they are for.

    with incident("lock-queue", SMALL) as watched:
        assert_detected(watched.cause_and_judge())
        walk = watched.run_headless("lock-queue", "what-to-stop=ddl", ...)
        assert walk.code == 0
        watched.wait_until_cleared("lock-queue")

A watched server has an agent, and a console with directories of its own. `cause_and_judge` causes the incident and
returns the verdict of the recording. `run_headless` runs a runbook as a job does, with every answer given beforehand;
`run_interactively` answers each question; `open_lines` does the same at a terminal.

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
from dba_console.demo.incident_detection import IncidentVerdict, Rehearsal
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.registry import find_incident
from dba_console.demo.practice_server import PracticeGround
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.watch.frames.model import Frame
from tests.agent.agents import ConsoleClient
from tests.attacks.hostile_database import calls, make_hostile
from tests.background import wait_until
from tests.cli.console import Console
from tests.runbooks.forked_console import Agent, Dialog, dialog, recording_agent
from tests.terminal.tmux import Tmux

WAIT_S = 240.0
"""For every wait: the machine may be busy."""
BASELINE_TICKS = 3
"""Samples before an incident: the first one only shows the state the agent found."""
AFTERWARDS_TICKS = 3
"""Samples after the finding was raised: time for other findings to be raised too."""
EVERY_SECOND = "1s"
EVERY_QUARTER = "250ms"
SMALL = LoadPlan(clients=12, rate_per_s=60, idle=6, forgotten=False, scale=1)
"""A load that is enough for sessions to queue up, and no more."""

Event = dict[str, Any]
AnswerSource = str | Callable[[], str]
"""An answer, or a function that is called when the question comes and returns the answer."""
BUSY_FACTOR = 2
"""Factor on time limits, because other tests run at the same time."""
AS_ASKED = "="
"""Answers what the question asks to be typed."""


@dataclass(frozen=True)
class Walk:
    """The result of running a runbook: exit code, output as objects, and journal."""

    code: int
    events: list[Event]
    err: str

    @property
    def text(self) -> str:
        """All of its output."""
        return "\n".join([*(json.dumps(event, ensure_ascii=False) for event in self.events), self.err])

    @property
    def stored_run(self) -> StoredRun:
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
        return [one for one in self.stored_run.records if one.kind == kind and step in ("", one.step)]

    def rows(self, block: str) -> list[Event]:
        """The rows of a preview when it was read last."""
        seen = [one.fields["rows"] for one in self.records("block.seen") if one.block == block and "rows" in one.fields]
        return list(seen[-1])

    def done(self) -> list[str]:
        """The steps in which a change was made."""
        return [one.step for one in self.records("block.intent")]

    def unmet(self) -> list[str]:
        """The blocks whose check failed, was unknown, or was refused."""
        return [one.block for one in self.records("block.seen") if one.state == "failed"]

    def failed(self) -> list[str]:
        """The blocks whose change failed."""
        return [one.block for one in self.records("block.result") if one.state == "failed"]

    def states(self) -> dict[str, str]:
        """How each step ended."""
        return {one.step: one.state for one in self.records("step.ended")}


@dataclass(frozen=True)
class WatchedServer:
    """A watched server. `ground` and `incident` are set for the server of an incident."""

    console: Console
    dsn: str
    target: str
    socket: Path
    ground: PracticeGround | None = None
    incident: Incident | None = None

    @property
    def cluster(self) -> Cluster:
        assert self.ground is not None
        return self.ground.cluster

    def cause(self) -> None:
        """Cause the incident; return when its cause is present. Some incidents need a baseline first."""
        assert self.ground is not None and self.incident is not None
        self.incident.cause(self.ground)

    def end(self) -> None:
        """Undo the incident; it may be caused again."""
        assert self.ground is not None and self.incident is not None
        self.incident.end(self.ground)

    def stop_load(self) -> None:
        """Stop the load, so that no session is active or waits."""
        assert self.ground is not None
        self.ground.load.stop()
        wait_until(
            lambda: self.ground is not None and not self.ground.load.connected(), WAIT_S, what="the end of the load"
        )

    def start_load(self) -> None:
        """Start the load if it was stopped."""
        assert self.ground is not None
        if not self.ground.load.connected():
            self.ground.load.start()
            self.ground.wait_connected(WAIT_S)

    def sql(self, text: str) -> str:
        """Return what psql prints, in the watched database."""
        assert self.ground is not None
        return self.ground.cluster.psql(text, dbname=DATABASE)

    def frame(self, wanted: Callable[[Frame], object], what: str) -> Frame:
        """Return the first frame read from now on that `wanted` accepts."""
        patience, begun_us = time.monotonic() + WAIT_S, time.time_ns() // 1000
        with self._watch() as watch:
            while (frame := watch.next_frame(WAIT_S)).at_us < begun_us or not wanted(frame):
                assert time.monotonic() < patience, f"{what} did not come in {WAIT_S:g} s; last: {frame}"
            return frame

    def wait_for_baseline(self) -> None:
        """Give the agent some samples before anything is caused."""
        with self._watch() as watch:
            for _ in range(BASELINE_TICKS):
                watch.next_frame(WAIT_S)

    def cause_and_judge(self) -> IncidentVerdict:
        """Cause the incident after the baseline, and return the verdict of the recording.

        It is given a few samples after the finding was raised, or when the recording is too long for it to be in time.
        """
        assert self.ground is not None and self.incident is not None
        self.wait_for_baseline()
        rehearsal = Rehearsal(self.ground, self.incident, lambda _: None, self.dsn)
        with self._watch() as watch, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DBA_CONSOLE_RUNTIME", str(self.console.runtime))
            rehearsal.begin()
            afterwards = 0
            while afterwards <= AFTERWARDS_TICKS and rehearsal.recorded_s <= BUSY_FACTOR * self.incident.within_s + 5:
                watch.next_frame(WAIT_S)
                afterwards += rehearsal.recorded_s > 0 and rehearsal.verdict().detected is not None
            return rehearsal.verdict()

    def wait_until_raised(self, rule: str) -> Frame:
        """Wait until the agent has raised a finding of the rule."""
        return self.frame(lambda frame: rule in open_rules(frame), f"the finding {rule}")

    def wait_until_cleared(self, rule: str) -> Frame:
        """Wait until no finding of the rule is open."""
        return self.frame(lambda frame: frame.judged and rule not in open_rules(frame), f"the end of {rule}")

    def run_headless(
        self,
        runbook: str,
        *confirmed: str,
        verb: str = "run",
        yes: bool = True,
        rows: Sequence[str] = (),
        **inputs: str,
    ) -> Walk:
        """Run it with answers given beforehand, as STEP=TEXT; `rows` are `--choose=…` and `--leave-out=…`."""
        done = self.console.run(
            *self._arguments(verb, runbook, inputs), *(word for one in confirmed for word in ("--confirm", one)), *rows,
            *(["--yes"] if yes and verb == "run" else []), "--json", timeout=WAIT_S,
        )  # fmt: skip
        return Walk(done.code, objects(done.out), done.err)

    def run_interactively(self, runbook: str, answers: Mapping[str, AnswerSource], **inputs: str) -> Walk:
        """Run it and answer each question. `answers` are by block, step or kind of question; `*` is for
        all others. What to do about a failure, and what to take back, is answered by kind only.

        Raises AssertionError where something is asked that has no answer.
        """
        return self._converse([*self._arguments("run", runbook, inputs), "--plain", "--json"], answers)

    def resume_interactively(self, run: str, answers: Mapping[str, AnswerSource]) -> Walk:
        """Resume a run and answer each question, as above."""
        return self._converse(["runbook", "resume", run, "--plain", "--json"], answers)

    def _converse(self, words: list[str], answers: Mapping[str, AnswerSource]) -> Walk:
        with dialog(self.console, words, timeout_s=WAIT_S) as open_dialog:
            events, surprises = _answer_until_end(open_dialog, answers)
            code, err = open_dialog.process.wait(WAIT_S), open_dialog.stderr.read()
        assert not surprises, f"asked, and no answer given: {surprises}\n{events}"
        return Walk(code, events, err)

    def open_lines(self, runbook: str, **inputs: str) -> Tmux:
        """A terminal in which it runs as lines of text."""
        script = '"$@"; echo "code=$?"; exec cat'
        command = self.console.command(*self._arguments("run", runbook, inputs), "--plain")
        environment = {**self.console.environ(), "TERM": "screen"}
        return Tmux(["sh", "-c", script, "sh", *command], columns=120, lines=120, environment=environment)

    @contextmanager
    def _watch(self) -> Iterator[ConsoleClient]:
        client = AgentClient.connect(self.socket, timeout_s=WAIT_S)
        try:
            yield ConsoleClient(client)
        finally:
            client.close()

    def _arguments(self, verb: str, runbook: str, inputs: Mapping[str, str]) -> list[str]:
        given = [word for name, value in inputs.items() for word in ("--input", f"{name}={value}")]
        return ["runbook", verb, runbook, "--dsn", self.dsn, *given]


def open_rules(frame: Frame) -> set[str]:
    """The rules whose findings are open at that moment, those within a chain too."""
    rows = frame.findings
    return {row.rule for row in rows} | {one.partition(":")[0] for row in rows for one in row.chain}


def objects(text: str) -> list[Event]:
    return [json.loads(line) for line in text.splitlines()]


def assert_detected(verdict: IncidentVerdict) -> None:
    """The finding came in time by the times of the recording, and nothing else critical with it.

    In twice the time that is promised of a host that has nothing else to do: this one runs other tests beside.
    """
    late = f"{verdict.sentence()}; raised: {[event.text for event in verdict.findings]}"
    assert verdict.after_s is not None and verdict.after_s <= BUSY_FACTOR * verdict.within_s, late
    assert [event.text for event in verdict.others] == []


@contextmanager
def watched_server(dsn: str, interval: str = EVERY_QUARTER) -> Iterator[WatchedServer]:
    """Any server, watched by an agent until the end of the block."""
    # pytest's own directories are too deep for the path of a socket.
    home = Path(tempfile.mkdtemp(prefix="dbac-book-"))
    console = Console(home, {"DBA_CONSOLE_AGENT_INTERVAL": interval})
    try:
        with recording_agent(console, dsn) as agent:
            path, target = wait_until(lambda: _listening(console, agent), WAIT_S, what="the agent")
            yield WatchedServer(console, dsn, target, path)
    finally:
        shutil.rmtree(home)


@contextmanager
def hostile_server(
    cluster: Cluster, dbname: str = "postgres", interval: str = EVERY_QUARTER, **more: str
) -> Iterator[WatchedServer]:
    """A watched database whose owner has a copy of all of `pg_catalog`; at the end none of its functions was called.

    Roles that exist when it begins find what they always did; `more` is for the connection string.
    """
    dsn = make_hostile(cluster, dbname)
    with watched_server(make_conninfo(dsn, **more), interval) as watched:
        yield watched
    assert calls(cluster) == []


@contextmanager
def incident(
    name: str | Incident,
    plan: LoadPlan | None = None,
    *,
    binaries: Binaries | None = None,
    interval: str = EVERY_SECOND,
    durable: bool = False,
    hostile: bool = True,
) -> Iterator[WatchedServer]:
    """The watched server of a demo incident, not caused yet unless present at start; `plan` is a smaller load.

    With `hostile` it is a `hostile_server`, which makes the database slow to dump.

    Unless it is `durable`, sessions do not wait for the host's disks, which other tests keep busy: a stall of those
    would be one more critical finding.
    """
    chosen = find_incident(name) if isinstance(name, str) else name
    ground = PracticeGround(plan, binaries=binaries, incident=chosen)
    if not durable:
        ground.cluster.settings["fsync"] = "off"
    with (
        ground,
        hostile_server(ground.cluster, DATABASE, interval)
        if hostile
        else watched_server(ground.dsn, interval) as watched,
    ):
        yield WatchedServer(watched.console, watched.dsn, watched.target, watched.socket, ground, chosen)


def _listening(console: Console, agent: Agent) -> tuple[Path, str] | None:
    """The agent's socket and the name of its target, None while it does not answer yet."""
    agent.check()
    for path in console.runtime.glob("*.sock"):
        try:
            client = AgentClient.connect(path, role="show", timeout_s=WAIT_S)
        except ConnectError:
            continue
        client.close()
        return path, client.agent_description.target
    return None


def _answer_until_end(open_dialog: Dialog, answers: Mapping[str, AnswerSource]) -> tuple[list[Event], list[Event]]:
    """Return all events until the command ended, and the questions without an answer."""
    events: list[Event] = []
    surprises: list[Event] = []
    for line in open_dialog.stdout:
        event = json.loads(line)
        events.append(event)
        if event["event"] == "refused":
            surprises.append(event)
        if event["event"] != "question":
            continue
        try:
            text = None if surprises else _answer(event, answers)
        except Exception as error:  # the run is ended, so that the agent is free for the next one
            event, text = event | {"trouble": repr(error)}, None
        if text is None:
            surprises.append(event)
            text = "none" if event["kind"] == "undo" else "/abort no answer given"
        open_dialog.stdin.write(text + "\n")
        open_dialog.stdin.flush()
    return events, surprises


def _answer(event: Event, answers: Mapping[str, AnswerSource]) -> str | None:
    kind = event["kind"]
    trouble = kind in ("failed", "settle", "undo")  # whatever block it is about
    for place in (kind, "*") if trouble else (event.get("block"), event.get("step"), kind, "*"):
        source = answers.get(place) if place else None
        if source is not None:
            text = source if isinstance(source, str) else source()
            return str(event["expects"]) if text == AS_ASKED else text
    return None
