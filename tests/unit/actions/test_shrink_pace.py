"""How fast a file is cut: gives way to what it does itself, not to what others do."""

from __future__ import annotations

from dataclasses import replace

from dba_console.actions.shrink import pace as pacing
from dba_console.actions.shrink.pace import MIB, Coarse, Cut, Limits, Pace

LIMITS = Limits()
QUIET_S = 0.001
BASELINE = (QUIET_S,) * 25


def cut_of(pace: Pace, cost_s_per_mib: float, *, extra_s: float = 0.0) -> Cut:
    """A cut on a disk where each megabyte costs so much on top of a commit."""
    took = QUIET_S + cost_s_per_mib * pace.step / MIB + extra_s
    return Cut(pace.step, took, QUIET_S, took)


def paced(cost_s_per_mib: float, cuts: int, limits: Limits = LIMITS, every_seventh_s: float = 0.0) -> list[Pace]:
    """The paces of so many cuts; every seventh is slower by chance."""
    pace, paces = pacing.begin(BASELINE, limits), []
    for number in range(cuts):
        extra = every_seventh_s if number % 7 == 6 else 0.0
        pace = pacing.after(pace, cut_of(pace, cost_s_per_mib, extra_s=extra), limits)
        if number % 4 == 0:
            pace = pacing.learned(pace, QUIET_S)
        paces.append(pace)
    return paces


def test_steps_grow_as_long_as_nobody_feels_them() -> None:
    assert paced(0.0, 200)[-1].step == LIMITS.largest


def test_steps_stay_where_a_commit_beside_them_takes_what_is_allowed() -> None:
    last = paced(0.0001, 400)[200:]
    allowed = pacing.limit_s(last[-1], LIMITS)
    felt = [QUIET_S + 0.0001 * pace.step / MIB for pace in last]
    assert max(felt) <= allowed
    assert min(felt) > allowed / 3


def test_a_dearer_disk_gets_smaller_steps() -> None:
    assert paced(0.001, 300)[-1].step < paced(0.0001, 300)[-1].step


def test_no_step_is_larger_than_asked() -> None:
    small = Limits(largest=8 * MIB)
    assert max(pace.step for pace in paced(0.0, 100, small)) == 8 * MIB


def test_a_slow_commit_now_and_then_is_chance() -> None:
    last = paced(0.0, 400, every_seventh_s=0.05)[-1]
    assert last.step >= 256 * MIB
    assert last.reason == ""


def test_one_that_nobody_could_bear_halves_the_step_at_once() -> None:
    pace = replace(pacing.begin(BASELINE, LIMITS), step=64 * MIB)
    slower = pacing.after(pace, Cut(64 * MIB, 0.3, QUIET_S, 0.3), LIMITS)
    assert slower.step == 32 * MIB
    assert slower.reason == "a commit took 300 ms beside a cut"


def test_commits_after_the_cut_count_as_well_as_its_own() -> None:
    pace = replace(pacing.begin(BASELINE, LIMITS), step=64 * MIB)
    for _ in range(pacing.WITNESSES):
        pace = pacing.after(pace, Cut(64 * MIB, QUIET_S, 0.03, 0.03), LIMITS)
    assert pace.step == 32 * MIB
    assert pace.reason == "commits took 30.0 ms beside a cut, 1.0 ms without one"


def test_at_the_smallest_step_pauses_become_longer_instead() -> None:
    paces = paced(0.05, 60)
    assert paces[-1].step == LIMITS.smallest
    assert paces[-1].brake == pacing.HARDEST
    assert paces[-1].pause_s > paces[0].pause_s


def test_a_disk_that_is_slow_by_itself_is_not_given_way_to() -> None:
    pace = pacing.begin((0.02,) * 25, LIMITS)
    for _ in range(60):
        pace = pacing.after(pace, Cut(pace.step, 0.025, 0.02, 0.025), LIMITS)
    assert pace.step > LIMITS.first
    assert pace.reason == ""


def test_a_load_that_comes_meanwhile_raises_what_is_usual() -> None:
    pace = pacing.begin(BASELINE, LIMITS)
    before = pacing.limit_s(pace, LIMITS)
    for _ in range(pacing.REMEMBERED):
        pace = pacing.learned(pace, 0.003)
    assert pacing.limit_s(pace, LIMITS) > before


def test_what_the_cutting_itself_makes_slow_never_becomes_usual() -> None:
    pace = pacing.begin(BASELINE, LIMITS)
    before = pacing.limit_s(pace, LIMITS)
    for _ in range(10 * pacing.REMEMBERED):
        pace = pacing.learned(pace, 0.05)
    assert pacing.limit_s(pace, LIMITS) <= LIMITS.drift * before


def test_the_quiet_figure_keeps_to_what_it_was_told() -> None:
    pace = pacing.begin(BASELINE, LIMITS)
    for number in range(100):
        pace = pacing.learned(pace, QUIET_S * (1 + number % 5))
    assert pace.quiet_s == QUIET_S * 3


def test_a_slow_commit_of_the_database_is_given_way_to() -> None:
    pace = replace(pacing.begin(BASELINE, LIMITS), step=64 * MIB)
    for _ in range(pacing.WITNESSES):
        pace = pacing.after(pace, Cut(64 * MIB, QUIET_S, QUIET_S, QUIET_S, 0.05, 0.002), LIMITS)
    assert pace.step == 32 * MIB
    assert pace.reason == "the database took 50.0 ms to commit, 2.0 ms without a cut"


def test_the_end_of_a_file_says_nothing_about_a_step() -> None:
    pace = replace(pacing.begin(BASELINE, LIMITS), step=64 * MIB)
    assert pacing.after(pace, Cut(MIB, 0.3, 0.3, 0.3), LIMITS) == pace


def test_pressure_makes_pauses_longer() -> None:
    pace, usual = pacing.begin(BASELINE, LIMITS), Coarse(2.0, 0.001)
    slower, kept = pacing.lean_back(pace, usual, usual, Coarse(60.0, 0.001), LIMITS)
    assert slower.brake == 2.0
    assert slower.reason == "tasks wait for I/O 60% of the time, 2.0% before it began"
    assert kept == usual


def test_pressure_that_stays_whatever_is_done_is_somebody_elses() -> None:
    pace, usual = pacing.begin(BASELINE, LIMITS), Coarse(2.0, 0.001)
    now = Coarse(60.0, 0.001)
    pace, usual = pacing.lean_back(pace, usual, usual, now, LIMITS)
    again, usual = pacing.lean_back(pace, usual, now, now, LIMITS)
    assert again.brake == pace.brake
    assert usual.stall_pct == 60.0


def test_a_device_that_takes_long_makes_pauses_longer() -> None:
    pace, usual = pacing.begin(BASELINE, LIMITS), Coarse(None, 0.004)
    slower, _ = pacing.lean_back(pace, usual, usual, Coarse(None, 0.2), LIMITS)
    assert slower.reason == "requests of the device take 200 ms, 4.0 ms before it began"


def test_trouble_without_a_cut_is_waited_for() -> None:
    assert pacing.trouble(0.01, LIMITS) == ""
    assert pacing.trouble(None, LIMITS) == ""
    assert pacing.trouble(0.9, LIMITS) == "commits take 900 ms without any cut: it waits for that to pass"


def test_what_is_told_says_why_it_holds_back() -> None:
    pace = pacing.begin(BASELINE, LIMITS)
    assert pacing.told(pace) == "steps of 4.0 MB"
    assert pacing.told(replace(pace, reason="commits took long")) == "steps of 4.0 MB; holds back: commits took long"
