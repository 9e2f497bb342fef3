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
    SampleMessage,
    pack,
    pack_sample,
)

MESSAGES: list[Message] = [
    Greeting(protocol=PROTOCOL, version="1", login="anna from 10.0.0.1"),
    SampleMessage(data=b"\x00" * 5000),
    Mark(text="failover begins"),
    Note(text="ünïcödé \x1b[2J", occurred_us=1),
    Bye(reason="asked to end"),
]


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=30))
def test_messages_come_out_whole_however_they_are_cut(cuts: list[int]) -> None:
    stream = b"".join(pack(message) for message in MESSAGES)
    deframer, position = Deframer(), 0
    out: list[Message] = []
    for cut in [*cuts, len(stream)]:
        out += deframer.feed(stream[position : position + cut])
        position += cut
    assert out == MESSAGES


def test_a_sample_is_sent_as_the_bytes_that_are_recorded() -> None:
    assert pack_sample(b"abc").endswith(b"Sabc")


def test_an_absurd_length_is_a_stranger_and_not_an_allocation() -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        list(Deframer().feed(b"GET / HTTP/1.1\r\n"))


def test_a_damaged_message_is_told_as_such() -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        list(Deframer().feed(struct.pack(">IB", 4, ord("H")) + b"\xff\xff\xff"))


def test_a_kind_of_a_newer_version_is_passed_over() -> None:
    stream = struct.pack(">IB", 2, ord("z")) + b"x" + pack(Mark(text="after"))
    assert list(Deframer().feed(stream)) == [Mark(text="after")]
