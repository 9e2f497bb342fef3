"""Cutovers of the practice cluster with something killed in their middle, and what has to hold when they have ended."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dba_console.agent.client import AgentConnectionLost
from dba_console.core.errors import ConnectError
from dba_console.demo.practice_cluster import NAME, PracticeCluster
from dba_console.demo.server_account import clean_environment
from dba_console.recording.run_reader import read_run
from dba_console.runbooks.parse import slug
from dba_console.runbooks.run_view import Question
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.agent_that_kills_itself import DIES, KILLS
from tests.agent.runs.scripted_console import Operator
from tests.background import wait_until
from tests.requirements import require_tool
from tests.sshd import NAME as SSH_NAME
from tests.sshd import Sshd

RUNBOOK = Path(__file__).resolve().parents[2] / "runbooks" / "cutover.md"
SELF_KILLING_AGENT = "tests.agent.runs.agent_that_kills_itself"
RETRIES = 5
"""Times a failed block is tried again before the run is aborted."""
RUN_S = 600.0
"""Limit for a whole cutover: on a machine with a load average of 60, one took more than two minutes."""
HOLD, PROMOTE = "hold-the-clients-and-stop-the-old-primary", "promote"
SHOW = "show-the-cluster"


def _steps_of_actions() -> dict[str, tuple[str, int]]:
    """As the runbook has them on its usual way: step, and the number of the act within it."""
    found: dict[str, tuple[str, int]] = {}
    for heading, text in re.findall(r"(?ms)^## ([^{\n]*).*?\n(.*?)(?=^## |\Z)", RUNBOOK.read_text()):
        step = slug(heading.strip())
        acts = [one for one in re.findall(r"\{action cutover-([\w-]+)", text) if one != "hooks"]
        for number, act in enumerate(acts, 1):
            found["report" if act in found and act == "heartbeat" else act] = (step, number)
        if {"rejoin", "follow"} & set(acts) and {"rejoin", "follow"} <= found.keys():
            break  # what follows is for an old primary that does not
    del found["begin"]
    return {**found, "show": (SHOW, 1)}


STEPS_OF_ACTIONS = _steps_of_actions()
"""The acts of the runbook. Hooks are skipped where none are configured."""


_SELF_KILLING_SSH = """#!/bin/sh
case "$*" in
*"$(cat {when} 2>/dev/null || echo never)"*) rm {when} ;;
*) exec {ssh} ;;
esac
{ssh} <&0 &
sleep 0.05
kill -9 $! $$
"""
"""The first command that has the words in the file is killed on its way."""


_OF_THE_RUN = {"heartbeat": "heartbeat_process", "keeper": "dba_console.keeper"}
"""Processes with files of the run open: words of their command line."""
_KILL_OF_THE_RUN = """
(
for _ in $(seq 500); do
    for process in $(grep -laF {words} /proc/[0-9]*/cmdline 2>/dev/null); do
        process=${{process%/cmdline}}
        if ls -l "$process/fd" 2>/dev/null | grep -qF "{place}/"; then
            kill -9 "${{process#/proc/}}" && touch {place}/killed && exit
        fi
    done
    sleep 0.01
done
) >/dev/null 2>&1 &
"""
"""In the background: a keeper starts only after the act has begun."""


class Kill(NamedTuple):
    """What is killed, and when: at the `begin` of an act, its intent on the disk and nothing of it done; at its `end`,
    when it is done and its result is not recorded."""

    victim: str
    """agent, console, pooler, heartbeat (the process), keeper (of the command that the act runs), or ssh: a command of
    the act on its way, at the end all connections."""
    act: str
    when: str = "begin"

    @property
    def record(self) -> str:
        """As tests.agent.runs.agent_that_kills_itself reads it."""
        step, number = STEPS_OF_ACTIONS[self.act]
        return f"{'after:block.intent' if self.when == 'begin' else 'before:block.result'}:{step}:{number}"

    def __str__(self) -> str:
        return f"{self.victim} at the {self.when} of {self.act}"


class EndedRun(NamedTuple):
    """How a run came to its end: its state, what it asked, and the records of its journal."""

    state: str
    asked: list[str]
    records: list[str]

    def __str__(self) -> str:
        return "\n".join([self.state, *self.asked, *self.records])


class CutoverTrials:
    """One practice cluster through any number of cutovers."""

    def __init__(self, ground: PracticeCluster, directory: Path, ssh: Sshd | None = None) -> None:
        self.ground, self._place, self._over, self._number = ground, directory, ssh, 0
        # No server is watched: the run reaches its nodes by its own connections.
        self._dsn = f"host={directory} port=1 user=nobody dbname=none"
        self._environment = dict(ground.environment)
        if ssh is not None:
            config = directory / "over-ssh.toml"
            config.touch(mode=0o600)
            config.write_text(
                re.sub("(?m)^(control|config) =", f'ssh = "{SSH_NAME}"\n\\1 =', ground.config_file.read_text())
            )
            self._environment["DBA_CONSOLE_CONFIG"] = str(config)
            self._dies_with = directory / "next"
            wrapper = ssh.bin / "ssh"
            command = wrapper.read_text().splitlines()[1].removeprefix("exec ")
            wrapper.write_text(_SELF_KILLING_SSH.format(when=self._dies_with, ssh=command))

    def cut_over(self, *kills: Kill) -> EndedRun:
        """From the primary to the next node. An agent that was killed is followed by another one, which resumes the
        run and meets the next kill."""
        names = list(self.ground.nodes)
        to = names[(names.index(self.primary()) + 1) % len(names)]
        self._number += 1
        place = self._place / f"run-{self._number}"
        place.mkdir()
        answers, state = _RetryingAnswers(), None
        lives: list[Kill | None] = [*kills, None]
        while state is None:
            state = self._run_agent(place, lives.pop(0), to, answers)
        assert len(lives) == (1 if kills and kills[-1].victim != "agent" else 0), f"not all were killed: {kills}"
        [journal] = (place / "sessions").glob("*/runs/*/journal.jsonl")
        return EndedRun(state, answers.asked, [f"{one.kind} {one.text}" for one in read_run(journal.parent).records])

    def _run_agent(self, directory: Path, kill: Kill | None, to: str, answers: _RetryingAnswers) -> str | None:
        """One agent, to the end of the run (its state) or its own (None)."""
        extra, script = dict(self._environment), directory / "kill.sh"
        if kill is not None:
            extra[DIES] = kill.record
            if kill.victim != "agent":
                extra[KILLS] = str(script)
                script.write_text(self._killing(kill, directory))
        pooled = self._pooler_pid()
        program = "dba_console" if kill is None else SELF_KILLING_AGENT
        with agent(self._dsn, directory, extra=extra, program=program) as running:
            try:
                if kill is not None and kill.victim == "console":
                    self._killed_console(running, to, script)
                state = self._run_to_end(running, to, answers)
            except (AgentConnectionLost, ConnectError):
                assert kill is not None and kill.victim == "agent", running.errors()
                return None
        if kill is not None:
            self._assert_killed(kill, directory, pooled)
        return state

    def _assert_killed(self, kill: Kill, place: Path, pooled: int | None) -> None:
        """Nobody waits for the end of what was killed: a pooler may still be named by its pid file."""
        if kill.victim == "pooler":
            wait_until(lambda: self._pooler_pid() not in (None, pooled), what="the pooler started again")
        elif kill.victim in _OF_THE_RUN:
            assert (place / "killed").exists(), f"no {kill.victim} process was found"
        elif kill.victim == "ssh" and kill.when == "begin":
            assert not self._dies_with.exists(), "no command came over ssh"

    def _killing(self, kill: Kill, place: Path) -> str:
        """What kills it, for the shell."""
        if kill.victim in _OF_THE_RUN:
            return _KILL_OF_THE_RUN.format(place=place, words=_OF_THE_RUN[kill.victim])
        if kill.victim != "ssh":
            return f"kill -9 {self._pooler_pid()}\n"
        assert self._over is not None
        self._dies_with.unlink(missing_ok=True)
        if kill.when == "begin":
            words = "pg_ctl" if kill.act in ("stop", "rejoin") else " -- "
            return f"echo '{words}' >{self._dies_with}\n"
        return f"sessions=$(cat /proc/{self._over.pid}/task/{self._over.pid}/children)\nkill -9 ${{sessions:-$$}}\n"

    def _pooler_pid(self) -> int | None:
        assert self.ground.pooler is not None
        return self.ground.pooler.pid

    def _run_to_end(self, running: RunningAgent, to: str, answers: _RetryingAnswers) -> str:
        operator = Operator.of(running)
        try:
            if not any((running.directory / "sessions").glob("*/runs/*/journal.jsonl")):
                operator.begin(RUNBOOK.read_text(), {"cluster": NAME, "to": to})
            else:
                view = operator.until(lambda: operator.view is not None, "the run")
                if view.state == "interrupted":
                    operator.resume(view.run)
                else:
                    operator.control("take")
            return operator.walk(answers, RUN_S).state
        finally:
            operator.close()

    def _killed_console(self, running: RunningAgent, to: str, script: Path) -> None:
        """Walk the runbook from the command line until that process is killed."""
        command = [sys.executable, "-m", "dba_console", "runbook", "run", "cutover", "--dsn", self._dsn, "--yes"]
        command += ["--input", f"cluster={NAME}", "--input", f"to={to}", "--confirm", f"promote={to}"]
        command += ["--confirm", f"{HOLD}=yes"]
        running.socket()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        script.write_text(f"kill -9 {process.pid}\n")
        text = process.communicate(timeout=RUN_S)[0].decode()
        assert process.returncode == -9, f"the console ended with {process.returncode}: {text}"

    # -- what is left --------------------------------------------------------------------------------------------

    def primary(self) -> str:
        """The one node that takes writes."""
        [name] = wait_until(lambda: [name for name, node in self.ground.nodes.items() if node.is_primary()])
        return name

    def assert_whole(self, ended: EndedRun) -> None:
        """One primary, all others stream from it, clients write, nothing acknowledged is lost or there twice."""
        primary = self.ground.nodes[self.primary()]
        others = len(self.ground.nodes) - 1
        streaming = "select count(*) from pg_stat_replication where state = 'streaming'"
        wait_until(lambda: primary.psql(streaming) == str(others), what=f"{others} standbys that follow\n{ended}")
        assert primary.psql("select datname from pg_database where datconnlimit <> -1") == "", ended
        before = self.acknowledged()
        wait_until(lambda: self.acknowledged() > before + 20, what=f"commits after it\n{ended}")
        found = self.ground.verdict()
        assert found.all_kept, f"{found.sentence()}\n{ended}"

    def acknowledged(self) -> int:
        return sum(path.read_text().count("acked") for path in self.ground.ledger.glob("client-*.ledger"))


class _RetryingAnswers:
    """Says yes, and tries again what failed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, asked: Question) -> str | None:
        self.asked.append(f"{asked.kind} {asked.block}: {asked.text}")
        if asked.kind == "ack":
            return "y"
        if asked.kind == "failed":
            tries = sum(one.startswith(f"failed {asked.block}:") for one in self.asked)
            return "retry" if tries <= RETRIES else "abort"
        if asked.kind == "settle":  # the command of a keeper that was killed
            return "ok it only reads"
        return asked.expects or "yes"


@contextmanager
def supervised(ground: PracticeCluster) -> Iterator[None]:
    """Start the pooler again whenever it has ended, as a service manager does."""
    pooler, program = ground.pooler, require_tool("pgbouncer")
    assert pooler is not None
    pooler.stop()
    ssh = threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def supervise() -> None:
        while not ssh.is_set():
            process = subprocess.Popen(
                [program, "-q", str(pooler.config)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd="/", env=clean_environment(), **ground.first_node.account.spawn,
            )  # fmt: skip
            started.append(process)
            process.wait()

    thread = threading.Thread(target=supervise, daemon=True)
    thread.start()
    try:
        wait_until(lambda: pooler.pid, what="the pooler")
        yield
    finally:
        ssh.set()
        started[-1].kill()
        thread.join(10)
