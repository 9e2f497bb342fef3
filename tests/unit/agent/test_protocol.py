"""Messages survive the socket whatever the chunks they come in, and strangers are recognised."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.agent.protocol import (
    PROTOCOL,
    Bye,
    Deframer,
    Greeting,
    Mark,
    Message,
    Note,
    ProtocolError,
    RunAnswer,
    RunBegin,
    RunControl,
    RunLines,
    RunRefused,
    RunResume,
    RunViewMessage,
    RunWatch,
    SampleMessage,
    pack,
    pack_sample,
)
from dba_console.runbooks.run_view import OutputLine, Question, RunView, StepView

MESSAGES: list[Message] = [
    Greeting(protocol=PROTOCOL, version="1", login="anna from 10.0.0.1"),
    SampleMessage(data=b"\x00" * 5000),
    SampleMessage(data=b"tick", point={"connections.used": 3.0}),
    Mark(text="failover begins"),
    Note(text="ünïcödé \x1b[2J", occurred_us=1),
    Bye(reason="asked to end"),
]

VIEW = RunView(
    run="20261122T050000Z-cache-drop-1a2b",
    runbook="cache-drop",
    title="Drop the page cache",
    mode="run",
    state="waiting",
    target="db2",
    steps=(StepView(id="drop", title="Drop it", state="waiting"),),
    question=Question(id=3, kind="type", text="type the name of the target", expects="db2"),
)
RUN_MESSAGES: list[Message] = [
    RunBegin(text="# A\n", source="a.md", inputs={"every": "30m"}, mode="rehearse"),
    RunBegin(text="", source="screen", adhoc=b"{}"),
    RunAnswer(run=VIEW.run, question=3, text="db2"),
    RunControl(run=VIEW.run, verb="skip", reason="done by hand"),
    RunResume(run=VIEW.run, inputs={"password": "x"}),
    RunWatch(run=VIEW.run),
    RunViewMessage(view=VIEW, yours=True, may_answer=True),
    RunLines(run=VIEW.run, block="drop/run", lines=[OutputLine(1, "o", "CACHEDROP", "done")], dropped=7),
    RunRefused(text="another run is under way", hint="wait for it", code=8, reply_to=VIEW.run),
]


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=30))
def test_messages_are_reassembled_however_they_are_split(cuts: list[int]) -> None:
    stream = b"".join(pack(message) for message in MESSAGES)
    deframer, position = Deframer(), 0
    out: list[Message] = []
    for cut in [*cuts, len(stream)]:
        out += deframer.feed(stream[position : position + cut])
        position += cut
    assert out == MESSAGES


def test_a_sample_is_sent_as_the_recorded_bytes() -> None:
    assert pack_sample(b"abc", {}).endswith(b"Sabc")


def test_an_absurd_message_length_is_refused_without_an_allocation() -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        list(Deframer().feed(b"GET / HTTP/1.1\r\n"))


def test_a_damaged_message_is_reported_as_such() -> None:
    with pytest.raises(ProtocolError, match="invalid message"):
        list(Deframer().feed(struct.pack(">IB", 4, ord("H")) + b"\xff\xff\xff"))


def test_a_message_kind_of_a_newer_version_is_skipped() -> None:
    stream = struct.pack(">IB", 2, ord("z")) + b"x" + pack(Mark(text="after"))
    assert list(Deframer().feed(stream)) == [Mark(text="after")]


def test_run_messages_are_decoded_as_they_were_encoded() -> None:
    stream = b"".join(pack(message) for message in RUN_MESSAGES)
    assert list(Deframer().feed(stream)) == RUN_MESSAGES


def test_inputs_and_answers_are_in_no_repr() -> None:
    message = [
        RunBegin(text="", source="x", inputs={"password": "s3cret"}),
        RunResume(run="r", inputs={"password": "s3cret"}),
        RunAnswer(run="r", question=1, text="s3cret"),
    ]
    assert "s3cret" not in repr(message)
