"""A run's journal for tests: a small plan, its document, records as the walk writes them."""

from __future__ import annotations

from pathlib import Path

from dba_console.core.clock import Clock
from dba_console.recording.plan import Block, JournalRecord, Plan, Step
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import run_directory
from dba_console.recording.run_records import RunAbout
from tests.clocks import HeldClock

RUN = "20261120T145307Z-cache-drop-1a2b"
TEXT = "# Drop the cache\n\n## Drop it\n\n```toml {action drop-caches}\nlevel = 1\n```\n"
PLAN = Plan(
    id="cache-drop",
    title="Drop the cache",
    steps=(
        Step(
            id="drop-it",
            title="Drop it",
            line=3,
            blocks=(Block(id="drop-it/action", kind="action", line=5, language="toml", body="", action="drop-caches"),),
        ),
    ),
)
PATIENT_S = 120.0
"""A deadline no loaded machine misses; a test that wants it missed holds the clock or names another."""


def about_run(run: str = RUN, target_key: str = "key1") -> RunAbout:
    return RunAbout(run=run, runbook="cache-drop", title="Drop the cache", target="appdb", target_key=target_key)


def begin_journal(
    session: Path,
    *,
    run: str = RUN,
    secrets: tuple[str, ...] = (),
    clock: Clock | None = None,
    deadline_s: float = PATIENT_S,
    target_key: str = "key1",
) -> RunJournal:
    """The journal of a run that has just begun."""
    return RunJournal.create(
        run_directory(session, run), about_run(run, target_key), text=TEXT, plan=PLAN, secrets=secrets,
        clock=clock or HeldClock(), deadline_s=deadline_s,
    )  # fmt: skip


def record_of(number: int, kind: str = "step.started") -> JournalRecord:
    return JournalRecord(kind=kind, text=f"sentence {number}", step="drop-it", fields={"number": number})


INTENT = JournalRecord(kind="block.intent", text="drops the cache", step="drop-it", block="drop-it/action", execution=1)
RESULT = JournalRecord(kind="block.result", text="dropped", block="drop-it/action", execution=1, state="ok")
ENDED = JournalRecord(kind="run.ended", text="done: the cache was dropped", state="done")
