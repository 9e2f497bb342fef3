"""Which rule explains which: declared once, most likely cause first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dba_console.findings.signal import Signal


def _always(effect: Signal, cause: Signal) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Link:
    """`effect` happens because of `cause`, where both are seen and `fits` agrees; `word` joins the two sentences."""

    effect: str
    cause: str
    word: str = " because "
    fits: Callable[[Signal, Signal], bool] = _always


def same(effect_name: str, cause_name: str) -> Callable[[Signal, Signal], bool]:
    """Fits where a number in the evidence of the one is the same as one in that of the other: a pid, a mount."""

    def fits(effect: Signal, cause: Signal) -> bool:
        value = effect.evidence.get(effect_name)
        return value is not None and value == cause.evidence.get(cause_name)

    return fits


LINKS: tuple[Link, ...] = (
    Link("connections-filling", "connection-storm", ": "),
    Link("connections-filling", "io-stalled"),
    Link("connections-filling", "reclaim-stall"),
    Link("connections-filling", "lock-queue"),
    Link("connections-filling", "lock-blocker"),
    Link("connections-filling", "dump-blocks"),
    Link("connections-filling", "idle-in-transaction"),
    Link("io-stalled", "reclaim-stall", ", while "),
    Link("io-slow", "io-stalled"),
    Link("io-slow", "device-saturated"),
)
