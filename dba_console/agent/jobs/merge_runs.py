"""One run seen by several agents of a server is one run: their lists of runs joined. Pure.

Each agent sees all sessions of the server, so a run that two of them watched is in both lists, with times that differ
by what lies between two looks, and by whether its program was found or its sessions only.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from dba_console.agent.jobs.past_runs import JobRun, trim_runs

SAME_RUN_TOLERANCE_US = 5_000_000
SAME_RUN_TOLERANCE_SHARE = 0.05
"""So far apart both beginning and end of one run may be told, whichever is more: by its program or by its sessions, by
one look or by the next."""


def merge_runs(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[JobRun]:
    """All runs of both lists, each once, by their ends; at most as many as are remembered. Both lists are of one job.

    >>> a, b, c = JobRun(0, 600.0, True), JobRun(1_000_000, 601.0, True, bytes=5), JobRun(9_000_000_000, 600.0, True)
    >>> merge_runs([a, c], [b]) == [JobRun(1_000_000, 601.0, False, bytes=5), c]
    True
    """
    ours, others = _with_first_unlinked(ours), _with_first_unlinked(others)
    pairs = find_same_runs(ours, others)
    runs = [_more_complete(ours[at], others[there]) for at, there in pairs]
    both, theirs = {at for at, _ in pairs}, {there for _, there in pairs}
    runs += [run for at, run in enumerate(ours) if at not in both]
    runs += [run for there, run in enumerate(others) if there not in theirs]
    return trim_runs(sorted(runs, key=lambda run: (run.ended_us, run.started_us)))


def find_same_runs(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[tuple[int, int]]:
    """Places in both lists of what is one run: each is at most one of the other list, that which began nearest.

    Of a job that ran twice at once both lists have both.
    """
    near = [
        (abs(mine.started_us - theirs.started_us), at, there)
        for at, mine in enumerate(ours)
        for there, theirs in enumerate(others)
        if _is_same_run(mine, theirs)
    ]
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, at, there in sorted(near):
        if at not in pairs and there not in taken:
            pairs[at] = there
            taken.add(there)
    return list(pairs.items())


def _is_same_run(one: JobRun, other: JobRun) -> bool:
    apart_us = max(SAME_RUN_TOLERANCE_US, SAME_RUN_TOLERANCE_SHARE * 1e6 * max(one.seconds, other.seconds))
    began_us, ended_us = abs(one.started_us - other.started_us), abs(one.ended_us - other.ended_us)
    return began_us <= apart_us and ended_us <= apart_us


def _with_first_unlinked(runs: Sequence[JobRun]) -> list[JobRun]:
    """The first run of a list says nothing of what was before it: what it followed is forgotten, or was not watched."""
    return [structs.replace(run, unbroken=run.unbroken and index > 0) for index, run in enumerate(runs)]


def _more_complete(one: JobRun, other: JobRun) -> JobRun:
    """The one of which more is known. The time before it was watched if one of the agents did."""
    best = max(one, other, key=lambda run: (sum(one not in (None, ()) for one in structs.astuple(run)), run.seconds))
    return structs.replace(best, unbroken=one.unbroken or other.unbroken)
