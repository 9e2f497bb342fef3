"""A run from its request to its exit code: finds or starts the agent, asks it, follows what comes."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct

from dba_console.agent.client import AgentClient
from dba_console.agent.launch import begin
from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.cli.running.answers import Answers
from dba_console.cli.running.client import Keyboard, follow
from dba_console.cli.running.party import Party
from dba_console.cli.running.telling import teller
from dba_console.config import Config
from dba_console.errors import ConsoleError, ExitCode
from dba_console.session.runread import read_run
from dba_console.target import Target


class Manner(Struct, frozen=True, kw_only=True):
    """How this client behaves."""

    answers: Answers
    plain: bool = False
    """Asked for as lines of text: what is written to standard input answers."""
    json: bool = False

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask: at a terminal, or whoever said so and gave no answers beforehand."""
        return sys.stdin.isatty() or (self.plain and not self.answers.any)


def conduct(target: Target, config: Config, request: RunBegin | RunResume | RunWatch, manner: Manner) -> int:
    """Ask the agent of the target for the run, starting one where none runs, and follow it. Returns the exit code.

    Raises ConnectError where there is no agent to be had, or it goes away.
    """
    path = begin(target, config).wait()
    client = AgentClient.connect(path)
    party = Party(
        manner.answers, asks=manner.asks, run="" if isinstance(request, RunBegin) else request.run, every=manner.json
    )
    keyboard = Keyboard(sys.stdin.fileno(), terminal=sys.stdin.isatty()) if manner.asks else None
    try:
        client.send(request)
        code = follow(client, party, teller(json=manner.json), keyboard)
    finally:
        client.close()
    if code == ExitCode.RUNBOOK_FAILED and party.view is not None and refused(Path(party.view.directory)):
        return ExitCode.REFUSED
    return code


def refused(directory: Path) -> bool:
    """Whether the run failed because the gate said no to its last act."""
    try:
        records = read_run(directory).records
    except ConsoleError:
        return False
    ends = [record for record in records if record.kind in ("block.result", "block.settled")]
    return bool(ends) and ends[-1].state == "refused"
