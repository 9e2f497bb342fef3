"""A job beside its own history: what is usual, and how late it is, at every width."""

from __future__ import annotations

import pytest

from dba_console.watch.drawing.overview import show_text
from dba_console.watch.drawing.text_elements import line_text, line_width
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.layout import compact
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ProgressRow
from tests.panels.golden import assert_golden, text_of

NIGHTLY = ProgressRow(
    kind="pg_dump",
    pid=8001,
    database="appdb",
    object="public.orders",
    phase="data",
    started="2026-11-20T13:15:02Z",
    elapsed_s=6120.0,
    usual_s=3720.0,
    late_s=2400.0,
    blocks=3,
    user="backup",
    wait="Client:ClientWrite",
    query="COPY public.orders (id, customer, total) TO stdout;",
)
RESTORE = ProgressRow(kind="pg_restore", pid=8002, database="copy", elapsed_s=600.0, usual_s=580.0, phase="indexes")
BACKUP = ProgressRow(
    kind="basebackup", pid=8003, pct=80.0, grade="estimated", elapsed_s=4000.0, eta_s=1000.0, usual_s=3000.0,
    late_s=1000.0, phase="streaming database files",
)  # fmt: skip
ROWS = [NIGHTLY, RESTORE, BACKUP]


def frame() -> Frame:
    return Frame(panels={"progress": ProgressPanel(age_s=0.1, operations=ROWS)})


@pytest.mark.parametrize("width", [80, 120])
def test_the_overview_shows_how_late_a_job_is(width: int) -> None:
    assert_golden(f"progress_late_{width}", text_of(compact(frame(), width, 3, ChartHistory())))


def test_the_full_panel_shows_how_late_a_job_is() -> None:
    assert_golden("show_progress_late", show_text(frame(), ["progress"], 120, ChartHistory()))


def test_the_delay_stays_visible_in_little_space() -> None:
    (line,) = compact(frame(), 60, 1, ChartHistory())
    assert "overdue 40m" in line_text(line) and line_width(line) <= 60


def test_a_job_slightly_over_its_typical_duration_is_not_late() -> None:
    line = compact(frame(), 100, 2, ChartHistory())[1]
    assert "typical 9m40s" in line_text(line) and "late" not in line_text(line)
