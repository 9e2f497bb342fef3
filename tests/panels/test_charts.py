"""Charts show what was measured, and nothing where nothing was."""

from __future__ import annotations

from dba_console.watch.drawing.charts import Axis, clock_line, latest, peaks, plot, sparkline, symbol_line
from dba_console.watch.drawing.overview import FrameWithHistory, chart_window_s, panel_title, recent_charts
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from tests.build import NOW_US, busy_frame, busy_history, empty_frame

S = 1_000_000


def test_a_column_without_a_reading_stays_blank_and_a_zero_does_not() -> None:
    assert plot([None, 0.0, 8.0], 0, 8, 1) == [" ▁▇"]


def test_a_flat_line_is_drawn_at_the_bottom() -> None:
    assert plot([5.0, 5.0], 5, 5, 2) == ["  ", "▁▁"]


def test_the_upper_row_fills_only_when_the_lower_one_is_full() -> None:
    assert plot([15.0, 8.0, 1.0], 0, 15, 2) == ["▇  ", "██▁"]


def test_a_spike_of_one_second_survives_ten_minutes() -> None:
    points = [(NOW_US - second * S, 90.0 if second == 300 else 1.0) for second in range(599, -1, -1)]
    columns = peaks(points, Axis(NOW_US - 600 * S, NOW_US, 60))
    assert columns.count(90.0) == 1
    assert columns[29] == 90.0 or columns[30] == 90.0


def test_a_level_is_the_last_value_of_its_column() -> None:
    points = [(NOW_US - 3 * S, 7.0), (NOW_US - 1 * S, 3.0), (NOW_US, 5.0)]
    assert latest(points, Axis(NOW_US - 4 * S, NOW_US, 2)) == [7.0, 5.0]


def test_readings_outside_the_axis_are_not_drawn_at_its_edges() -> None:
    points = [(NOW_US - 700 * S, 99.0), (NOW_US - 600 * S, 98.0), (NOW_US + S, 97.0)]
    assert peaks(points, Axis(NOW_US - 600 * S, NOW_US, 10)) == [None] * 10


def test_the_newest_reading_is_in_the_last_column() -> None:
    axis = Axis(NOW_US - 600 * S, NOW_US, 71)
    assert peaks([(NOW_US, 4.0)], axis)[-1] == 4.0
    assert axis.column(NOW_US) == 70


def test_column_and_peaks_agree_on_the_position_of_a_time() -> None:
    axis = Axis(NOW_US - 600 * S, NOW_US, 71)
    for second in range(1, 600, 7):
        at = NOW_US - second * S
        assert peaks([(at, 1.0)], axis).index(1.0) == axis.column(at)


def test_nan_is_unknown() -> None:
    assert peaks([(NOW_US, float("nan"))], Axis(NOW_US - S, NOW_US, 1)) == [None]


def test_time_labels_are_at_full_minutes() -> None:
    axis = Axis(NOW_US - 600 * S, NOW_US, 60)
    line = clock_line(axis)
    first = line.index("╵")
    # 14:47:29 to 14:57:29 in 60 columns: every column is ten seconds.
    assert line[first : first + 6] == "╵14:48"
    assert first == 3


def test_a_severe_symbol_is_not_hidden_by_a_later_one_in_its_column() -> None:
    axis = Axis(NOW_US - 10 * S, NOW_US, 1)
    assert symbol_line([(NOW_US - 2 * S, "!"), (NOW_US, "m")], axis) == "!"


def test_a_sparkline_has_the_requested_length_and_is_blank_without_history() -> None:
    assert sparkline([], NOW_US, 300, 12, 0, 10) == " " * 12


def test_charts_without_history_say_so_instead_of_drawing_a_flat_line() -> None:
    text = "\n".join(line_text(one) for one in recent_charts(empty_frame(), ChartHistory(), 100, 12))
    assert text.count("no readings yet") == 5
    assert "▁" not in text


def test_an_outage_is_a_gap_in_the_middle_of_the_chart() -> None:
    history = ChartHistory()
    for second in [*range(590, 400, -1), *range(200, -1, -1)]:
        history.add(NOW_US - second * S, {"connections.used": 100.0})
    drawn = line_text(recent_charts(busy_frame(), history, 84, 12)[1]).split("┤")[1].strip()
    before, after = drawn[:15], drawn[-15:]
    assert before == after == "▆" * 15
    assert " " * 15 in drawn
    assert set(drawn) == {"▆", " "}


def connections(seconds: int, *, peak_at: int | None = None, step: int = 1) -> ChartHistory:
    """`seconds` of 10 connections up to now, with one reading of 90."""
    history = ChartHistory()
    for second in range(seconds, -1, -step):
        history.add(NOW_US - second * S, {"connections.used": 90.0 if second == peak_at else 10.0})
    return history


def test_the_number_next_to_a_chart_is_the_last_reading_and_not_a_peak() -> None:
    text = "\n".join(line_text(one) for one in recent_charts(busy_frame(), connections(590, peak_at=2), 100, 22))
    assert "now 10" in text
    assert "now 90" not in text


def test_an_old_reading_is_not_shown_as_current() -> None:
    history = ChartHistory()
    history.add(NOW_US - 60 * S, {"connections.used": 10.0})
    history.add(NOW_US - 59 * S, {"connections.used": 10.0})
    assert "now ?" in "\n".join(line_text(one) for one in recent_charts(busy_frame(), history, 100, 22))


def test_the_stall_next_to_its_chart_is_the_value_of_the_panel() -> None:
    text = "\n".join(line_text(one) for one in recent_charts(busy_frame(), busy_history(), 100, 22))
    assert "10s avg 3.0%" in text


def test_the_axis_starts_at_the_first_reading_and_spans_two_to_ten_full_minutes() -> None:
    spans = [chart_window_s(busy_frame(), connections(seconds), 80) for seconds in (0, 20, 130, 590, 599)]
    assert spans == [120, 120, 180, 600, 600]
    assert line_text(panel_title("charts", FrameWithHistory(busy_frame(), connections(130)), 80)) == "Last 3 minutes"


def test_columns_are_not_narrower_than_the_sampling_interval() -> None:
    assert chart_window_s(busy_frame(), connections(100, step=5), 124) == 540
    assert chart_window_s(busy_frame(), connections(20), 160) == 180
