"""What agent and console say to each other over the unix socket. No I/O here.

A message is a length (4 bytes, big-endian, of what follows), one letter for its kind, and a MessagePack payload; a
sample's payload is the very bytes that are recorded. The console speaks first. Unknown kinds are passed over, so that
a newer side may say more; an incompatible change raises `PROTOCOL`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dba_console.core.decoding import packed_decoder
from dba_console.runbooks.run_view import OutputLine, RunState, RunView
from dba_console.watch.samples.event import Event

PROTOCOL = 1
MESSAGE_LIMIT = 32 << 20
"""Bytes of one message; more is taken for a stranger on the line."""
REQUEST_LIMIT = 4 << 20
"""The same of what a console sends: a document with its inputs is the longest of it, and shorter by far."""
GREETING_LIMIT = 64 << 10
"""The same of its first message."""

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


class OpenRun(Struct, kw_only=True):
    """A run of a runbook that has not ended."""

    run: str
    runbook: str
    title: str
    state: RunState
    """interrupted: no agent has walked it since one was killed; RunResume goes on with it."""
    asks: bool = False
    """It waits for an answer."""


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
    runs: list[OpenRun] = []
    conninfo: str = ""
    """Where the agent connects to, without secrets: with it a console starts the next agent once this one is lost."""
    refused: str = ""
    """Why the server has refused every login of this agent so far; empty once it was let in, and before it tried."""


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


class EndIfRefused(Struct, kw_only=True):
    """End, if the server has refused every login so far: the caller has other credentials and starts the next agent.

    Answered by the end of the connection, or by a Notice `refused`.
    """


class RunBegin(Struct, kw_only=True):
    """Begin a run. The agent compiles the text again, checks and shows everything, and asks before it starts.

    Answered by a RunViewMessage that says `yours`, or by a RunRefused with `reply_to` empty.
    """

    text: str
    """The document, verbatim; empty with `adhoc`."""
    source: str
    """The file it was read from, or `screen`."""
    inputs: dict[str, str] = {}
    """As typed; the agent reads them by their types."""
    mode: Literal["run", "rehearse"] = "run"
    adhoc: bytes | None = None
    """In place of a document: a plan (JSON) of the one step the operator asked for on a screen."""

    def __repr__(self) -> str:
        # An input may be a secret.
        return f"RunBegin(source={self.source!r}, mode={self.mode!r})"


class RunAnswer(Struct, kw_only=True):
    """What the operator says to the question of that number. Taken from who drives; to `second` from another person."""

    run: str
    question: int
    text: str

    def __repr__(self) -> str:
        return f"RunAnswer(run={self.run!r}, question={self.question!r})"


class RunControl(Struct, kw_only=True):
    """What the operator wants of a run besides answering it."""

    run: str
    verb: Literal["pause", "continue", "skip", "abort", "jump", "undo", "take", "stop", "choose"]
    """stop: the block under way is to stop at its next safe point. take: this console drives from now on. pause also
    makes an action hold still that can. choose: act on these rows of a preview and on no others of it; the question is
    put again, with their number."""
    reason: str = ""
    step: str = ""
    """With `jump`: where to."""
    block: str = ""
    """With `choose`: the preview."""
    look: int = 0
    """The look at it that gave the rows (`Table.look`); the choice is refused where there was another since."""
    rows: tuple[int, ...] = ()
    """Places, from 0, of all its rows that are to be acted on."""


class RunResume(Struct, kw_only=True):
    """Go on with an interrupted run. Answered as RunBegin is, `reply_to` being the run."""

    run: str
    inputs: dict[str, str] = {}
    """Those that were secret and so are written nowhere."""
    abort: str = ""
    """Only end it, for this reason: what it did is offered to be taken back, and nothing else is done."""

    def __repr__(self) -> str:
        return f"RunResume(run={self.run!r})"


class RunWatch(Struct, kw_only=True):
    """Send this run's view and its last lines now. Where nobody drives it any more, the same person drives it again."""

    run: str


class RunViewMessage(Struct, kw_only=True):
    """A run as it stands; sent to every console whenever it changed, at most a few times a second."""

    view: RunView
    yours: bool = False
    """This console drives: its answers count."""
    may_answer: bool = False
    """There is a question, and this console may answer it: as who drives, or as the second person."""
    why_not: str = ""
    """Why this console may not answer a `second` question, in a sentence."""


class RunLines(Struct, kw_only=True):
    """Lines of a command's output, in order."""

    run: str
    block: str
    lines: list[OutputLine]
    dropped: int = 0
    """Lines left out before these, because they came faster than they can be shown."""


class RunRefused(Struct, kw_only=True):
    """What a console asked of a run is not done, and why. Nothing was changed by it."""

    text: str
    hint: str | None = None
    code: int = 2
    """Exit code of a command that ends with it."""
    reply_to: str = ""
    """The run, empty for a RunBegin."""


class SampleMessage(Struct, kw_only=True):
    data: bytes


class EventMessage(Struct, kw_only=True):
    event: Event


RunRequest = RunBegin | RunAnswer | RunControl | RunResume | RunWatch
RunReply = RunViewMessage | RunLines | RunRefused
"""What the agent says of runs."""

Request = Mark | Note | Acknowledge | Silence | EndIfRefused | RunRequest
"""What a console may ask of the agent."""

Message = Greeting | Hello | Notice | Bye | Request | SampleMessage | EventMessage | RunReply

_LETTERS: dict[type[Any], bytes] = {
    Greeting: b"g",
    Hello: b"H",
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
_SAMPLE = ord("S")
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: packed_decoder(kind) for kind in _LETTERS}


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

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self.limit = limit
        """Bytes of the next message."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Messages completed by `data`. Raises ProtocolError on what cannot be one."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, letter = _HEAD.unpack_from(self._buffer)
            if not 1 <= length <= self.limit:
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
                except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
                    raise ProtocolError(f"a message that cannot be read: {error}") from error
