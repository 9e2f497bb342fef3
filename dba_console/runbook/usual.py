"""What a step usually takes: the median of the machine time of earlier runs. Time a person took is no part of it."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dba_console.runbook.summary import Summary

MOST_RUNS = 20
"""The newest ones; a host changes."""


class Usual(Struct, frozen=True):
    """Of one step."""

    seconds: float
    runs: int


def usual_times(runbook: str, earlier: Iterable[Summary]) -> dict[str, Usual]:
    """By step id. Only steps that were walked to their end in a run that was no rehearsal count; a step that was walked
    several times in a run counts with the mean of its rounds."""
    newest = sorted(
        (one for one in earlier if one.runbook == runbook and one.mode == "run"), key=lambda one: one.started_us
    )[-MOST_RUNS:]
    taken: dict[str, list[float]] = {}
    for summary in newest:
        for step in summary.steps:
            if step.state == "ok" and step.rounds:
                taken.setdefault(step.id, []).append(step.machine_s / step.rounds)
    return {step: Usual(median(times), len(times)) for step, times in taken.items()}
