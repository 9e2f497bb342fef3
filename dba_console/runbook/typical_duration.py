"""What a step, and each block of it, usually takes and took last: machine time of earlier runs, without people's."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dba_console.runbook.summary import RunSummary

MOST_RUNS = 20
"""The newest ones; a host changes."""


class TypicalDuration(Struct, frozen=True):
    """Of one step or block."""

    seconds: float
    """Median."""
    runs: int
    last_s: float
    """In the newest of these runs."""


class ComparisonKey(Struct, frozen=True):
    """What a run is compared by."""

    runbook: str
    identity: str = ""
    """Of the server, in words (`Identity.words`)."""
    about: str = ""
    """The cluster or the databases it is given, or the one whose dump it restores."""

    def matches(self, one: RunSummary) -> bool:
        same_subject = (self.runbook, self.about) == (one.runbook, one.about)
        return same_subject and _server(self.identity) == _server(one.identity)


def _server(identity: str) -> str:
    """What stays the same after a promotion or an update: the system identifier, where it could be read.

    >>> _server("system identifier 7412, primary, timeline 1, PG 15.18"), _server("system identifier ?, primary")
    ('system identifier 7412', 'system identifier ?, primary')
    """
    identifier = identity.partition(", ")[0]
    return identity if identifier.endswith("?") else identifier


def typical_durations(subject: ComparisonKey, earlier: Iterable[RunSummary]) -> dict[str, TypicalDuration]:
    """By id of step and block. Only runs of the same server and database, or cluster, count, for those of others take
    another time; of them only steps that were walked to their end in a run that was no rehearsal. A step that was
    walked several times in a run counts with the mean of its rounds."""
    newest = sorted(
        (one for one in earlier if subject.matches(one) and one.mode == "run"), key=lambda one: one.started_us
    )[-MOST_RUNS:]
    durations: dict[str, list[float]] = {}
    for summary in newest:
        for step in summary.steps:
            if step.state == "ok" and step.rounds:
                times = {step.id: step.machine_s}
                times |= {block.id: block.machine_s for block in step.blocks if block.state == "ok"}
                for part, seconds in times.items():
                    durations.setdefault(part, []).append(seconds / step.rounds)
    return {
        part: TypicalDuration(median(durations_s), len(durations_s), durations_s[-1])
        for part, durations_s in durations.items()
    }
