"""The loop of a client without a screen, on a real socket, a real pipe and a real terminal."""

from __future__ import annotations

import os
import pty
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs

from dba_console.agent.client import AgentClient
from dba_console.agent.protocol import (
    PROTOCOL,
    AgentDescription,
    Deframer,
    Message,
    RunAnswer,
    RunControl,
    RunViewMessage,
    pack,
)
from dba_console.cli.running.answers import GivenAnswers
from dba_console.cli.running.changes import RunChange
from dba_console.cli.running.request_run import Keyboard, follow
from dba_console.cli.running.run_client import RunClient, SendRequest, ShowChange
from dba_console.core.errors import ConnectError
from dba_console.runbooks.run_view import Question, RunView
from tests.background import wait_until
from tests.walkthrough.sample_views import DROP, ENDED, TYPED

START = Question(id=1, kind="start", text="Start?")
SECRET = Question(id=3, kind="input", text="The password?", secret=True)
PLANNED = structs.replace(DROP, state="planned", question=START)
DESCRIPTION = AgentDescription(
    protocol=PROTOCOL, version="0", pid=1, boot="b", target="db2", key="k", session=None, started_us=0, interval_s=1.0,
    grace_s=None, consoles=1, hostname="db2",
)  # fmt: skip
WAIT_S = 60.0


class Agent:
    """The agent's end of the socket: sends scripted messages, receives requests."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(WAIT_S)
        self.client = AgentClient(theirs, DESCRIPTION, Deframer(), [])
        self._deframer = Deframer()
        self.heard: list[Message] = []

    def view(self, view: RunView) -> None:
        asked = view.question is not None
        self._ours.sendall(pack(RunViewMessage(view=view, yours=True, may_answer=asked)))

    def receive(self) -> Message:
        while True:
            for message in self._deframer.feed(self._ours.recv(1 << 16)):
                self.heard.append(message)
                return message

    def close(self) -> None:
        self._ours.close()


@contextmanager
def scripted(script: Callable[[Agent], None]) -> Iterator[Agent]:
    """An agent that follows a script in a thread of its own."""
    agent = Agent()
    thread = threading.Thread(target=script, args=(agent,), daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        thread.join(WAIT_S)
        agent.close()
        agent.client.close()


def piped(text: str) -> Keyboard:
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    return Keyboard(read, terminal=False)


def run_client(agent: Agent, keyboard: Keyboard | None, client: RunClient | None = None) -> tuple[int, list[RunChange]]:
    printed: list[RunChange] = []
    client = client or RunClient(GivenAnswers(), can_ask=keyboard is not None)
    return follow(agent.client, client, lambda change, at_us: printed.append(change), keyboard), printed


def two_questions(agent: Agent) -> None:
    agent.view(PLANNED)
    assert isinstance(agent.receive(), RunAnswer)
    agent.view(structs.replace(DROP, question=None, state="running"))
    agent.view(structs.replace(DROP, question=TYPED))
    assert isinstance(agent.receive(), RunAnswer)
    agent.view(ENDED)


def test_lines_of_a_pipe_answer_one_question_each_and_the_last_needs_no_end() -> None:
    with scripted(two_questions) as agent:
        assert run_client(agent, piped("yes\ndb2"))[0] == 0
    assert [message.text for message in agent.heard if isinstance(message, RunAnswer)] == ["yes", "db2"]


def test_a_lost_agent_is_reported_with_how_to_continue() -> None:
    def script(agent: Agent) -> None:
        agent.view(PLANNED)
        agent.receive()
        agent.close()

    with scripted(script) as agent, pytest.raises(ConnectError, match="lost the connection") as error:
        run_client(agent, piped("yes\n"))
    assert f"runbook resume {DROP.run}" in str(error.value)


@contextmanager
def terminal() -> Iterator[tuple[Keyboard, int]]:
    """A terminal to read from, and the side of who types."""
    typist, ours = pty.openpty()
    try:
        yield Keyboard(ours, terminal=True), typist
    finally:
        os.close(typist)
        os.close(ours)


def test_a_command_at_a_terminal_is_accepted_at_any_time() -> None:
    with terminal() as (keyboard, typist):

        def script(agent: Agent) -> None:
            agent.view(structs.replace(DROP, question=None, state="running"))
            os.write(typist, b"/abort too late\n")
            assert isinstance(agent.receive(), RunControl)
            agent.view(structs.replace(ENDED, state="aborted"))

        with scripted(script) as agent:
            code, _ = run_client(agent, keyboard)
    assert code == 7
    assert agent.heard == [RunControl(run=DROP.run, verb="abort", reason="too late")]


def test_lines_pasted_at_a_terminal_answer_only_the_question_that_was_shown() -> None:
    with terminal() as (keyboard, typist):

        def script(agent: Agent) -> None:
            agent.view(structs.replace(DROP, question=None, state="running"))
            os.write(typist, b"yes\ndb2\nyes\n")
            wait_until(lambda: shown, WAIT_S)
            agent.view(PLANNED)
            agent.view(structs.replace(DROP, question=TYPED))
            wait_until(lambda: len(shown) == 3, WAIT_S)
            os.write(typist, b"/abort pasted\n")
            assert isinstance(agent.receive(), RunControl)
            agent.view(structs.replace(ENDED, state="aborted"))

        shown: list[RunChange] = []

        def show(change: RunChange, at_us: int) -> None:
            text = str(change.fields.get("text"))
            shown.extend([change] if "not an answer" in text or "no question is open" in text else [])

        with scripted(script) as agent:
            assert follow(agent.client, RunClient(GivenAnswers(), can_ask=True), show, keyboard) == 7
    assert agent.heard == [RunControl(run=DROP.run, verb="abort", reason="pasted")]


def test_early_lines_of_a_terminal_are_complete_and_answer_nothing() -> None:
    with terminal() as (keyboard, typist):
        os.write(typist, b"yes\n/abort now\nunfinished")
        wait_until(lambda: select.select([keyboard.descriptor], [], [], 0)[0], WAIT_S)
        assert list(keyboard.early_lines()) == ["yes", "/abort now"]
    client = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    client.receive(RunViewMessage(view=structs.replace(DROP, question=TYPED), may_answer=True, yours=True))
    [early] = client.handle_early_line("db2\n")
    assert isinstance(early, ShowChange) and "not an answer" in early.change.fields["text"]
    [answer] = client.handle_line("db2\n")
    assert isinstance(answer, SendRequest)


def test_a_secret_is_not_echoed_and_later_input_is() -> None:
    import termios

    echoed: list[bool] = []
    with terminal() as (keyboard, typist):

        def script(agent: Agent) -> None:
            agent.view(structs.replace(DROP, question=SECRET))
            wait_until(lambda: not termios.tcgetattr(keyboard.descriptor)[3] & termios.ECHO, WAIT_S)
            os.write(typist, b"hunter2\n")
            agent.receive()
            agent.view(ENDED)

        with scripted(script) as agent:
            code, printed = run_client(agent, keyboard)
        echoed.append(bool(termios.tcgetattr(keyboard.descriptor)[3] & termios.ECHO))
    assert (code, echoed) == (0, [True])
    assert "hunter2" not in str(printed)
    assert agent.heard == [RunAnswer(run=DROP.run, question=3, text="hunter2")]


def test_the_end_of_terminal_input_detaches_from_the_run() -> None:
    with terminal() as (keyboard, typist):

        def script(agent: Agent) -> None:
            agent.view(structs.replace(DROP, question=TYPED))
            os.write(typist, b"\x04")

        with scripted(script) as agent:
            code, printed = run_client(agent, keyboard)
    assert code == 130
    assert "continues" in printed[-1].fields["text"]
    assert agent.heard == []
