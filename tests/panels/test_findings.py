"""Findings as sentences, and one with its evidence charted around its start."""

from __future__ import annotations

import pytest

from dba_console.watch.console.panel import EventRow
from dba_console.watch.drawing.findings import (
    all_evidence_lines,
    chart_period,
    compact,
    detail,
    fill_between_readings,
    list_lines,
    sort_by_urgency,
)
from dba_console.watch.drawing.overview import overview
from dba_console.watch.drawing.text_elements import Line, line_text, line_width, scrolled_lines
from dba_console.watch.drawing.time_formats import parse_rfc3339
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame
from tests import build

SINCE = "2026-11-20T14:55:02Z"
SINCE_US = parse_rfc3339(SINCE) or 0
SENTENCE = (
    "Connections fill (244 of 247, +38/min) because queries wait for I/O: 61 % of the last 10 s fully stalled, while "
    "page cache fell 4.1 GB and free memory rose 4.0 GB: memory reclaim (kswapd, no shortage)"
)


def finding(name: str = "reclaim-stall", severity: str = "critical", **more: object) -> Finding:
    return Finding(
        id=name,
        rule=name,
        severity=severity,
        subject="",
        text=more.pop("text", SENTENCE),  # type: ignore[arg-type]  # as the tests give it
        since=SINCE,
        at="2026-11-20T14:57:20Z",
        **more,  # type: ignore[arg-type]  # as the tests give it
    )


def text(lines: list[Line]) -> str:
    return "\n".join(line_text(line) for line in lines)


def busy(*findings: Finding) -> Frame:
    frame = build.busy_frame()
    frame.findings, frame.judged = list(findings), True
    return frame


def test_a_sentence_too_long_for_its_line_is_wrapped_if_there_is_space() -> None:
    lines = list_lines([finding(runbook="cache-drop")], 80, 6)
    assert len(lines) == 4
    assert all(line_width(line) <= 80 for line in lines)
    assert " ".join(line_text(line).strip() for line in lines).endswith("(kswapd, no shortage)  → r")


def test_without_space_the_most_severe_are_kept_and_cut() -> None:
    kept = list_lines([finding("a", "warning"), finding("b", "critical", text="b is worse")], 80, 1)
    assert len(kept) == 1 and "b is worse" in line_text(kept[0])


def test_urgent_findings_come_first_then_acknowledged_ones_then_remarks_then_silenced_ones() -> None:
    findings = [
        finding("silenced", "critical", state="silenced"),
        finding("remark", "info"),
        finding("known", "warning", state="acknowledged"),
        finding("small", "warning"),
        finding("bad", "critical"),
    ]
    assert [one.id for one in sort_by_urgency(findings)] == ["bad", "small", "known", "remark", "silenced"]


def test_no_finding_is_shown_only_if_the_rules_were_evaluated(frame: Frame) -> None:
    frame.findings, frame.judged = [], False
    assert "rules not evaluated yet" in text(compact(frame, 80, 3, ChartHistory()))
    frame.judged = True
    assert "no findings" in text(compact(frame, 80, 3, ChartHistory()))


def test_failed_rules_are_reported_above_the_findings() -> None:
    frame = busy()
    frame.findings_note = "some rules could not be evaluated: io-slow: ZeroDivisionError"
    assert "io-slow" in text(list(detail(frame, 80, ChartHistory()).head))


def test_the_overview_shows_urgent_findings_and_counts_the_rest() -> None:
    calling, remark = finding(), finding("checksums-off", "info", text="checksums are off")
    silenced = finding("disk-filling:/pg", state="silenced", text="/pg fills")
    shown = text(overview(busy(calling, remark, silenced), build.busy_history(), 80, 22))
    assert "Connections fill (244 of 247" in shown
    assert "Findings 1 critical, 1 info, 1 silenced · Events" in shown
    assert "checksums are off" not in shown and "/pg fills" not in shown


def test_the_event_that_raised_an_open_finding_is_not_shown_twice() -> None:
    frame = busy(finding())
    raised = EventRow(
        at=SINCE, kind="finding.raised", tag="DBACONSOLE", text="finding raised: twice", severity="critical"
    )
    raised.finding = "reclaim-stall"
    frame.events.rows.append(raised)
    assert "twice" not in text(overview(frame, build.busy_history(), 80, 48))
    frame.findings = []
    assert "twice" in text(overview(frame, build.busy_history(), 80, 48))


def test_the_evidence_screen_has_sentence_numbers_causes_and_charts() -> None:
    one = finding(
        evidence={"used": 244, "psi_full_pct": 61.0, "cached_fell_bytes": 4_402_341_478, "who": None},
        chain=["connections-filling", "io-stalled", "reclaim-stall"],
        series=["connections.used", "memory.cached_bytes"],
        advice="look at dmesg for who wrote drop_caches",
        runbook="cache-drop",
    )
    shown = text(scrolled_lines(all_evidence_lines(busy(one), one, build.busy_history(), 80, 22), 0, 22))
    for words in (
        "used 244 · psi full 61% · cached fell 4.1 GB",
        "unknown: who",
        "connections-filling ← io-stalled ← reclaim-stall",
        "hint: look at dmesg",
        "runbook: cache-drop",
        "around its start",
        "events",
    ):
        assert words in shown


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 22), (160, 48)])
def test_the_evidence_fits_its_area_at_any_size(width: int, height: int) -> None:
    one = finding(series=["connections.used", "memory.cached_bytes", "io.psi_full_pct"], evidence={"used": 1})
    lines = scrolled_lines(all_evidence_lines(busy(one), one, build.busy_history(), width, height), 0, height)
    assert len(lines) <= height
    assert all(line_width(line) <= width for line in lines)


def test_the_charts_span_the_time_around_the_start() -> None:
    now_us = SINCE_US + 3_600_000_000
    history = ChartHistory()
    history.extend((SINCE_US + second * 1_000_000, {"connections.used": 1.0}) for second in range(-300, 300))
    start_us, end_us = chart_period(SINCE_US, now_us, history)
    assert (start_us - SINCE_US, end_us - SINCE_US) == (-180_000_000, 420_000_000)


def test_a_start_before_any_data_shows_the_available_data() -> None:
    now_us = SINCE_US + 3_600_000_000
    history = ChartHistory()
    history.extend((now_us - second * 1_000_000, {"connections.used": 1.0}) for second in range(120, 0, -1))
    start_us, end_us = chart_period(SINCE_US, now_us, history)
    assert start_us <= now_us - 119_000_000 and end_us == now_us


def test_the_most_severe_sentence_gets_the_available_space_and_no_more() -> None:
    small, bad = finding("a", "warning"), finding("b", "critical", text=SENTENCE.replace("Connections", "Sessions"))
    shown = [line_text(line) for line in list_lines([small, bad], 80, 4)]
    assert len(shown) == 4
    assert shown[0].startswith("‼ ") and "Sessions fill" in shown[0] and shown[2].endswith("no shortage)")
    assert shown[3].startswith("! ") and "Connections fill" in shown[3]


def test_three_severities_have_three_symbols_the_critical_one_first() -> None:
    shown = list_lines([finding("a", "info"), finding("b", "warning"), finding("c", "critical")], 80, 3)
    assert [line_text(line)[0] for line in shown] == ["‼", "!", "i"]


def test_a_narrow_list_gives_its_cells_to_the_sentence_and_a_wide_one_shows_more() -> None:
    frame = busy(finding(state="acknowledged", runbook="cache-drop"))
    (narrow,), (wide,) = detail(frame, 80, ChartHistory()).tables, detail(frame, 160, ChartHistory()).tables
    assert [column.id for column in narrow.columns] == ["sign", "since", "age", "severity", "text"]
    assert [column.id for column in wide.columns][-2:] == ["state", "runbook"]
    assert [cell.text for cell in wide.rows[0].cells][-2:] == ["acknowledged", "cache-drop"]
    assert narrow.rows[0].cells[0].text == "a"


def test_hidden_lines_are_announced_and_reached_by_scrolling() -> None:
    one = finding(series=["connections.used", "memory.cached_bytes"], advice="first do this, then that " * 10)
    frame, history = busy(one), build.busy_history()
    lines = all_evidence_lines(frame, one, history, 60, 10)
    first = text(scrolled_lines(lines, 0, 10))
    assert "more lines" in first and "around its start" not in first
    last = text(scrolled_lines(lines, len(lines) - 10, 10))
    assert "more lines" not in last and "cached" in last and "events" in last


@pytest.mark.parametrize(
    ("read_s", "words", "absent"),
    [
        pytest.param(range(-180, 421), ("connections", "15:02:02 7"), " now ", id="it ends in the past"),
        pytest.param(range(3480, 3600), ("it began earlier", " now 7"), "around its start", id="older than the data"),
    ],
)
def test_a_chart_says_which_time_it_shows(read_s: range, words: tuple[str, ...], absent: str) -> None:
    one = finding(series=["connections.used"])
    frame = busy(one)
    frame.at_us = SINCE_US + 3_600_000_000
    history = ChartHistory()
    history.extend((SINCE_US + second * 1_000_000, {"connections.used": 7.0}) for second in read_s)
    shown = text(scrolled_lines(all_evidence_lines(frame, one, history, 80, 22), 0, 22))
    assert all(word in shown for word in words) and absent not in shown


def test_a_column_spans_at_least_one_reading_however_wide_the_screen() -> None:
    history = ChartHistory()
    history.extend((SINCE_US + second * 1_000_000, {"connections.used": 7.0}) for second in range(-10, 10))
    start_us, end_us = chart_period(SINCE_US, SINCE_US + 10_000_000, history, 130)
    assert end_us == SINCE_US + 10_000_000 and end_us - start_us >= 130_000_000


def test_slowly_read_values_are_filled_between_readings_and_a_gap_stays_a_gap() -> None:
    second = 1_000_000
    points = [(at * second, float(at)) for at in (0, 5, 10, 40, 45)]
    level, rate = (fill_between_readings(points, second, forward=forward) for forward in (True, False))
    assert [(at // second, value) for at, value in level][:7] == [
        (0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (5, 5.0), (6, 5.0),
    ]  # fmt: skip
    assert (7 * second, 10.0) in rate
    assert not [at for at, _ in level if 10 * second < at < 40 * second]


def test_values_read_every_tick_are_charted_as_read() -> None:
    points = [(at * 1_000_000, 1.0) for at in range(5)]
    assert fill_between_readings(points, 1_100_000, forward=True) == points


def test_evidence_with_a_long_name_keeps_its_end_and_the_field_next_to_the_chart() -> None:
    path = "/srv/postgresql/14/main/tablespaces/archive"
    one = finding("disk-filling", series=[f"mount:{path}.used_bytes", "slot:old_replica.retained_bytes"])
    frame, history = busy(one), build.busy_history()
    for second in range(60):
        history.add(SINCE_US + second * 1_000_000, {f"mount:{path}.used_bytes": 5e9 + second, **_SLOT})
    shown = text(scrolled_lines(all_evidence_lines(frame, one, history, 80, 22), 0, 22))
    assert "aces/archive used" in shown and "old_replica retained" in shown


_SLOT = {"slot:old_replica.retained_bytes": 9e6}


def test_an_effect_of_the_cause_is_not_listed_as_its_cause() -> None:
    one = finding(chain=["connections-filling", "reclaim-stall", "lock-blocker"])
    shown = text(scrolled_lines(all_evidence_lines(busy(one), one, build.busy_history(), 80, 22), 0, 22))
    assert "because: connections-filling ← reclaim-stall; also lock-blocker" in shown


def test_on_a_small_screen_the_charts_come_before_the_numbers() -> None:
    names = ["connections.waiting", "io.iowait_pct", "connections.used", "memory.cached_bytes", "io.psi_full_pct"]
    one = finding(series=names, evidence={f"number_{place}_bytes": place for place in range(60)})
    lines = scrolled_lines(all_evidence_lines(busy(one), one, build.busy_history(), 80, 20), 0, 20)
    shown = text(lines)
    assert shown.index("connections ") < shown.index("I/O full stall") < shown.index("cached ")
    assert "more lines" in shown
