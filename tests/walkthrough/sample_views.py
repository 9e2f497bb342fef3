"""Runs made by hand, as the agent would send them."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from dba_console.recording.plan import Prose
from dba_console.runbooks.run_view import BlockView, Option, OutputLine, Question, RunTable, RunView, StepView, WaitView

START_US = 1_795_186_387_000_000

STEPS = (
    StepView(id="diagnose", title="Is this a reclaim stall?", state="ok", elapsed_s=3.2),
    StepView(id="before", title="Before", state="ok", elapsed_s=1.0, note="cached 18 GB"),
    StepView(id="announce", title="Tell the team", state="skipped", note="nobody to tell at 3 a.m."),
    StepView(id="drop", title="Drop the page cache", state="waiting", elapsed_s=42.0, usual_s=2.0,
             usual_from="3 runs", point_of_no_return=True),
    StepView(id="after", title="Did I/O come back?", state="pending", usual_s=15.0),
    StepView(id="repeat", title="Repeat while it lasts", state="pending"),
)  # fmt: skip

TYPED = Question(
    id=7, kind="type", text="Drop the page cache of this host?", step="drop", block="drop/action", expects="db2",
    since_us=START_US,
)  # fmt: skip
FAILED = Question(
    id=8, kind="failed", text="The check failed: cached is 200 MB.", step="drop", block="drop/check",
    options=(
        Option(key="retry", text="check again and retry"),
        Option(key="skip", text="skip it", needs_reason=True),
        Option(key="abort", text="abort the run"),
    ),
)  # fmt: skip

DROP = RunView(
    run="20261120T145307Z-cache-drop-a1b2", runbook="cache-drop", title="Drop the page cache during a reclaim stall",
    mode="run", state="waiting", target="db2", identity="system identifier 7412, primary, timeline 1, PG 15.18",
    who="ann", driver="ann", started_us=START_US, directory="/s/runs/20261120T145307Z-cache-drop-a1b2",
    prose=(
        Prose("Why: free memory grows while I/O is dead."),
        Prose("when not: on a healthy host", lead="· ", gap=True),
        Prose("whom: the storage team", lead="· "),
    ),
    steps=STEPS, current="drop",
    step_prose=(
        Prose("The kernel gives back clean pages. What is read next comes from disk, so expect a slow minute."),
    ),
    blocks=(
        BlockView(id="drop/check", kind="check", title="The cache is large", state="ok", note="cached 18 GB (1s old)"),
        BlockView(id="drop/action", kind="action", title="Drop the page cache", state="waiting",
                  exact="echo 1 > /proc/sys/vm/drop_caches", note="frees about 18 GB", usual_s=2.0),
        BlockView(id="drop/measure", kind="measure", title="Memory freed", state="pending"),
    ),
    block="drop/action", question=TYPED, panels=("memory", "io"),
)  # fmt: skip

WAIT = structs.replace(
    DROP, question=None, state="running", current="after", block="after/wait",
    blocks=(BlockView(id="after/wait", kind="wait", title="Reads are back", state="running", elapsed_s=12.0),),
    waiting=WaitView(
        text="io.read_bytes_per_s > 100MB", values="io.read_bytes_per_s 61 MB/s (0.4s old)",
        trend=(1.0, 4.0, 20.0, 61.0), holds_s=0.0, hold_for_s=10.0, timeout_s=600.0, left="about 40 s (estimated)",
    ),
)  # fmt: skip

ENDED = structs.replace(
    DROP, question=None, state="done", current="", block="", blocks=(), ending="Done: I/O came back after 12 s.",
    summary=RunTable(
        columns=("step", "state", "planned", "typical", "actual", "execution", "operator wait"),
        rows=(
            ("diagnose", "ok", "5s", "3.0s", "3.2s", "3.2s", ""),
            ("drop", "ok", "2.0s", "2.0s", "44s", "2.1s", "42s"),
        ),
    ),
)  # fmt: skip

ROWS = RunTable(
    columns=("pid", "usename", "query"),
    rows=(
        ("810", "app", "update public.orders set state = 'paid' where id = 4711"),
        ("811", "app", "update public.orders set state = 'sent' where id = 4711"),
        ("812", "web", "select count(*) from public.orders"),
    ),
    total=3, title="sessions that wait", block="drop/preview", chosen=(True, True, True), look=1,
)  # fmt: skip
CHOSEN = Question(
    id=11, kind="type", text="Cancel 3 sessions. On db2: type `3` (the number affected) to confirm, no to decline",
    step="drop", block="drop/action", expects="3", rows="drop/preview",
)  # fmt: skip
CHOOSING = structs.replace(
    DROP, question=CHOSEN, table=ROWS,
    blocks=(
        BlockView(id="drop/preview", kind="preview", title="sessions that wait", state="ok", note="3 rows"),
        BlockView(id="drop/action", kind="action", title="action", state="waiting",
                  exact="SELECT pg_cancel_backend(pid) for 810, 811, 812"),
    ),
)  # fmt: skip

OUTPUT = tuple(
    OutputLine(START_US + place * 1_000_000, "e" if place == 2 else "o", "CACHEDROP", f"line {place} of it")
    for place in range(1, 31)
)


@dataclass(frozen=True)
class SampleView:
    """A view with its output, for golden text."""

    name: str
    view: RunView
    output: tuple[OutputLine, ...] = ()


SAMPLE_VIEWS = (
    SampleView("typed", DROP, OUTPUT[:3]),
    SampleView("wait", WAIT),
    SampleView(
        "choosing",
        structs.replace(
            CHOOSING,
            table=structs.replace(ROWS, chosen=(True, False, True)),
            question=structs.replace(CHOSEN, text=CHOSEN.text.replace("3", "2").replace("db2:", "db2, 2 of 3 rows:")),
        ),
    ),
    SampleView("failed", structs.replace(DROP, question=FAILED), OUTPUT),
    SampleView("ended", ENDED, OUTPUT),
)
