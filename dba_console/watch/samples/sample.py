"""A sample: what was read in one tick, part by part.

A part is read at its own interval, so a sample contains only the parts read in this tick; `Picture` (frames) keeps the
last two readings of each. The first sample of every block of a recording is a key sample: it repeats the last two
readings of the slow parts, each with the time it was read, so that reading can start there.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from dba_console.core.decoding import packed_decoder
from dba_console.watch import subjects
from dba_console.watch.part import PartKind
from dba_console.watch.samples import findings

T = TypeVar("T")

FINDINGS = PartKind("findings", findings.FindingsNow, 10, "open findings")
PARTS: dict[str, PartKind] = {kind.name: kind for kind in (FINDINGS, *subjects.parts())}
"""All parts a sample can have. Used by the collector, the codec, the recording and `doctor`."""

Status = Literal["ok", "stale", "denied", "unsupported", "timeout", "error"]


class Part(Struct, array_like=True, frozen=True, dict=True):
    """One probe's result.

    `status` other than ok has a `note`: a redacted sentence with a fix. `reading` is the encoded struct named in the
    registry, None if nothing could be read.
    """

    name: str
    status: Status
    note: str | None
    at_us: int
    """Monotonic microseconds of the reading."""
    took_us: int
    reading: Raw | None

    def decode(self) -> Any:
        """Return the reading as its struct, None if there is none. Raises msgspec.DecodeError on damaged data."""
        if self.reading is None:
            return None
        if (made := self.__dict__.get(_STRUCT_KEY)) is not None:
            return made
        kind = PARTS.get(self.name)
        return None if kind is None else _decode(_decoder(kind.reading), self.reading)


class Sample(Struct, array_like=True, frozen=True):
    """Everything read in one tick. `seq` counts ticks of one agent run from 1; gaps in it are samples not recorded."""

    seq: int
    wall_us: int
    mono_us: int
    parts: list[Part]
    boot: str = ""
    """Random id of the agent run: monotonic times compare only within one."""


_STRUCT_KEY = "made_from"

_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}
_encoder = msgspec.msgpack.Encoder()
_NIL = b"\xc0"


class _WirePart(Struct, array_like=True, frozen=True):
    """A part as decoded: msgspec has no `Raw | None`, so a nil reading arrives as its one byte."""

    name: str
    status: Status
    note: str | None
    at_us: int
    took_us: int
    reading: Raw

    def part(self) -> Part:
        reading = None if bytes(self.reading) == _NIL else self.reading
        return Part(self.name, self.status, self.note, self.at_us, self.took_us, reading)


class _WireSample(Struct, array_like=True, frozen=True):
    seq: int
    wall_us: int
    mono_us: int
    parts: list[_WirePart]
    boot: str = ""


_sample_decoder = packed_decoder(_WireSample)


def _decoder(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = packed_decoder(kind)
    return decoder


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview | Raw) -> T:
    """Return the value in `data`. Raises msgspec.DecodeError for all damage, also for text that is not UTF-8."""
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def make_part(
    name: str, reading: Any, *, at_us: int, took_us: int = 0, status: Status = "ok", note: str | None = None
) -> Part:
    """Return a part for a reading struct (or None). It is encoded now, so that only immutable bytes cross threads."""
    raw = None if reading is None else Raw(_encoder.encode(reading))
    part = Part(name, status, note, at_us, took_us, raw)
    # The creator need not decode it again: readings are frozen, and only the bytes are stored and sent.
    part.__dict__[_STRUCT_KEY] = reading
    return part


def encode_sample(sample: Sample) -> bytes:
    """Return the sample as MessagePack; the same bytes go to the recording and to every console."""
    return _encoder.encode(sample)


def decode_sample(data: bytes | memoryview) -> Sample:
    """Return the sample in `data`; readings are decoded on access. Raises msgspec.DecodeError on damaged data."""
    wire = _decode(_sample_decoder, data)
    return Sample(wire.seq, wire.wall_us, wire.mono_us, [part.part() for part in wire.parts], wire.boot)
