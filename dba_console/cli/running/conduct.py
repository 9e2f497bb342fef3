"""A run from its request to its exit code: finds or starts the agent, asks it, follows what comes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from msgspec import Struct

from dba_console.agent.client import AgentClient, ConnectionLost
from dba_console.agent.launch import start_agent
from dba_console.agent.protocol import RunBegin, RunResume, RunViewMessage, RunWatch
from dba_console.agent.replace_agent import should_replace
from dba_console.cli.running.answers import Answers
from dba_console.cli.running.client import Keyboard, follow
from dba_console.cli.running.party import Party
from dba_console.cli.running.telling import teller
from dba_console.cli.screen import open_agent
from dba_console.config import Config
from dba_console.errors import ConnectError, ExitCode
from dba_console.session.run_reader import last_act_refused
from dba_console.target import Target

FINDING_S = 60.0


class Manner(Struct, frozen=True, kw_only=True):
    """How this client behaves."""

    answers: Answers
    plain: bool = False
    """Asked for as lines of text: what is written to standard input answers."""
    json: bool = False

    @property
    def screen(self) -> bool:
        """Whether the run belongs on the screen: a terminal on both sides, and nothing said that wants lines."""
        lines = self.plain or self.json or self.answers.any
        return not lines and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask: at a terminal, or whoever said so and gave no answers beforehand."""
        return sys.stdin.isatty() or (self.plain and not self.answers.any)


def conduct(target: Target, config: Config, request: RunBegin | RunResume | RunWatch, manner: Manner) -> int:
    """Ask the agent of the target for the run, starting one where none runs, and follow it. Returns the exit code.

    Raises ConnectError where there is no agent to be had, or it goes away.
    """
    launch = start_agent(target, config, replace=True)
    if manner.screen:
        return open_agent(launch.wait, lambda: start_agent(target, config).wait(), target.name, config, request)
    client = AgentClient.connect(launch.wait())
    if should_replace(client.hello, target.conninfo):
        print(
            f"warning: PostgreSQL refuses the login of the agent that runs (pid {client.hello.pid}), which was started "
            f"with other credentials\nhint: end it with `kill {client.hello.pid}`, then run the command again",
            file=sys.stderr,
        )
    party = Party(
        manner.answers,
        asks=manner.asks,
        run="" if isinstance(request, RunBegin) else request.run,
        every=manner.json,
        others=[one.run for one in client.hello.runs],
    )
    keyboard = Keyboard(sys.stdin.fileno(), terminal=sys.stdin.isatty()) if manner.asks else None
    try:
        if isinstance(request, RunResume):
            _until_known(client, request.run)
        client.send(request)
        code = follow(client, party, teller(json=manner.json), keyboard)
    finally:
        client.close()
    if code == ExitCode.RUNBOOK_FAILED and party.view is not None and last_act_refused(Path(party.view.directory)):
        return ExitCode.REFUSED
    return code


def _until_known(client: AgentClient, run: str) -> None:
    """Wait until the agent has found the run: one that has just been started looks for them beside everything else.

    Returns all the same after FINDING_S; the agent then says that there is none. Raises ConnectError.
    """
    if any(one.run == run for one in client.hello.runs):
        return
    until = time.monotonic() + FINDING_S
    try:
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, RunViewMessage) and message.view.run == run:
                return
    except ConnectionLost as lost:
        raise ConnectError(f"the agent went away: {lost}", hint="run the command again") from None
