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


class Subject(Struct, frozen=True):
    """What a run is compared by."""

    runbook: str
    identity: str = ""
    """Of the server."""
    about: str = ""
    """The databases it is given, or the one whose dump it restores."""

    def is_of(self, one: Summary) -> bool:
        return (self.runbook, self.identity, self.about) == (one.runbook, one.identity, one.about)


def usual_times(subject: Subject, earlier: Iterable[Summary]) -> dict[str, Usual]:
    """By step id. Only runs of the same server and database count, for those of others take another time; of them only
    steps that were walked to their end in a run that was no rehearsal. A step that was walked several times in a run
    counts with the mean of its rounds."""
    newest = sorted(
        (one for one in earlier if subject.is_of(one) and one.mode == "run"), key=lambda one: one.started_us
    )[-MOST_RUNS:]
    taken: dict[str, list[float]] = {}
    for summary in newest:
        for step in summary.steps:
            if step.state == "ok" and step.rounds:
                taken.setdefault(step.id, []).append(step.machine_s / step.rounds)
    return {step: Usual(median(times), len(times)) for step, times in taken.items()}
