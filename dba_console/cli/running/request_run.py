"""A run from its request to its exit code: finds or starts the agent, asks it, follows what comes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from msgspec import Struct

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.launch import start_agent
from dba_console.agent.protocol import RunBegin, RunResume, RunViewMessage, RunWatch
from dba_console.agent.replace_agent import should_replace
from dba_console.cli.open_screen import open_agent
from dba_console.cli.running.answers import GivenAnswers
from dba_console.cli.running.change_output import change_printer
from dba_console.cli.running.client_loop import Keyboard, follow
from dba_console.cli.running.run_client import RunClient
from dba_console.config import Config
from dba_console.errors import ConnectError, ExitCode
from dba_console.session.run_reader import last_act_refused
from dba_console.target import Target

FIND_RUN_TIMEOUT_S = 60.0


class RunClientOptions(Struct, frozen=True, kw_only=True):
    """How this client behaves."""

    answers: GivenAnswers
    plain: bool = False
    """Asked for as lines of text: what is written to standard input answers."""
    json: bool = False

    @property
    def on_screen(self) -> bool:
        """Whether the run belongs on the screen: a terminal on both sides, and nothing said that wants lines."""
        lines = self.plain or self.json or self.answers.is_given
        return not lines and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask: at a terminal, or whoever said so and gave no answers beforehand."""
        return sys.stdin.isatty() or (self.plain and not self.answers.is_given)


def request_and_follow(
    target: Target, config: Config, request: RunBegin | RunResume | RunWatch, options: RunClientOptions
) -> int:
    """Ask the agent of the target for the run, starting one where none runs, and follow it. Returns the exit code.

    Raises ConnectError where there is no agent to be had, or it goes away.
    """
    launch = start_agent(target, config, replace=True)
    if options.on_screen:
        return open_agent(launch.wait, lambda: start_agent(target, config).wait(), target.name, config, request)
    client = AgentClient.connect(launch.wait())
    if should_replace(client.hello, target.conninfo):
        print(
            f"warning: PostgreSQL refuses the login of the agent that runs (pid {client.hello.pid}), which was started "
            f"with other credentials\nhint: end it with `kill {client.hello.pid}`, then run the command again",
            file=sys.stderr,
        )
    run_client = RunClient(
        options.answers,
        can_ask=options.can_ask,
        run="" if isinstance(request, RunBegin) else request.run,
        every_change=options.json,
        other_runs=[one.run for one in client.hello.runs],
    )
    keyboard = Keyboard(sys.stdin.fileno(), terminal=sys.stdin.isatty()) if options.can_ask else None
    try:
        if isinstance(request, RunResume):
            _wait_for_run(client, request.run)
        client.send(request)
        code = follow(client, run_client, change_printer(json=options.json), keyboard)
    finally:
        client.close()
    if (
        code == ExitCode.RUNBOOK_FAILED
        and run_client.view is not None
        and last_act_refused(Path(run_client.view.directory))
    ):
        return ExitCode.REFUSED
    return code


def _wait_for_run(client: AgentClient, run: str) -> None:
    """Wait until the agent has found the run: one that has just been started looks for them beside everything else.

    Returns all the same after FINDING_S; the agent then says that there is none. Raises ConnectError.
    """
    if any(one.run == run for one in client.hello.runs):
        return
    until = time.monotonic() + FIND_RUN_TIMEOUT_S
    try:
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, RunViewMessage) and message.view.run == run:
                return
    except AgentConnectionLost as lost:
        raise ConnectError(f"the agent went away: {lost}", hint="run the command again") from None
