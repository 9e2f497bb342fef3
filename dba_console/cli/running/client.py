"""The loop of a client without a screen: what the agent says and what is typed, one at a time, until one of them ends.

Input of a pipe is read only when something is asked, a line for each question: what was written before a question was
put is no answer to another one. A terminal is read all the time.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from dba_console.agent.client import ConnectionLost
from dba_console.agent.protocol import Request
from dba_console.cli.running.changes import Change
from dba_console.cli.running.party import Leave, Out, Party, Send, Tell
from dba_console.errors import ConnectError

SILENCE_S = 30.0
"""An agent ticks each second whatever hangs; one that says nothing for so long is stopped or gone."""
LINE_LIMIT = 1 << 16
"""Bytes of one typed line; more is no answer to anything."""


class Line(Protocol):
    """The connection to an agent (agent.client.AgentClient)."""

    def receive(self, timeout_s: float | None) -> object: ...
    def send(self, message: Request) -> None: ...
    def fileno(self) -> int: ...


class Keyboard:
    """Lines of a terminal or a pipe."""

    def __init__(self, descriptor: int, *, terminal: bool) -> None:
        self.descriptor, self.terminal = descriptor, terminal
        self.ended = False
        self._buffer = b""

    def wanted(self, party: Party) -> bool:
        """Whether to read now."""
        return not self.ended and (self.terminal or party.question is not None)

    def line_waits(self, party: Party) -> bool:
        """Whether something that has been read, or the end, may be taken now."""
        return (self.ended or b"\n" in self._buffer) and (self.terminal or party.question is not None)

    def line(self) -> str | None:
        """A whole line that has been read already."""
        line, end, rest = self._buffer.partition(b"\n")
        if not end and not (self.ended and line):
            return None
        self._buffer = rest
        return line.decode("utf-8", "replace")

    def read(self) -> None:
        """Read what there is; waits only where there is nothing."""
        data = os.read(self.descriptor, LINE_LIMIT)
        self.ended = not data
        self._buffer = (self._buffer + data)[-LINE_LIMIT:]


def follow(line: Line, party: Party, tell: Callable[[Change, int], None], keyboard: Keyboard | None) -> int:
    """Follow the run to its end, or until whoever sits here leaves; returns the exit code.

    Raises ConnectError where the agent goes away.
    """
    try:
        with ExitStack() as restore:
            return _follow(line, party, tell, keyboard, restore)
    except KeyboardInterrupt:
        return _act(line, party.gone("interrupt"), tell) or 0
    except ConnectionLost as lost:
        hint = f"`dba-console runbook resume {party.run}` goes on with it" if party.run else "run the command again"
        raise ConnectError(f"the agent went away: {lost}", hint=hint) from None


def _follow(
    line: Line, party: Party, tell: Callable[[Change, int], None], keyboard: Keyboard | None, restore: ExitStack
) -> int:
    hidden = False
    while True:
        for out in _heard(line, party):
            if (code := _act(line, [out], tell)) is not None:
                return code
        if keyboard is not None and keyboard.terminal and not hidden and _secret(party):
            restore.enter_context(_echo_off(keyboard.descriptor))
            hidden = True
        if keyboard is not None and (code := _take(line, party, tell, keyboard)) is not None:
            return code
        if hidden and not _secret(party):
            restore.pop_all().close()
            hidden = False
        if keyboard is not None and keyboard.line_waits(party):
            continue
        sources = [line.fileno(), *([keyboard.descriptor] if keyboard is not None and keyboard.wanted(party) else [])]
        ready = select.select(sources, [], [], SILENCE_S)[0]
        if not ready:
            raise ConnectError(f"the agent has said nothing for {SILENCE_S:.0f} s", hint="is it stopped (SIGSTOP)?")
        if keyboard is not None and keyboard.descriptor in ready:
            keyboard.read()


def _heard(line: Line, party: Party) -> Iterator[Out]:
    """Everything the agent has said so far."""
    while (message := line.receive(0)) is not None:
        yield from party.hear(message, time.time_ns() // 1000)


def _take(line: Line, party: Party, tell: Callable[[Change, int], None], keyboard: Keyboard) -> int | None:
    """A typed line, where there is one and it may be taken now."""
    if not keyboard.terminal and party.question is None:
        return None
    text = keyboard.line()
    if text is not None:
        return _act(line, party.typed(text), tell)
    if keyboard.ended:
        return _act(line, party.gone("eof"), tell)
    return None


def _act(line: Line, outs: list[Out], tell: Callable[[Change, int], None]) -> int | None:
    """Do what was said; the exit code where it is the end."""
    for out in outs:
        match out:
            case Tell(change):
                tell(change, time.time_ns() // 1000)
            case Send(request):
                line.send(request)
            case Leave(code):
                return int(code)
    return None


def _secret(party: Party) -> bool:
    return party.question is not None and party.question.secret


@contextmanager
def _echo_off(descriptor: int) -> Iterator[None]:
    """What is typed is not shown, as long as this lasts."""
    import termios

    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
