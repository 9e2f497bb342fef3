"""How far psql is with a script: as far as the file is read, and what follows the data as runs before took it. Pure.

A script has no list of its objects, and its indexes and keys come after the data in a few lines: the share of the file
is that of the data, and says nothing of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from dba_console.agent.jobs.past_runs import JobRun

MIN_RUNS = 2
MIN_SHARE = 0.05
"""Of the file; below it a pace misleads."""
MAX_PCT = 99.0


class ScriptProgress(NamedTuple):
    """How far it is on the whole, and what is left."""

    pct: float
    eta_s: float | None


def estimate_script_progress(
    read: float, elapsed_s: float, read_at_s: float | None, runs: Sequence[JobRun]
) -> ScriptProgress | None:
    """Of a script of which a share (0 to 1) was read; None where no runs before tell what follows its data.

    `read_at_s`: seconds after the start at which all of it had been read.

    >>> from dba_console.agent.jobs.past_runs import RunPhase
    >>> before = [JobRun(0, 1000.0, True, phases=(RunPhase("data", 600.0, 600.0),))] * 2
    >>> estimate_script_progress(0.5, 300.0, None, before), estimate_script_progress(1.0, 800.0, 600.0, before)
    (ScriptProgress(pct=30.0, eta_s=700.0), ScriptProgress(pct=80.0, eta_s=200.0))
    """
    known = [(_data_s(run), run.seconds) for run in runs if _data_s(run) > 0 and run.seconds > 0]
    if len(known) < MIN_RUNS:
        return None
    data_share = min(1.0, median(data / whole for data, whole in known))
    after = median(max(0.0, whole - data) / data for data, whole in known)
    if read_at_s is None:
        eta_s = None
        if read >= MIN_SHARE:
            data_s = elapsed_s / read
            eta_s = data_s - elapsed_s + after * data_s
        return ScriptProgress(min(MAX_PCT, 100.0 * data_share * read), eta_s)
    after_s = after * read_at_s
    passed_s = elapsed_s - read_at_s
    done = min(1.0, passed_s / after_s) if after_s > 0 else 1.0
    eta_s = after_s - passed_s if passed_s < after_s else None
    return ScriptProgress(min(MAX_PCT, 100.0 * (data_share + (1.0 - data_share) * done)), eta_s)


def _data_s(run: JobRun) -> float:
    return next((phase.wall_s for phase in run.phases if phase.name == "data"), 0.0)
