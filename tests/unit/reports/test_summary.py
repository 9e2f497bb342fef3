"""The diary of a period: what happened, how it grows, when a limit is reached, what was not recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import html5lib
import pytest

from dba_console.jobs.history.duration_trend import JobWindows
from dba_console.reports.summary import (
    HTML,
    JSON,
    MARKDOWN,
    PeriodSummary,
    ServerSummary,
    summarize_period,
    summary_documents,
    summary_object,
)
from dba_console.watch.drawing.time_formats import format_rfc3339
from tests.unit.recording.run_journals import RUN, begin_journal
from tests.unit.reports.weeks import DAY_US, END_US, GB, HOUR_US, START_US, week, write_history

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return week(tmp_path_factory.mktemp("week"))


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    write_history(tmp_path)


def summarized(paths: list[Path], from_us: int = START_US, to_us: int = END_US) -> PeriodSummary:
    shares: list[float] = []
    found = summarize_period(paths, from_us, to_us, JobWindows(6000.0), shares.append)
    assert shares in ([1.0], [])
    return found


def only(found: PeriodSummary) -> ServerSummary:
    [server] = found.servers
    return server


def test_findings_are_counted_with_their_times_and_their_worst_moment(sessions: list[Path]) -> None:
    found = only(summarized(sessions)).findings
    assert [(one.id, one.severity, one.times, one.open_s / HOUR_S, one.longest_s / HOUR_S) for one in found] == [
        ("disk-full", "critical", 1, 8.0, 8.0), ("lock-blocker", "critical", 2, 4.0, 3.0),
    ]  # fmt: skip
    assert (found[1].worst_us, found[1].worst_text) == (START_US + 31 * HOUR_US, "40 sessions wait")
    assert [one.open_at_end for one in found] == [True, False]


def test_only_the_part_within_the_period_counts(sessions: list[Path]) -> None:
    found = only(summarized(sessions, START_US + 32 * HOUR_US, START_US + 50 * HOUR_US))
    assert [(one.id, one.times, one.open_s / HOUR_S) for one in found.findings] == [("lock-blocker", 1, 1.0)]
    assert [one.runs for one in found.jobs] == [1]
    assert found.growth[0].first_bytes == 100 * GB + 16 * GB


def test_growth_and_dates_to_come_are_the_trend_of_the_period(sessions: list[Path]) -> None:
    server = only(summarized(sessions))
    growth = [(one.name, one.change_bytes // GB, round((one.per_day_bytes or 0) / GB)) for one in server.growth]
    assert growth == [("shop", 84, 12), ("/data", 168, 24)]
    dates = {one.what: format_rfc3339(one.at_us or 0)[:10] for one in server.dates}
    assert dates == {
        "autovacuum is forced to freeze": "2026-11-29",
        "pg_dump of app outgrows its window of 1h40": "2026-12-07",
        "/data is full": "2026-12-15",
        "transaction ids run out, unless a vacuum freezes": "2027-02-18",
    }
    assert "432 GB free; 24.0 GB a day" in next(one.based_on for one in server.dates if one.what == "/data is full")


def test_no_date_is_given_from_hours(sessions: list[Path]) -> None:
    server = only(summarized(sessions, START_US, START_US + 6 * HOUR_US))
    assert [one.what for one in server.dates] == ["pg_dump of app outgrows its window of 1h40"]
    assert {one.per_day_bytes for one in server.growth} == {None}


def test_dumps_have_trend_and_result(sessions: list[Path]) -> None:
    [job] = only(summarized(sessions)).jobs
    assert (job.name, job.runs, job.failed) == ("pg_dump of app", 7, 1)
    assert "exceeds its window of 1h40 from about 2026-12-07" in " ".join(job.forecast)
    assert "password=********" in job.last_error


def test_a_copied_session_shows_the_dumps_it_saw_end(
    sessions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another host"))
    server = only(summarized(sessions))
    [job] = server.jobs
    assert (job.name, job.runs, job.failed, job.last_s) == ("pg_dump of app", 1, 1, 3600.0)
    assert server.jobs_note == "from the events of these sessions: the job history of this server is not on this host"


def test_runs_and_rehearsals_are_listed(tmp_path: Path) -> None:
    [first, _] = week(tmp_path / "week")
    begin_journal(first)
    [run] = only(summarized([first])).runs
    assert (run.run, run.runbook, run.state) == (RUN, "cache-drop", "running")


def test_what_was_not_recorded_is_named(sessions: list[Path]) -> None:
    server = only(summarized(sessions, START_US - DAY_US))
    gaps = [(gap.from_us, (gap.to_us - gap.from_us) // HOUR_US) for gap in server.gaps]
    assert gaps == [(START_US - DAY_US, 24), (START_US + 71 * HOUR_US, 7)]
    assert server.gaps[0].reason == "before the first of these sessions"
    assert server.gaps[1].reason.endswith(" ended: the requested time is over")
    assert server.recorded_s == (7 * 24 - 7) * HOUR_S


def test_a_damaged_session_is_summarized_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    first, second = week(tmp_path / "week")
    with open(first / "session.samples", "r+b") as file:
        file.truncate((first / "session.samples").stat().st_size // 2)
    (second / "session.db").write_bytes(b"x" * 5000)
    (second / "session.samples").unlink()
    found = summarized([first, second])
    assert len(found.missing) == 1
    assert "cannot read the recording" in found.missing[0]
    server = only(found)
    assert server.missing[0].startswith(f"{server.sessions[0].id}: the recording is damaged")
    assert server.findings


def test_no_session_in_the_period_is_stated(sessions: list[Path]) -> None:
    found = summarized(sessions, END_US + DAY_US, END_US + 2 * DAY_US)
    assert found.servers == []
    assert "No session recorded anything" in summary_documents(found, END_US)[MARKDOWN]


def test_hostile_text_is_only_text_in_every_form(sessions: list[Path]) -> None:
    found = summarized(sessions, START_US, START_US + 12 * HOUR_US)
    forms = summary_documents(found, END_US)
    whole = "".join(forms.values()) + "".join(summary_documents(summarized(sessions), END_US).values())
    assert "geheim" not in whole
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", whole)
    assert "&lt;script&gt;alert(1)" in forms[HTML]
    assert "<script" not in forms[HTML] + forms[MARKDOWN]
    rows = [line for line in forms[MARKDOWN].splitlines() if line.startswith("| lock-blocker")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 8
    assert json.loads(forms[JSON]) == summary_object(found)


def test_the_html_needs_nothing_from_outside(sessions: list[Path]) -> None:
    html = summary_documents(summarized(sessions), END_US)[HTML]
    assert not re.search(r"(?i)\s(src|href)=\"(?!#)|url\(|@import|<link|<script", html)
    assert "default-src 'none'" in html
    html5lib.HTMLParser(strict=True).parse(html)
    assert "prefers-color-scheme: dark" in html
    assert len(html) < 100_000


def test_times_are_shown_in_utc_with_the_zone_of_the_reader(
    sessions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        forms = summary_documents(summarized(sessions), END_US)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "this host's zone is EST (UTC-05:00)" in forms[MARKDOWN]
    assert '<time datetime="2026-11-21T07:00:00Z">2026-11-21 07:00:00</time>' in forms[HTML]
    assert '"worst":"2026-11-21T07:00:00Z"' in forms[JSON]
