"""The result of a sweep is stored per target, shown as a table, and validated when it is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dba_console.cli.formatting import format_columns
from dba_console.jobs.tools.job_count_results import (
    HEAD,
    MAX_FILES,
    NUMBER_COLUMNS,
    SweepResult,
    SweepRow,
    conclusion_lines,
    load_result,
    result_path,
    save_result,
    sweep_table,
)

MB = 1 << 20
KEPT = SweepResult(
    jobs=4, best_jobs=8, at_us=1, target="app", database="app", limit="cpu", sentence="the CPUs of this host",
    host="db1", cpus=8, program="15.18", compression=None, place="nowhere", table_bytes=900 * MB, chosen_bytes=900 * MB,
    tables=10, chosen_tables=10, ratio=0.3, took_s=90.0,
    rows=(
        SweepRow(jobs=1, seconds=100.0, measured=False, ran_s=12.0, rate=9.0 * MB, host_busy_pct=14.0, read_pct=None),
        SweepRow(jobs=4, seconds=31.0, measured=True, ran_s=31.0, rate=29.0 * MB, host_busy_pct=60.0, read_pct=0.0),
        SweepRow(jobs=8, seconds=30.0, measured=True, ran_s=30.0, rate=30.0 * MB, host_busy_pct=97.0, read_pct=0.0),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_saved_result_is_read_back_and_replaced() -> None:
    assert load_result("abc") is None
    path = save_result("abc", KEPT)
    assert load_result("abc") == KEPT
    assert path.stat().st_mode & 0o777 == 0o600
    save_result("abc", replace(KEPT, jobs=2))
    found = load_result("abc")
    assert found is not None and found.jobs == 2
    assert load_result("other") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"jobs": 0}', b"[]", b"\xff"])
def test_a_damaged_file_counts_as_missing(content: bytes) -> None:
    save_result("abc", KEPT)
    result_path("abc").write_bytes(content)
    assert load_result("abc") is None


def test_another_format_or_a_missing_number_counts_as_missing() -> None:
    save_result("abc", replace(KEPT, version=99))
    assert load_result("abc") is None
    save_result("abc", replace(KEPT, jobs=0))
    assert load_result("abc") is None


def test_no_more_files_are_kept_than_needed() -> None:
    for number in range(MAX_FILES + 5):
        path = save_result(f"{number:04}", KEPT)
    assert len(list(path.parent.iterdir())) == MAX_FILES
    assert load_result(f"{MAX_FILES + 4:04}") == KEPT


def test_the_table_marks_the_fewest_and_the_best_jobs() -> None:
    assert format_columns(HEAD, sweep_table(KEPT), right=NUMBER_COLUMNS).splitlines() == [
        "jobs     time  of one       rate  host busy  from disk",
        "   1  ~100.0s    1.00   9.0 MB/s        14%          ?",
        "   4    31.0s    0.31  29.0 MB/s        60%         0%  ← recommended",
        "   8    30.0s    0.30  30.0 MB/s        97%         0%  ← fastest",
    ]


def test_the_conclusion_names_the_fewest_and_the_best_jobs_and_the_limit() -> None:
    lines = conclusion_lines(KEPT)
    assert lines[0] == "-j 4: 31.0s for 900 MB of tables in app"
    assert lines[1] == "the fastest was -j 8 with 30.0s, hardly better"
    assert lines[2] == "limited by the CPUs of this host"
    assert any(line.startswith("~: estimated") for line in lines)
