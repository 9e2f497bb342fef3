"""Durations of earlier runs of a runbook, read at the start of a run; and this run's summary, written at its end.

Both have a timeout: a disk that hangs costs the summary, not the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from dba_console.core.atomic_files import write_atomically
from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.recording.plan import Plan
from dba_console.recording.run_paths import SUMMARY
from dba_console.runbooks.run_summary import (
    MOST_RUNS,
    ComparisonKey,
    RunSummary,
    TypicalDuration,
    summaries_of,
    typical_durations,
)
from dba_console.runbooks.values import fill_references
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout

DISK_S = 3.0
CLUSTER = "cluster"
"""The input that names a configured cluster: runs on the same cluster are compared whatever node is the target, because
the target changes with each cutover."""


def read_typical_durations(
    sessions: Path, plan: Plan, identity: str, values: Mapping[str, Any], clock: Clock
) -> tuple[str, dict[str, TypicalDuration]]:
    """Return the run's subject and its typical durations by step; empty if unknown or not readable in time. `values`
    are the inputs."""
    try:
        with closing(Lane("runs-past", clock)) as lane:
            about = lane.call(lambda: run_subject(plan, values), DISK_S)
            subject = ComparisonKey(plan.id, identity, about)
            comparable = filter(subject.matches, summaries_of(plan.id, sessions))
            return about, typical_durations(subject, lane.call(lambda: list(islice(comparable, MOST_RUNS)), DISK_S))
    except (LaneTimeout, OSError):
        return "", {}


def run_subject(plan: Plan, values: Mapping[str, Any]) -> str:
    """Return the cluster given as input; else the database of the restored dump, if the archive shows it; else the
    databases given. A restore's target database does not count, because a test creates a new one each night. Reads the
    archive."""
    if any(one.name == CLUSTER for one in plan.inputs) and values.get(CLUSTER):
        return f"cluster {values[CLUSTER]}"
    for block in (block for step in plan.steps for block in step.blocks):
        if block.settings.get("reads") == "pg_restore" and block.settings.get("archive"):
            try:
                database = open_archive(str(fill_references(block.settings["archive"], values))).database
            except (KeyError, ConsoleError):
                continue
            if database is not None:
                return f"a dump of {database}"
    named = (values.get(one.name) for one in plan.inputs if one.type == "database" and not one.secret)
    return ", ".join(str(one) for one in named if one is not None)


def write_summary(directory: Path, summary: RunSummary, clock: Clock) -> None:
    """Write the summary beside the journal; it can be derived again at any time."""
    content = msgspec.json.format(msgspec.json.encode(summary))
    with suppress(LaneTimeout, OSError), closing(Lane("runs-summary", clock)) as lane:
        lane.call(lambda: write_atomically(str(directory), SUMMARY, content, synced=False), DISK_S)
