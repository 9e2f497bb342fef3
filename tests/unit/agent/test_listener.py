"""The socket: which users are admitted, what they receive, and that a slow reader delays no other."""

from __future__ import annotations

import os
import queue
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.console_connection import QUEUE_LIMIT, UNSENT_ANSWERS_LIMIT, ConsoleConnection
from dba_console.agent.listener import STALLED_S, Listener
from dba_console.agent.protocol import (
    GREETING_LIMIT,
    PROTOCOL,
    AgentDescription,
    Bye,
    Deframer,
    Greeting,
    Mark,
    Message,
    Notice,
    RunBegin,
    SampleMessage,
    pack,
    pack_sample,
)
from dba_console.core.errors import ConnectError
from tests.clocks import HeldClock


class ListenerCalls:
    """A listener whose callbacks are kept."""

    def __init__(self, path: Path) -> None:
        self.requests: queue.Queue[Message] = queue.Queue()
        self.disconnected: queue.Queue[ConsoleConnection] = queue.Queue()
        self.clock = HeldClock()
        self.listener = Listener(
            path, self.clock, welcome=self._welcome, request=lambda _, message: self.requests.put(message),
            left=self.disconnected.put,
        )  # fmt: skip
        self.listener.start()
        self._attached: list[AgentClient] = []

    def attach(self) -> AgentClient:
        """A console, until the test is over."""
        self._attached.append(AgentClient.connect(self.listener.path))
        return self._attached[-1]

    def close(self) -> None:
        for client in self._attached:
            client.close()
        self.listener.close("the test is over")

    def _welcome(self, _: ConsoleConnection) -> tuple[AgentDescription, list[bytes]]:
        description = AgentDescription(
            protocol=PROTOCOL, version="x", pid=os.getpid(), boot="b", target="t", key="k", session=None, started_us=0,
            interval_s=1.0, grace_s=None, consoles=0, hostname="h",
        )  # fmt: skip
        return description, [pack_sample(b"first", {})]


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[ListenerCalls]:
    calls = ListenerCalls(tmp_path / "a.sock")
    yield calls
    calls.close()


def _raw(calls: ListenerCalls) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(calls.listener.path))
    return connection


def test_an_internal_error_ends_its_connection_and_no_other(
    calls: ListenerCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    met, other = calls.attach(), calls.attach()
    monkeypatch.setattr(calls.listener, "_request", {}.__getitem__)
    met.send(Mark(text="now"))
    with pytest.raises(AgentConnectionLost, match="the agent failed on a request of this console: internal error"):
        while met.receive(60.0):
            pass
    calls.listener.broadcast(pack_sample(b"second", {}), sample=True)
    while (message := other.receive(60.0)) != SampleMessage(data=b"second"):
        assert message is not None


def test_only_the_owner_can_reach_the_socket(calls: ListenerCalls) -> None:
    assert stat.S_IMODE(os.stat(calls.listener.path).st_mode) == 0o600


def test_a_console_is_welcomed_and_gets_the_newest_frame_at_once(calls: ListenerCalls) -> None:
    client = calls.attach()
    assert client.agent_description.target == "t"
    assert client.receive(5) == SampleMessage(data=b"first")


def test_a_console_that_disconnects_is_noticed(calls: ListenerCalls) -> None:
    calls.attach().close()
    peer = calls.disconnected.get(timeout=5)
    assert peer.greeting is not None
    assert calls.listener.consoles == 0


def test_another_protocol_version_is_refused_with_a_hint(calls: ListenerCalls) -> None:
    with _raw(calls) as connection:
        connection.sendall(pack(Greeting(protocol=PROTOCOL + 1, version="9", login="x")))
        (answer,) = Deframer().feed(connection.recv(65536))
    assert isinstance(answer, Bye)
    assert "same version" in answer.reason


def test_an_unknown_client_on_the_socket_is_disconnected_and_others_stay(calls: ListenerCalls) -> None:
    client = calls.attach()
    with _raw(calls) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        (answer,) = Deframer().feed(stranger.recv(65536))
    assert isinstance(answer, Bye)
    calls.listener.broadcast(pack_sample(b"second", {}), sample=True)
    assert client.receive(5) == SampleMessage(data=b"first")
    assert client.receive(5) == SampleMessage(data=b"second")


def test_a_slow_reader_loses_old_samples_is_informed_and_delays_no_other(calls: ListenerCalls) -> None:
    slow, quick = calls.attach(), calls.attach()
    quick.receive(5)
    big = b"x" * (QUEUE_LIMIT // 4)
    for number in range(12):
        packed = pack_sample(bytes([number]) + big, {})
        calls.listener.broadcast(packed, sample=True)
        got = quick.receive(5)
        assert isinstance(got, SampleMessage) and got.data[0] == number
    messages: list[Message] = []
    while not any(isinstance(message, SampleMessage) and message.data[0] == 11 for message in messages):
        message = slow.receive(5)
        assert message is not None
        messages.append(message)
    notices = [message for message in messages if isinstance(message, Notice)]
    samples = [message for message in messages if isinstance(message, SampleMessage)]
    assert notices and "not sent" in notices[0].text
    assert len(samples) < 13


def test_a_reader_that_never_reads_is_disconnected_and_informed_when_it_returns(calls: ListenerCalls) -> None:
    stalled = calls.attach()
    for _ in range(8):
        calls.listener.broadcast(pack_sample(b"x" * (QUEUE_LIMIT // 4), {}), sample=True)
    other = calls.attach()
    other.receive(5)  # the listener has been through its queue
    calls.clock.advance(STALLED_S + 1)
    calls.listener.broadcast(pack_sample(b"tick", {}), sample=True)
    assert calls.disconnected.get(timeout=5).pid == os.getpid()
    assert calls.listener.slow_dropped == 1
    with pytest.raises(AgentConnectionLost):
        while stalled.receive(5) is not None:
            pass
    again = calls.attach()
    first = again.receive(5)
    assert isinstance(first, Notice) and "disconnected because it read nothing" in first.text


def test_consoles_that_disconnect_during_a_send_harm_no_other(calls: ListenerCalls) -> None:
    stays = calls.attach()
    stays.receive(5)
    for number in range(40):
        leaving = [calls.attach() for _ in range(5)]
        calls.listener.broadcast(pack_sample(bytes([number]) * 300_000, {}), sample=True)
        for client in leaving:
            client.close()
        got = stays.receive(5)
        assert isinstance(got, SampleMessage) and got.data[0] == number


def test_consoles_are_informed_why_the_agent_ends(tmp_path: Path) -> None:
    calls = ListenerCalls(tmp_path / "b.sock")
    client = calls.attach()
    client.receive(5)
    closing = threading.Thread(target=calls.listener.close, args=("stopped by SIGTERM",))
    closing.start()
    with pytest.raises(AgentConnectionLost, match="stopped by SIGTERM"):
        client.receive(5)
    closing.join()
    client.close()
    assert not calls.listener.path.exists()


def test_a_socket_without_a_listener_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"the agent no longer runs; `dba-console DSN` starts one"):
        AgentClient.connect(tmp_path / "none.sock")


def test_a_stale_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    calls = ListenerCalls(path)
    client = calls.attach()
    assert client.agent_description.key == "k"
    calls.close()


def test_a_client_without_a_greeting_may_not_send_much(calls: ListenerCalls) -> None:
    """Otherwise sixteen connections of anybody could each have the agent keep 32 MB."""
    with _raw(calls) as stranger:
        stranger.sendall((GREETING_LIMIT + 1).to_bytes(4, "big") + b"g")
        (answer,) = Deframer().feed(stranger.recv(65536))
    assert isinstance(answer, Bye) and f"invalid message length: {GREETING_LIMIT + 1} bytes" in answer.reason


def test_a_long_document_reaches_the_agent(calls: ListenerCalls) -> None:
    client = calls.attach()
    document = RunBegin(text="x" * 1_000_000, source="a.md")
    client.send(document)
    assert calls.requests.get(timeout=60) == document


def test_a_client_that_reads_no_answers_gets_no_more_and_the_next_one_is_welcomed(
    calls: ListenerCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0

    def answer(peer: ConsoleConnection, _: Message) -> None:
        nonlocal handled
        handled += 1
        peer.push(pack(Notice(kind="error", text="x" * 1_000)))

    monkeypatch.setattr(calls.listener, "_request", answer)
    with _raw(calls) as flood:
        flood.sendall(pack(Greeting(protocol=PROTOCOL, version="x", login="flood")))
        flood.settimeout(1.0)
        request, sent = pack(Mark(text="now")) * 1_000, 0
        with pytest.raises(TimeoutError):  # it is not read from any more
            while sent < 100_000_000:
                sent += flood.send(request)
        calls.attach().close()
        assert handled * 1_000 < 4 * UNSENT_ANSWERS_LIMIT + (1 << 20)


def test_a_burst_of_connections_is_accepted_or_refused_with_the_limit(calls: ListenerCalls) -> None:
    waiting = [_raw(calls) for _ in range(100)]
    for connection in waiting:
        connection.close()
    calls.attach()


def test_a_full_connection_queue_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "deaf.sock"))
            with pytest.raises(ConnectError, match="accepts no more connections: its queue is full"):
                AgentClient.connect(tmp_path / "deaf.sock", timeout_s=1.0)
