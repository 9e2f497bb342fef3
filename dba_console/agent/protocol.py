"""Messages between agent and console over the unix socket. No I/O here.

A message is a length (4 bytes, big-endian, of what follows), one letter for its kind, and a MessagePack payload; a
sample's payload is exactly the recorded bytes; its chart values are sent directly before it. The console sends first.
Unknown kinds are ignored, so that a newer side
may send more; an incompatible change increments `PROTOCOL`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dba_console.core.decoding import packed_decoder
from dba_console.runbooks.run_view import OutputLine, RunStatus, RunView
from dba_console.watch.samples.event import Event

PROTOCOL = 1
MESSAGE_LIMIT = 32 << 20
"""Bytes of one message; a longer one is not this protocol."""
REQUEST_LIMIT = 4 << 20
"""Maximum bytes of a console's message: a document with its inputs is the longest, and much shorter."""
GREETING_LIMIT = 64 << 10
"""Maximum bytes of a console's first message."""

_HEAD = struct.Struct(">IB")


class Greeting(Struct, kw_only=True):
    """The console's first message."""

    protocol: int
    version: str
    login: str
    """The operator's login name, with the address of the SSH session if known."""
    role: str = "console"
    """console; or show, check, doctor, which read and leave and do not keep the agent alive."""
    pid: int = 0


class OpenRun(Struct, kw_only=True):
    """A run of a runbook that has not ended."""

    run: str
    runbook: str
    title: str
    state: RunStatus
    """interrupted: its agent has ended; RunResume continues it."""
    asks: bool = False
    """It waits for an answer."""


class AgentDescription(Struct, kw_only=True):
    """The agent's answer to a greeting it accepts."""

    protocol: int
    version: str
    pid: int
    boot: str
    target: str
    key: str
    session: str | None
    """Directory of the recording, None if there is none."""
    started_us: int
    interval_s: float
    grace_s: float | None
    """None: records until stopped."""
    consoles: int
    hostname: str
    runs: list[OpenRun] = []
    conninfo: str = ""
    """Connection string without secrets; a console starts the next agent with it after this one is lost."""
    refused: str = ""
    """Why the server has refused every login of this agent; empty after a success and before the first attempt."""


class Notice(Struct, kw_only=True):
    """A notice from the agent to one console: dropped samples, or an error of its request."""

    kind: str
    text: str


class Bye(Struct, kw_only=True):
    """The agent closes this connection; with the reason."""

    reason: str


class Mark(Struct, kw_only=True):
    """Mark the current time, or the time the operator is viewing."""

    text: str = ""
    occurred_us: int | None = None


class Note(Struct, kw_only=True):
    """A note at the current time, or about another time."""

    text: str
    occurred_us: int | None = None
    author: str = ""
    """Who wrote it, if not the operator: a message of a chat."""


class Acknowledge(Struct, kw_only=True):
    """Acknowledge this finding."""

    finding: str
    note: str = ""


class Silence(Struct, kw_only=True):
    """Silence this finding, or all findings of this rule; 0 seconds removes a silence or an acknowledgement."""

    finding: str
    seconds: float
    note: str = ""


class EndIfRefused(Struct, kw_only=True):
    """End if the server has refused every login so far: the caller has other credentials and starts a new agent.

    Answered by the end of the connection, or by a Notice `refused`.
    """


class RunBegin(Struct, kw_only=True):
    """Start a run. The agent compiles the text again, checks and shows everything, and asks before it starts.

    Answered by a RunViewMessage with `yours`, or by a RunRefused with `reply_to` empty.
    """

    text: str
    """The document, verbatim; empty with `adhoc`."""
    source: str
    """The file it was read from, or `screen`."""
    inputs: dict[str, str] = {}
    """As typed; the agent parses them by their types."""
    mode: Literal["run", "rehearse"] = "run"
    adhoc: bytes | None = None
    """Instead of a document: a plan (JSON) of the one step the operator requested on a screen."""

    def __repr__(self) -> str:
        # An input may be a secret.
        return f"RunBegin(source={self.source!r}, mode={self.mode!r})"


class RunAnswer(Struct, kw_only=True):
    """An answer to the question with that number. Accepted from the driver; to `second` from another operator."""

    run: str
    question: int
    text: str

    def __repr__(self) -> str:
        return f"RunAnswer(run={self.run!r}, question={self.question!r})"


class RunControl(Struct, kw_only=True):
    """A control request of the operator for a run."""

    run: str
    verb: Literal["pause", "continue", "skip", "abort", "jump", "undo", "take", "stop", "choose"]
    """stop: stop the current block at its next safe point. take: this console drives from now on. pause also pauses an
    action that supports it. choose: act only on these rows of a preview; the question is asked again, with their
    number."""
    reason: str = ""
    step: str = ""
    """With `jump`: the target step."""
    block: str = ""
    """With `choose`: the preview."""
    look: int = 0
    """The version of the preview that has the rows (`Table.look`); refused if it was read again since."""
    rows: tuple[int, ...] = ()
    """Indexes from 0 of all rows to act on."""


class RunResume(Struct, kw_only=True):
    """Resume an interrupted run. Answered like RunBegin, with the run as `reply_to`."""

    run: str
    inputs: dict[str, str] = {}
    """Secret inputs, which are not stored."""
    abort: str = ""
    """Only abort it, for this reason: reverts are offered, and nothing else is done."""

    def __repr__(self) -> str:
        return f"RunResume(run={self.run!r})"


class RunWatch(Struct, kw_only=True):
    """Send this run's view and last lines now. If the run has no driver, the same operator drives it again."""

    run: str


class RunViewMessage(Struct, kw_only=True):
    """The state of a run; sent to every console after each change, at most a few times a second."""

    view: RunView
    yours: bool = False
    """This console drives: its answers count."""
    may_answer: bool = False
    """A question is open, and this console may answer it: as the driver, or as the second operator."""
    why_not: str = ""
    """Why this console may not answer a `second` question, as a sentence."""


class RunLines(Struct, kw_only=True):
    """Output lines of a command, in order."""

    run: str
    block: str
    lines: list[OutputLine]
    dropped: int = 0
    """Lines left out before these, because they came too fast to be shown."""


class RunRefused(Struct, kw_only=True):
    """A request about a run is refused, with the reason. Nothing was changed by it."""

    text: str
    hint: str | None = None
    code: int = 2
    """Exit code of a command that ends because of it."""
    reply_to: str = ""
    """The run, empty for a RunBegin."""


class SampleMessage(Struct, kw_only=True):
    data: bytes
    point: dict[str, float] = {}
    """The chart values of this tick, computed by the agent; empty if they could not be computed."""


class EventMessage(Struct, kw_only=True):
    event: Event


RunRequest = RunBegin | RunAnswer | RunControl | RunResume | RunWatch
RunReply = RunViewMessage | RunLines | RunRefused
"""The agent's messages about runs."""

Request = Mark | Note | Acknowledge | Silence | EndIfRefused | RunRequest
"""Requests of a console to the agent."""

Message = Greeting | AgentDescription | Notice | Bye | Request | SampleMessage | EventMessage | RunReply

_LETTERS: dict[type[Any], bytes] = {
    Greeting: b"g",
    AgentDescription: b"H",
    Notice: b"N",
    Bye: b"B",
    Mark: b"m",
    Note: b"n",
    Acknowledge: b"a",
    Silence: b"q",
    EndIfRefused: b"e",
    EventMessage: b"E",
    RunBegin: b"b",
    RunAnswer: b"w",
    RunControl: b"c",
    RunResume: b"r",
    RunWatch: b"v",
    RunViewMessage: b"V",
    RunLines: b"L",
    RunRefused: b"R",
}
_KINDS = {letter[0]: kind for kind, letter in _LETTERS.items()}
_POINT, _SAMPLE = ord("P"), ord("S")
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: packed_decoder(kind) for kind in _LETTERS}
_point_decoder = packed_decoder(dict[str, float])


class ProtocolError(Exception):
    """The bytes from the socket are not this protocol."""


def pack(message: Message) -> bytes:
    """Return the message as sent over the socket."""
    if isinstance(message, SampleMessage):
        return pack_sample(message.data, message.point)
    payload = _encoder.encode(message)
    return _HEAD.pack(len(payload) + 1, _LETTERS[type(message)][0]) + payload


def pack_sample(data: bytes, point: dict[str, float]) -> bytes:
    """Return an encoded sample with its chart values as sent over the socket: packed once, sent to every console."""
    values = _encoder.encode(point)
    return _HEAD.pack(len(values) + 1, _POINT) + values + _HEAD.pack(len(data) + 1, _SAMPLE) + data


class Deframer:
    """Converts bytes to messages. One per connection."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self.limit = limit
        """Maximum bytes of the next message."""
        self._buffer = bytearray()
        self._point: dict[str, float] = {}
        """Chart values of the sample that follows."""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages completed by `data`. Raises ProtocolError for invalid bytes."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, letter = _HEAD.unpack_from(self._buffer)
            if not 1 <= length <= self.limit:
                raise ProtocolError(f"invalid message length: {length} bytes")
            if len(self._buffer) < 4 + length:
                return
            payload = bytes(self._buffer[_HEAD.size : 4 + length])
            del self._buffer[: 4 + length]
            if letter == _SAMPLE:
                point, self._point = self._point, {}
                yield SampleMessage(data=payload, point=point)
            elif letter == _POINT:
                self._point = _decode(_point_decoder, payload)
            elif (kind := _KINDS.get(letter)) is not None:
                yield _decode(_decoders[kind], payload)


def _decode(decoder: msgspec.msgpack.Decoder[Any], payload: bytes) -> Any:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"invalid message: {error}") from error
