"""Typed decoding of bytes and plain values; the only module where msgspec builds a type's description.

One thread at a time: msgspec inspects the fields of a class when the class is first decoded. A second thread that needs
the same class meanwhile finds a half-filled description, and the process dies of a segmentation fault (msgspec 0.22,
`StructInfo_Convert` in `_core.c`). Decoding without a type, or by a decoder made here, needs no lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_LOCK = threading.RLock()


def packed_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return a MessagePack decoder for values of this type."""
    with _LOCK:
        return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return a JSON decoder for values of this type."""
    with _LOCK:
        return msgspec.json.Decoder(kind)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Return the value in `data`. Raises msgspec.DecodeError, and msgspec.ValidationError for another type."""
    return json_decoder(kind).decode(data)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Return the value as `kind`. Raises msgspec.ValidationError. Not `strict`: strings may represent numbers."""
    with _LOCK:
        return msgspec.convert(value, kind, strict=strict)
