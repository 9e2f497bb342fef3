"""The result of one readiness check of a cluster, and conversion of LSNs."""

from __future__ import annotations

from functools import partial
from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "failed", "unknown"]


class ClusterCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition of a cutover or failover; `breaks`: what would go wrong, `fix`: how to fix it."""

    id: str
    state: State
    text: str
    breaks: str = ""
    fix: str = ""


def _check(state: State, name: str, text: str, *, breaks: str = "", fix: str = "") -> ClusterCheck:
    return ClusterCheck(id=name, state=state, text=text, breaks=breaks, fix=fix)


ok, warning, failed, unknown = (
    partial(_check, "ok"), partial(_check, "warning"), partial(_check, "failed"), partial(_check, "unknown"),
)  # fmt: skip


def lsn_text(value: int) -> str:
    """Return an LSN as text.

    >>> lsn_text(4294967338)
    '1/2A'
    """
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"


def parse_lsn(lsn: str) -> int:
    """Return an LSN in bytes from 0/0.

    >>> parse_lsn("1/2A")
    4294967338
    """
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
