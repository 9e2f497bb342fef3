"""Typed records out of bytes and plain values: the one place where msgspec learns a type.

Upheld here: one thread at a time. msgspec looks at the fields of a class when the class is first decoded. A second
thread that needs the same class meanwhile finds a description that is half filled in, and the process dies of a
segmentation fault (msgspec 0.22, `StructInfo_Convert` in `_core.c`). What is decoded without a type, or by a decoder
that was made here, needs no lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_LOCK = threading.RLock()


def packed_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """A decoder of MessagePack for values of this type."""
    with _LOCK:
        return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of JSON for values of this type."""
    with _LOCK:
        return msgspec.json.Decoder(kind)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The value in `data`. Raises msgspec.DecodeError, and msgspec.ValidationError where it is of another type."""
    return json_decoder(kind).decode(data)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """The value as `kind`. Raises msgspec.ValidationError. Not `strict`: texts may stand for numbers."""
    with _LOCK:
        return msgspec.convert(value, kind, strict=strict)
