"""How a recording stands, in a word and a sentence."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

LAGGING_US = 5_000_000
"""A recording this far behind is said to lag: five ticks, more than a busy disk needs for a commit."""


class RecorderStatus(Struct, frozen=True):
    """How the recording stands."""

    state: Literal["ok", "lagging", "failed"]
    note: str | None
    """One sentence where the state is not ok."""
    lag_us: int
    """Age of the oldest sample that is not on the disk."""
    recorded: int
    dropped: int


def recorder_status(
    *, now_us: int, oldest_us: int | None, failure: str | None, busy_since_us: int | None, recorded: int, dropped: int
) -> RecorderStatus:
    """The status from monotonic times in microseconds: of the oldest sample not on the disk, of the write under way.

    >>> recorder_status(
    ...     now_us=9_000_000, oldest_us=None, failure=None, busy_since_us=1_000_000, recorded=3, dropped=0
    ... ).note
    'a write has not returned for 8 s: the disk of the recording is stalled'
    """
    lag_us = 0 if oldest_us is None else max(0, now_us - oldest_us)
    if failure is not None:
        return RecorderStatus("failed", failure, lag_us, recorded, dropped)
    if busy_since_us is not None and now_us - busy_since_us > LAGGING_US:
        seconds = (now_us - busy_since_us) // 1_000_000
        note = f"a write has not returned for {seconds} s: the disk of the recording is stalled"
        return RecorderStatus("lagging", note, lag_us, recorded, dropped)
    if lag_us > LAGGING_US:
        return RecorderStatus("lagging", f"{lag_us // 1_000_000} s behind", lag_us, recorded, dropped)
    return RecorderStatus("ok", None, lag_us, recorded, dropped)
