"""A history knows what it has watched: through restarts of the agent, outages, and clocks that are set."""

from __future__ import annotations

from dba_console.jobs.history.kept_history import MAX_JOBS, JobHistory
from dba_console.jobs.history.run_statistics import RunFacts
from dba_console.watch.samples.jobs import JobKey, JobStatistics
from tests.build import NOW_US

KEY: JobKey = ("pg_dump", "appdb", "backup")
HOUR = 3600
BOOT_S = 1000
"""Monotonic second at which the host's wall clock shows NOW_US."""


def wall(at_s: float, set_by_s: float = 0.0) -> int:
    return NOW_US + int((at_s + set_by_s) * 1e6)


def mono(at_s: float) -> int:
    return int((BOOT_S + at_s) * 1e6)


def nights(count: int, seconds: float = HOUR) -> JobHistory:
    """One run a day, the last of which has just ended; watched without a break."""
    history = JobHistory(mono(0))
    for day in range(1, count + 1):
        history.add_run(KEY, seconds, mono(day * 24 * HOUR), wall(day * 24 * HOUR), mono(day * 24 * HOUR))
    return history


def past(history: JobHistory, at_s: float, set_by_s: float = 0.0) -> JobStatistics:
    (one,) = history.past_jobs(wall(at_s, set_by_s), mono(at_s))
    return one


END_S = 5 * 24 * HOUR


def test_runs_watched_without_a_gap_have_an_interval() -> None:
    one = past(nights(5), END_S)
    assert (one.runs, one.usual_s, one.interval_s, one.intervals) == (5, HOUR, 24 * HOUR, 4)
    assert (one.last_ended_us, one.last_s) == (wall(END_S), HOUR)
    assert one.watched_since_us == wall(0)


def test_dumps_of_each_format_have_their_own_duration_and_interval() -> None:
    history = JobHistory(mono(0))
    for day in range(1, 6):
        for hour, seconds, form in ((0, HOUR, "custom"), (6, 60.0, "plain")):
            at_s = (24 * day + hour) * HOUR
            history.add_run(KEY, seconds, mono(at_s), wall(at_s), mono(at_s), RunFacts(format=form))
    custom, plain = history.past_jobs(wall(END_S), mono(END_S))
    assert (custom.format, custom.runs, custom.usual_s, custom.interval_s) == ("custom", 5, HOUR, 24 * HOUR)
    assert (plain.format, plain.runs, plain.usual_s, plain.interval_s) == ("plain", 5, 60.0, 24 * HOUR)
    assert history.typical_s(KEY, None, "plain") == 60.0
    assert history.typical_s(KEY, None, "directory") is None
    assert history.typical_s(KEY) == HOUR, "of an unknown format: that of all"


def test_an_outage_shorter_than_a_run_hides_no_run() -> None:
    history = nights(5)
    history.add_gap(mono(END_S), mono(END_S + HOUR / 2))
    assert past(history, END_S + HOUR).watched_since_us == wall(0)
    history.add_gap(mono(END_S), mono(END_S + 2 * HOUR))
    assert past(history, END_S + 2 * HOUR).watched_since_us == wall(END_S + 2 * HOUR)


def test_a_run_that_disappeared_in_an_outage_may_have_finished() -> None:
    history = nights(5)
    history.add_gap(mono(END_S), mono(END_S + 60), [KEY])
    assert past(history, END_S + 60).watched_since_us == wall(END_S + 60)


def test_the_interval_across_a_gap_is_unknown() -> None:
    history = nights(5)
    history.add_gap(mono(END_S), mono(END_S + 2 * HOUR))
    after_s = END_S + 48 * HOUR
    history.add_run(KEY, HOUR, mono(after_s), wall(after_s), mono(after_s))
    one = past(history, after_s)
    assert (one.runs, one.intervals) == (6, 4)


def test_the_next_agent_continues_where_the_last_one_ended() -> None:
    kept = nights(5).to_file_record([], wall(END_S), mono(END_S))
    history = JobHistory(mono(END_S + 60))
    history.restore(kept, [], wall(END_S + 60), mono(END_S + 60))
    one = past(history, END_S + 60)
    assert (one.runs, one.intervals, one.last_ended_us) == (5, 4, wall(END_S))
    assert one.watched_since_us == wall(0), "no dump of an hour fits into the minute between"


def test_an_agent_that_returns_after_a_day_has_a_gap() -> None:
    kept = nights(5).to_file_record([], wall(END_S), mono(END_S))
    history = JobHistory(mono(END_S + 24 * HOUR))
    history.restore(kept, [], wall(END_S + 24 * HOUR), mono(END_S + 24 * HOUR))
    one = past(history, END_S + 24 * HOUR)
    assert (one.runs, one.usual_s, one.last_ended_us) == (5, HOUR, wall(END_S))
    assert one.watched_since_us == wall(END_S + 24 * HOUR)


def test_a_run_active_between_two_agents_is_watched_if_it_still_runs() -> None:
    kept = nights(5).to_file_record([KEY], wall(END_S), mono(END_S))
    still, gone = JobHistory(mono(END_S + 60)), JobHistory(mono(END_S + 60))
    still.restore(kept, [KEY], wall(END_S + 60), mono(END_S + 60))
    gone.restore(kept, [], wall(END_S + 60), mono(END_S + 60))
    assert past(still, END_S + 60).watched_since_us == wall(0)
    assert past(gone, END_S + 60).watched_since_us == wall(END_S + 60)


def test_a_file_from_the_future_says_nothing_about_watched_times() -> None:
    kept = nights(5).to_file_record([], wall(END_S), mono(END_S))
    history = JobHistory(mono(60))
    history.restore(kept, [], wall(60), mono(60))
    assert past(history, 60).watched_since_us == wall(60)
    assert past(history, 60).usual_s == HOUR


def test_a_clock_set_while_watching_moves_the_shown_times_and_not_the_ages() -> None:
    history = nights(5)
    one = past(history, END_S + HOUR, set_by_s=-7200)
    assert wall(END_S + HOUR, -7200) - (one.last_ended_us or 0) == HOUR * 1_000_000


def test_a_run_that_ended_while_the_file_was_read_is_added_to_it() -> None:
    kept = nights(5).to_file_record([], wall(END_S), mono(END_S))
    history = JobHistory(mono(END_S + 60))
    history.add_run(KEY, 2 * HOUR, mono(END_S + 61), wall(END_S + 61), mono(END_S + 61))
    history.restore(kept, [], wall(END_S + 62), mono(END_S + 62))
    one = past(history, END_S + 62)
    assert (one.runs, one.last_s) == (6, 2 * HOUR)


def test_a_server_with_thousands_of_databases_does_not_fill_the_disk() -> None:
    history = JobHistory(mono(0))
    for number in range(MAX_JOBS + 50):
        history.add_run(("pg_dump", f"db{number}", "u"), 5.0, mono(number), wall(number), mono(number))
    known = {one.database for one in history.past_jobs(wall(999), mono(999))}
    assert len(known) == MAX_JOBS and "db249" in known and "db0" not in known
