"""Request a run from the agent and follow it to its exit code, without a screen."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.find_or_start import should_replace, start_agent
from dba_console.agent.protocol import Request, RunBegin, RunResume, RunViewMessage, RunWatch
from dba_console.cli.attach import open_agent
from dba_console.cli.running.answers import GivenAnswers
from dba_console.cli.running.changes import RunChange, print_change, print_change_as_json
from dba_console.cli.running.run_client import ExitClient, Reaction, RunClient, SendRequest, ShowChange
from dba_console.core.config import Config
from dba_console.core.errors import ConnectError, ExitCode
from dba_console.core.target import Target
from dba_console.recording.run_reader import last_act_refused

# The loop of a client without a screen: messages of the agent and input lines, one at a time, until either ends.
#
# A pipe is read only while a question is open, one line per question, so that a line written before a question cannot
# answer it. A terminal is always read.

AGENT_TIMEOUT_S = 30.0
"""An agent ticks each second whatever hangs; one without messages for this long is stopped or gone."""
MAX_LINE_BYTES = 1 << 16
"""Bytes of one input line; no answer is longer."""


class AgentConnection(Protocol):
    """The connection to an agent (agent.client.AgentClient)."""

    def receive(self, timeout_s: float | None) -> object: ...
    def send(self, message: Request) -> None: ...
    def fileno(self) -> int: ...


class Keyboard:
    """Input lines from a terminal or a pipe."""

    def __init__(self, descriptor: int, *, terminal: bool) -> None:
        self.descriptor, self.terminal = descriptor, terminal
        self.at_end = False
        self._buffer = b""

    def should_read(self, client: RunClient) -> bool:
        """Return whether to read now."""
        return not self.at_end and (self.terminal or client.question is not None)

    def has_line(self, client: RunClient) -> bool:
        """Return whether a complete line, or the end of input, can be processed now."""
        return (self.at_end or b"\n" in self._buffer) and (self.terminal or client.question is not None)

    def next_line(self) -> str | None:
        """Return the next complete line that was read."""
        line, end, rest = self._buffer.partition(b"\n")
        if not end and not (self.at_end and line):
            return None
        self._buffer = rest
        return line.decode("utf-8", "replace")

    def early_lines(self) -> Iterator[str]:
        """Yield the lines that a terminal has now: what was typed or pasted before a question does not answer it."""
        while self.terminal and not self.at_end and _has_complete_line(self.descriptor):
            self.read()
        while self.terminal and b"\n" in self._buffer and (line := self.next_line()) is not None:
            yield line

    def read(self) -> None:
        """Read available input; blocks if there is none."""
        data = os.read(self.descriptor, MAX_LINE_BYTES)
        self.at_end = not data
        self._buffer = (self._buffer + data)[-MAX_LINE_BYTES:]


def _has_complete_line(descriptor: int) -> bool:
    """Whether a terminal has a complete line; one that is being edited does not count (n_tty.c, inq_canon)."""
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    return bool(count)


def follow(
    connection: AgentConnection, client: RunClient, show: Callable[[RunChange, int], None], keyboard: Keyboard | None
) -> int:
    """Follow the run to its end, or until the operator leaves; returns the exit code.

    Raises ConnectError if the connection to the agent is lost.
    """
    try:
        with ExitStack() as restore:
            return _follow(connection, client, show, keyboard, restore)
    except KeyboardInterrupt:
        return _perform(connection, client.leave(), show) or 0
    except AgentConnectionLost as lost:
        hint = f"resume it with `dba-console runbook resume {client.run}`" if client.run else "run the command again"
        raise ConnectError(f"lost the connection to the agent: {lost}", hint=hint) from None


def _follow(
    connection: AgentConnection,
    client: RunClient,
    show: Callable[[RunChange, int], None],
    keyboard: Keyboard | None,
    restore: ExitStack,
) -> int:
    hidden, asked = False, 0
    while True:
        for reaction in _received(connection, client):
            if (code := _perform(connection, [reaction], show)) is not None:
                return code
        if keyboard is not None and client.question is not None and client.question.id != asked:
            asked = client.question.id
            for line in keyboard.early_lines():
                if (code := _perform(connection, client.handle_early_line(line), show)) is not None:
                    return code
        if keyboard is not None and keyboard.terminal and not hidden and _asks_secret(client):
            restore.enter_context(_echo_off(keyboard.descriptor))
            hidden = True
        if keyboard is not None and (code := _handle_line(connection, client, show, keyboard)) is not None:
            return code
        if hidden and not _asks_secret(client):
            restore.pop_all().close()
            hidden = False
        if keyboard is not None and keyboard.has_line(client):
            continue
        sources = [
            connection.fileno(),
            *([keyboard.descriptor] if keyboard is not None and keyboard.should_read(client) else []),
        ]
        ready = select.select(sources, [], [], AGENT_TIMEOUT_S)[0]
        if not ready:
            raise ConnectError(
                f"no message from the agent for {AGENT_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?"
            )
        if keyboard is not None and keyboard.descriptor in ready:
            keyboard.read()


def _received(connection: AgentConnection, client: RunClient) -> Iterator[Reaction]:
    """Yield the reactions to all messages received so far."""
    while (message := connection.receive(0)) is not None:
        yield from client.receive(message, time.time_ns() // 1000)


def _handle_line(
    connection: AgentConnection, client: RunClient, show: Callable[[RunChange, int], None], keyboard: Keyboard
) -> int | None:
    """Process an input line if there is one and it may be processed now."""
    if not keyboard.terminal and client.question is None:
        return None
    text = keyboard.next_line()
    if text is not None:
        return _perform(connection, client.handle_line(text), show)
    if keyboard.at_end:
        return _perform(connection, client.leave(), show)
    return None


def _perform(
    connection: AgentConnection, reactions: list[Reaction], show: Callable[[RunChange, int], None]
) -> int | None:
    """Perform the reactions; return the exit code if one of them is the end."""
    for reaction in reactions:
        match reaction:
            case ShowChange(change):
                show(change, time.time_ns() // 1000)
            case SendRequest(request):
                connection.send(request)
            case ExitClient(code):
                return int(code)
    return None


def _asks_secret(client: RunClient) -> bool:
    return client.question is not None and client.question.secret


@contextmanager
def _echo_off(descriptor: int) -> Iterator[None]:
    """Turn off the terminal's echo."""
    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


FIND_RUN_TIMEOUT_S = 60.0


class RunClientOptions(Struct, frozen=True, kw_only=True):
    """Options of the run client."""

    answers: GivenAnswers
    plain: bool = False
    """Text lines were requested: standard input answers."""
    json: bool = False

    @property
    def on_screen(self) -> bool:
        """Return whether to use the screen: a terminal on both sides, and no option that asks for lines."""
        lines = self.plain or self.json or self.answers.is_given
        return not lines and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def can_ask(self) -> bool:
        """Return whether an operator can be asked: at a terminal, or with --plain and no answers given."""
        return sys.stdin.isatty() or (self.plain and not self.answers.is_given)


def request_and_follow(
    target: Target, config: Config, request: RunBegin | RunResume | RunWatch, options: RunClientOptions
) -> int:
    """Request the run from the target's agent, starting an agent if none runs, and follow it. Returns the exit code.

    Raises ConnectError if there is no agent, or if the connection to it is lost.
    """
    launch = start_agent(target, config, replace=True)
    if options.on_screen:
        return open_agent(launch.wait, lambda: start_agent(target, config).wait(), target.name, config, request)
    client = AgentClient.connect(launch.wait())
    if should_replace(client.agent_description, target.conninfo):
        pid = client.agent_description.pid
        print(
            f"warning: PostgreSQL refuses the login of the running agent (pid {pid}), which was started with other "
            f"credentials\nhint: end it with `kill {pid}`, then run the command again",
            file=sys.stderr,
        )
    run_client = RunClient(
        options.answers,
        can_ask=options.can_ask,
        run="" if isinstance(request, RunBegin) else request.run,
        every_change=options.json,
        other_runs=[one.run for one in client.agent_description.runs],
    )
    keyboard = Keyboard(sys.stdin.fileno(), terminal=sys.stdin.isatty()) if options.can_ask else None
    try:
        if isinstance(request, RunResume):
            _wait_for_run(client, request.run)
        client.send(request)
        code = follow(client, run_client, print_change_as_json if options.json else print_change, keyboard)
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
    """Wait until the agent has found the run; a new agent searches for interrupted runs in the background.

    Returns after FIND_RUN_TIMEOUT_S anyway; the agent then reports that there is no such run. Raises ConnectError.
    """
    if any(one.run == run for one in client.agent_description.runs):
        return
    until = time.monotonic() + FIND_RUN_TIMEOUT_S
    try:
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, RunViewMessage) and message.view.run == run:
                return
    except AgentConnectionLost as lost:
        raise ConnectError(f"lost the connection to the agent: {lost}", hint="run the command again") from None
