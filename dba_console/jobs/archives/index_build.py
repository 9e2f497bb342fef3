"""The remaining time of an index build, from pg_stat_progress_create_index: each stage from the time of those before.

A btree scans its table, sorts, and loads the tree; the view counts blocks in the first, nothing in the second and rows
in the last. Other methods have one stage, which scans the table.
"""

from __future__ import annotations

from typing import NamedTuple

MIN_SHARE = 0.05
"""Share of a stage below which its own rate is not used."""
AFTER_SCAN = 1.3
"""Time of a btree's sort and load as a multiple of that of its scan; between a third and three times that."""
LOAD = 0.5
"""Time of its load as a multiple of that of scan and sort."""
SPREAD = 2.0
"""Factor by which a stage that has not begun may take less or more."""
FINISH = 0.025
"""Time of another method after its scan as a multiple of that of the scan: what is still in memory is written."""


class BuildStage(NamedTuple):
    """The stage of an index build at one observation."""

    name: str
    """scan, sort, load; of other methods than btree: whole."""
    share: float | None
    """Share of the stage done; None if the view does not count it."""


class BuildTime(NamedTuple):
    """The remaining seconds of a build, with their range."""

    seconds: float
    least: float
    most: float


def stage_of(phase: str, done: float | None, total: float | None) -> BuildStage | None:
    """Return the stage; `phase` as in the view. None before its scan, and for waits.

    >>> stage_of("building index: scanning table", 5, 10), stage_of("building index", 5, 10)
    (BuildStage(name='scan', share=0.5), BuildStage(name='whole', share=0.5))
    >>> stage_of("building index: sorting live tuples", 0, None), stage_of("initializing", 0, None)
    (BuildStage(name='sort', share=None), None)
    """
    share = None if not total or done is None else min(1.0, max(0.0, done / total))
    if phase == "building index":
        return None if share is None else BuildStage("whole", share)
    step = phase.removeprefix("building index: ") if phase.startswith("building index: ") else ""
    words = {"scanning": "scan", "sorting": "sort", "loading": "load", "merging": "load"}
    name = words.get(step.partition(" ")[0])
    return None if name is None else BuildStage(name, share)


def remaining_build(
    stage: BuildStage, before_s: float, stage_s: float, plain_s: float | None = None
) -> BuildTime | None:
    """Return the remaining time: the build took `before_s` before this stage and `stage_s` in it. None if too little of
    its scan is done.

    `plain_s`: what an index on a column of this table takes, if known. The sort takes no longer, however long a
    function took for each row of the scan.

    >>> remaining_build(BuildStage("whole", 0.5), 0.0, 10.0), remaining_build(BuildStage("scan", 0.5), 0.0, 50.0, 4.0)
    (BuildTime(seconds=10.5, least=10.25, most=11.0), BuildTime(seconds=54.0, least=52.0, most=58.0))
    """
    limit_s = float("inf") if plain_s is None else plain_s
    share = stage.share
    known = share is not None and share >= MIN_SHARE
    if stage.name in ("scan", "whole"):
        if not known or share is None:
            return None
        scan_s = stage_s / share
        after = AFTER_SCAN if stage.name == "scan" else FINISH
        return _range(scan_s - stage_s, min(after * scan_s, limit_s))
    if stage.name == "load" and known and share is not None:
        return _range(stage_s * (1 - share) / share, 0.0)
    if stage.name == "load":
        return _range(0.0, max(0.0, min(LOAD * before_s, limit_s) - stage_s))
    sort_s = (AFTER_SCAN - LOAD) / (1 + LOAD) * before_s
    return _range(0.0, max(0.0, min(sort_s + LOAD * (before_s + max(sort_s, stage_s)), limit_s) - stage_s))


def _range(certain_s: float, likely_s: float) -> BuildTime:
    return BuildTime(certain_s + likely_s, certain_s + likely_s / SPREAD, certain_s + likely_s * SPREAD)
