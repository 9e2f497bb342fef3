"""One job in full, and the history of all: laid out for a tired reader, at any width, whatever the tables' names."""

from __future__ import annotations

import pytest
from msgspec import structs

from dba_console.jobs.history.duration_trend import JobWindows, TargetJobHistory
from dba_console.jobs.pages.history_page import history_detail, job_runs_detail
from dba_console.jobs.pages.job_page import find_row, job_page
from dba_console.watch.drawing.text_elements import Detail, line_text, line_width, table_lines
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.layout import compact, row_key
from dba_console.watch.progress.rows import ProgressRow
from tests.jobs import HOSTILE, NOW_US, dump_row, frame_of, job, nightly_runs
from tests.panels.golden import assert_golden, text_of
from tests.panels.random_frames import random_frame

WINDOWS = JobWindows(3 * 3600.0, {"pg_dump of short": 600.0})
PAST = TargetJobHistory(
    jobs=(
        job(),
        job("short", nightly_runs(3)),
        job(HOSTILE[2], nightly_runs(30, grows_s=0.0)),
        job(
            "bad", (*nightly_runs(9), structs.replace(nightly_runs(1)[0], exit=1, errors=3, last_error="no such role"))
        ),
    ),
    until_us=NOW_US,
)


def page(row: ProgressRow, width: int, frame: Frame | None = None) -> str:
    return text_of(job_page(frame or frame_of(row), row, width))


def detail_text(detail: Detail, width: int) -> str:
    (table,) = detail.tables
    return text_of([*detail.head, (), *table_lines(table.columns, table.rows, width)])


@pytest.mark.parametrize("width", [80, 160])
def test_the_job_page_matches_its_golden_text(width: int) -> None:
    assert_golden(f"job_page_{width}", page(dump_row(), width))


@pytest.mark.parametrize("width", [80, 160])
def test_the_history_matches_its_golden_text(width: int) -> None:
    assert_golden(f"job_history_{width}", detail_text(history_detail(PAST, WINDOWS, width), width))
    assert_golden(f"job_runs_{width}", detail_text(job_runs_detail(PAST.jobs[3], WINDOWS, width), width))


@pytest.mark.parametrize("width", [40, 80, 160])
def test_hostile_names_are_sanitized_and_move_no_column(width: int) -> None:
    row = dump_row(names=HOSTILE[:4])
    lines = job_page(frame_of(row), row, width)
    shown = [line_text(one) for one in lines if "table data" in line_text(one) or "▇" in line_text(one)]
    assert all(line_width(one) == width for one in lines)
    assert all(text.isprintable() for text in shown) and shown
    running = [one for one in shown if "≈9m" in one]
    assert len(running) == 4 or width < 60


def test_ten_thousand_tables_do_not_lengthen_the_page_and_running_ones_come_first() -> None:
    text = page(dump_row(10_000), 80)
    assert "8000 of 10000, 4▶" in text and "… and 1983 more" in text
    assert len(text.splitlines()) < 120
    assert text.index("running") < text.index("waiting, largest first") < text.index("done, last first")


def test_errors_and_a_disk_too_small_come_first_also_in_the_overview() -> None:
    row = structs.replace(dump_row(), fits=False, need_bytes=90e9, late_s=600.0)
    first = page(row, 80).splitlines()[:6]
    assert "! 1 error so far" in first[0] and "will be full before it ends" in first[1]
    assert any("overdue by 10m" in one for one in first)
    (line,) = compact(frame_of(row), 80, 1, ChartHistory())
    assert "1 error, not enough disk" in line_text(line) and line_width(line) <= 80


def test_unknown_values_are_reported_and_never_a_number() -> None:
    row = ProgressRow(
        kind="pg_restore", pid=7, process=9, scope="whole", mount="/data", unknown=["its archive: denied"]
    )
    text = page(row, 80)
    assert "progress unknown" in text and "time left unknown" in text and "unknown if this is enough" in text
    assert "its archive: denied" in text and "0%" not in text


def test_progress_of_a_phase_is_never_shown_as_progress_of_the_whole() -> None:
    row = ProgressRow(kind="create_index", pid=7, object="i", phase="loading tuples", pct=41.0, grade="measured",
                      elapsed_s=60.0, eta_s=90.0)  # fmt: skip
    text = page(row, 80)
    assert "41% of phase loading tuples, measured" in text and "left of this phase 1m30s" in text
    for width in (40, 60, 80, 120):
        (line,) = compact(frame_of(row), width, 1, ChartHistory())
        assert "loading" in line_text(line) or "of phase" in line_text(line)
        assert "phase left" in line_text(line) or width == 40
        assert line_width(line) <= width


def test_a_row_keeps_its_identity_when_its_process_becomes_known() -> None:
    young = ProgressRow(kind="pg_dump", pid=8001, started="2026-11-20T14:10:03Z")
    found = find_row(frame_of(dump_row()), row_key(young), 8002)
    assert found is not None and found.process == 812
    assert find_row(frame_of(), row_key(young), 8001) is None


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_row_contains_its_page_is_sanitized_and_fits(seed: int) -> None:
    frame = random_frame(seed)
    for row in frame.progress.operations:
        for width in (20, 40, 80, 200):
            lines = job_page(frame, row, width)
            assert all(line_width(one) <= max(21, width) for one in lines)
            assert all(line_text(one).isprintable() for one in lines)
