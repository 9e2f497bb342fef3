"""What agent and console say to each other over the unix socket. No I/O here.

A message is a length (4 bytes, big-endian, of what follows), one letter for its kind, and a MessagePack payload; a
sample's payload is the very bytes that are recorded. The console speaks first. Unknown kinds are passed over, so that
a newer side may say more; an incompatible change raises `PROTOCOL`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.samples.event import Event

PROTOCOL = 1
MESSAGE_LIMIT = 32 << 20
"""Bytes of one message; more is taken for a stranger on the line."""

_HEAD = struct.Struct(">IB")


class Greeting(Struct, kw_only=True):
    """The console's first message."""

    protocol: int
    version: str
    login: str
    """Who sits there: login name, with the address of the SSH session where known."""
    role: str = "console"
    """console; or show, check, doctor: reads and leaves, does not keep the agent alive."""
    pid: int = 0


class Hello(Struct, kw_only=True):
    """The agent's answer to a greeting it accepts."""

    protocol: int
    version: str
    pid: int
    boot: str
    target: str
    key: str
    session: str | None
    """Directory of the recording, None where there is none."""
    started_us: int
    interval_s: float
    grace_s: float | None
    """None: records until told to stop."""
    consoles: int
    hostname: str


class Notice(Struct, kw_only=True):
    """A word from the agent to one console: samples dropped for it, an error of its request."""

    kind: str
    text: str


class Bye(Struct, kw_only=True):
    """The agent closes this connection, and why."""

    reason: str


class Mark(Struct, kw_only=True):
    """Mark this moment, or the one the operator looks at."""

    text: str = ""
    occurred_us: int | None = None


class Note(Struct, kw_only=True):
    """A note, of now or of the moment the operator looks at."""

    text: str
    occurred_us: int | None = None


class Acknowledge(Struct, kw_only=True):
    """The operator knows of this finding."""

    finding: str
    note: str = ""


class Silence(Struct, kw_only=True):
    """Keep this finding, or all of this rule, quiet for so long; 0 takes back a silence or an acknowledgement."""

    finding: str
    seconds: float
    note: str = ""


class SampleMessage(Struct, kw_only=True):
    data: bytes


class EventMessage(Struct, kw_only=True):
    event: Event


Request = Mark | Note | Acknowledge | Silence
"""What a console may ask of the agent."""

Message = Greeting | Hello | Notice | Bye | Request | SampleMessage | EventMessage

_LETTERS: dict[type[Any], bytes] = {
    Greeting: b"g",
    Hello: b"H",
    Notice: b"N",
    Bye: b"B",
    Mark: b"m",
    Note: b"n",
    Acknowledge: b"a",
    Silence: b"q",
    EventMessage: b"E",
}
_KINDS = {letter[0]: kind for kind, letter in _LETTERS.items()}
_SAMPLE = ord("S")
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(kind) for kind in _LETTERS}


class ProtocolError(Exception):
    """What came over the socket is not this protocol."""


def pack(message: Message) -> bytes:
    """The message as it goes over the socket."""
    if isinstance(message, SampleMessage):
        return pack_sample(message.data)
    payload = _encoder.encode(message)
    return _HEAD.pack(len(payload) + 1, _LETTERS[type(message)][0]) + payload


def pack_sample(data: bytes) -> bytes:
    """An encoded sample as it goes over the socket: packed once, sent to every console."""
    return _HEAD.pack(len(data) + 1, _SAMPLE) + data


class Deframer:
    """Bytes in, messages out. One per connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Messages completed by `data`. Raises ProtocolError on what cannot be one."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, letter = _HEAD.unpack_from(self._buffer)
            if not 1 <= length <= MESSAGE_LIMIT:
                raise ProtocolError(f"a message of {length} bytes")
            if len(self._buffer) < 4 + length:
                return
            payload = bytes(self._buffer[_HEAD.size : 4 + length])
            del self._buffer[: 4 + length]
            if letter == _SAMPLE:
                yield SampleMessage(data=payload)
            elif (kind := _KINDS.get(letter)) is not None:
                try:
                    yield _decoders[kind].decode(payload)
                except msgspec.MsgspecError as error:
                    raise ProtocolError(f"a message that cannot be read: {error}") from error
