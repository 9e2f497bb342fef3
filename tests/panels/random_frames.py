"""Frames with anything in them: every field of every struct filled at random, from names that attack a terminal to
numbers no server would give. What the panels make of them need not make sense, it must only be harmless and fit."""

from __future__ import annotations

import random
import types
import typing
from typing import Any

import msgspec

from dba_console.watch import subjects
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import LockNode

_TEXTS = (
    "", "public.orders", "select *\nfrom t\twhere a = '\x00'", "\x1b[2J\x1b]0;owned\x07", "表" * 40, "e\u0301" * 30,
    "a\u202eb\u2066c", "[bold red]x[/]", "👩‍👩‍👧 ❤️", "\u200b\ufeff\u00ad", "x" * 3000, "\x9b31m", "\u0627\u0644\u0639",
    "ſ\u3000y", "2026-11-20T14:57:29Z", "ok", "denied", "active", "idle in transaction", "a b " * 90, "\U000e0041tag",
)  # fmt: skip
_FLOATS = (0.0, 0.04, 1.0, 12.5, 99.97, 100.0, 481.0, 5e6, 3.3e12, 1e300, -1.0, -4e9)
_INTS = (0, 1, 7, 96, 250, 8123, 1 << 20, 1 << 40, 1 << 62, -5)
_DEEPEST = 3


def random_frame(seed: int) -> Frame:
    """The frame of that number: the same number gives the same frame."""
    rng = random.Random(seed)
    frame = _struct(Frame, rng, 0)
    assert isinstance(frame, Frame)
    frame.panels = {name: panel.fields(**_values(panel.fields, rng, 0)) for name, panel in subjects.panels().items()}
    return frame


def random_history(seed: int, end_us: int) -> ChartHistory:
    """Minutes before `end_us` with holes, jumps and values of any size."""
    rng = random.Random(seed)
    history = ChartHistory()
    names = ("connections.used", "io.psi_full_avg10", "io.iowait_pct", "io.read_bytes_per_s", "io.write_bytes_per_s",
             "memory.cached_bytes", "memory.free_bytes")  # fmt: skip
    for tick in range(rng.choice((0, 1, 2, 40))):
        at = end_us - rng.randint(0, 700_000_000) if rng.random() < 0.1 else end_us - (40 - tick) * 15_000_000
        history.add(at, {name: rng.choice(_FLOATS) for name in names if rng.random() < 0.7})
    return history


def _struct(kind: type[msgspec.Struct], rng: random.Random, depth: int) -> msgspec.Struct:
    return kind(**_values(kind, rng, depth))


def _values(kind: type[msgspec.Struct], rng: random.Random, depth: int) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: _value(hints[name], rng, depth + 1) for name in kind.__struct_fields__}


def _value(hint: Any, rng: random.Random, depth: int) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(rng.choice(typing.get_args(hint)), rng, depth)
    if hint is type(None):
        return None
    if origin is list:
        (item,) = typing.get_args(hint)
        deep = depth > _DEEPEST + 3 if item is LockNode else False
        return [_value(item, rng, depth + 1) for _ in range(0 if deep else rng.choice((0, 0, 1, 2, 5)))]
    if origin is dict:
        return {_text(rng): _value(typing.get_args(hint)[1], rng, depth + 1) for _ in range(rng.choice((0, 1, 4)))}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint, rng, depth)
    return _scalar(hint, rng)


def _scalar(hint: Any, rng: random.Random) -> Any:
    if hint is str:
        return _text(rng)
    if hint is bool:
        return rng.random() < 0.5
    if hint is int:
        return rng.choice(_INTS)
    if hint is float:
        return rng.choice(_FLOATS)
    return rng.choice((None, _text(rng), rng.choice(_FLOATS)))


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)
