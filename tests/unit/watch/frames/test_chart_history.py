"""The last minutes of each number."""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory

S = 1_000_000


def test_points_are_returned_oldest_first() -> None:
    history = ChartHistory()
    history.extend([(1 * S, {"a": 1.0}), (2 * S, {"a": 2.0, "b": 5.0})])
    assert history.series("a") == [(1 * S, 1.0), (2 * S, 2.0)]
    assert history.series("b") == [(2 * S, 5.0)]


def test_an_unknown_name_has_no_points() -> None:
    assert ChartHistory().series("a") == []


def test_points_older_than_the_span_are_not_returned() -> None:
    history = ChartHistory(span_s=10)
    history.extend((tick * S, {"a": float(tick)}) for tick in range(1000))
    assert [value for _, value in history.series("a")] == [float(value) for value in range(989, 1000)]


def test_an_ended_series_is_removed() -> None:
    history = ChartHistory(span_s=10)
    history.add(1 * S, {"gone": 1.0})
    history.extend((tick * S, {"a": 0.0}) for tick in range(2, 100))
    assert history.names() == ["a"]


def test_a_clock_set_back_leaves_no_points_in_the_future() -> None:
    history = ChartHistory()
    history.extend((tick * S, {"a": float(tick)}) for tick in range(100, 110))
    history.add(105 * S, {"a": 7.0})
    assert [at // S for at, _ in history.series("a")] == [100, 101, 102, 103, 104, 105]
    assert history.series("a")[-1] == (105 * S, 7.0)


def test_a_tick_added_twice_counts_once() -> None:
    history = ChartHistory()
    history.add(1 * S, {"a": 1.0})
    history.add(1 * S, {"a": 1.0})
    assert history.series("a") == [(1 * S, 1.0)]


def test_a_copy_at_a_time_does_not_change_later() -> None:
    history = ChartHistory()
    history.extend((tick * S, {"a": float(tick)}) for tick in range(10))
    paused = history.until(5 * S)
    history.add(10 * S, {"a": 10.0})
    assert paused.series("a")[-1] == (5 * S, 5.0)


def test_the_points_after_a_time_continue_another_history() -> None:
    history, continued = ChartHistory(), ChartHistory()
    history.extend([(1 * S, {"a": 1.0}), (2 * S, {"a": 2.0, "b": 2.0}), (3 * S, {"b": 3.0})])
    continued.extend(history.points_after(1 * S))
    assert (continued.series("a"), continued.series("b")) == ([(2 * S, 2.0)], [(2 * S, 2.0), (3 * S, 3.0)])
