"""One condition of a cutover, and what is read of positions in the WAL."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "failed", "unknown"]


class ClusterCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition. `breaks` says what would go wrong, `fix` how it is mended."""

    id: str
    state: State
    text: str
    breaks: str = ""
    fix: str = ""


def ok(name: str, text: str) -> ClusterCheck:
    return ClusterCheck(id=name, state="ok", text=text)


def warning(name: str, text: str, *, breaks: str = "", fix: str = "") -> ClusterCheck:
    return ClusterCheck(id=name, state="warning", text=text, breaks=breaks, fix=fix)


def failed(name: str, text: str, *, breaks: str = "", fix: str = "") -> ClusterCheck:
    return ClusterCheck(id=name, state="failed", text=text, breaks=breaks, fix=fix)


def unknown(name: str, text: str, *, breaks: str = "", fix: str = "") -> ClusterCheck:
    return ClusterCheck(id=name, state="unknown", text=text, breaks=breaks, fix=fix)


def lsn_text(value: int) -> str:
    """
    >>> lsn_text(4294967338)
    '1/2A'
    """
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"


def parse_lsn(lsn: str) -> int:
    """
    >>> parse_lsn("1/2A")
    4294967338
    """
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
