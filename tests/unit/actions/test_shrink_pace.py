"""How fast a file is cut: gives way to what it does itself, not to what others do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dba_console.actions.shrink import pace as pacing
from dba_console.actions.shrink.pace import MIB, CutMeasurement, HostPressure, Pace, PaceLimits
from dba_console.actions.shrink.stepwise_truncate import LEARN_EVERY

LIMITS = PaceLimits()
QUIET_S = 0.001
BASELINE = (QUIET_S,) * 25
LOOP_STEP, LOOP_SLEEP_S = 10 * MIB, 0.02


@dataclass
class Disk:
    """A file system: what a commit takes, what a cut adds to it, and what is discarded after it."""

    per_mib_s: float = 0.0
    discard_s: float = 0.0003
    """For each megabyte; in the pauses, and what is left of it is waited for by the next commit."""
    others: Callable[[], float] = lambda: 0.0
    """What others add to a commit now."""
    backlog_s: float = 0.0
    spent_s: float = 0.0
    worst_s: float = 0.0

    def commit(self) -> float:
        took = QUIET_S + self.backlog_s + self.others()
        self.backlog_s = 0.0
        self.spent_s += took
        return took

    def cut(self, step: int) -> float:
        took = self.commit() + self.per_mib_s * step / MIB
        self.spent_s += self.per_mib_s * step / MIB
        self.backlog_s += self.discard_s * step / MIB
        self.worst_s = max(self.worst_s, took)
        return took

    def pause(self, seconds: float) -> None:
        self.backlog_s = max(0.0, self.backlog_s - seconds)
        self.spent_s += seconds


@dataclass
class Run:
    disk: Disk
    pace: Pace = field(default_factory=lambda: pacing.first_pace(BASELINE, LIMITS))
    paces: list[Pace] = field(default_factory=list)

    def cut(self, size: int, limits: PaceLimits = LIMITS) -> Run:
        """As Cutting does it."""
        while size > 0:
            step, asked = self.pace.step, self.pace.in_doubt or len(self.paces) % LEARN_EVERY == 0
            size -= step
            own = self.disk.cut(step)
            following = self.disk.commit() if asked else None
            self.pace = pacing.next_pace(self.pace, CutMeasurement(step, own, following), limits)
            self.disk.pause(max(limits.shortest_pause_s, self.pace.pause_s - (following or 0.0)))
            if asked:
                self.pace = pacing.with_quiet_commit(self.pace, self.disk.commit())
            self.paces.append(self.pace)
        return self


def loop_s(disk: Disk, size: int) -> float:
    """What truncate in steps of 10 MB with 0.02 s between takes there."""
    while size > 0:
        disk.cut(LOOP_STEP)
        disk.pause(LOOP_SLEEP_S)
        size -= LOOP_STEP
    return disk.spent_s


def noise(seed: int, typical_s: float) -> Callable[[], float]:
    """Others' work: now little, now much, at times a lot."""
    drawn = random.Random(seed)
    return lambda: drawn.expovariate(1 / typical_s) + (0.08 if drawn.random() < 0.02 else 0.0)


def test_a_calm_disk_is_cut_more_than_twice_as_fast_as_by_hand() -> None:
    run = Run(Disk(per_mib_s=0.00005)).cut(8192 * MIB)
    assert run.disk.spent_s < loop_s(Disk(per_mib_s=0.00005), 8192 * MIB) / 2
    assert run.pace.reason == ""


def test_what_a_commit_feels_at_worst_is_bounded_by_the_size_of_the_cut() -> None:
    for per_mib_s in (0.0001, 0.0003, 0.001):
        run = Run(Disk(per_mib_s)).cut(4096 * MIB)
        by_hand = Disk(per_mib_s)
        loop_s(by_hand, 4096 * MIB)
        assert run.disk.worst_s < 2 * by_hand.worst_s


def test_no_backlog_of_discards_builds_up() -> None:
    for discard_s in (0.0003, 0.0006, 0.001):
        run = Run(Disk(discard_s=discard_s)).cut(8192 * MIB)
        assert run.disk.worst_s <= QUIET_S + discard_s * 2 * LIMITS.first_step / MIB
        assert run.disk.backlog_s < discard_s * LIMITS.first_step / MIB


def test_steps_grow_where_it_is_the_commit_that_costs() -> None:
    assert Run(Disk(discard_s=0.0)).cut(4096 * MIB).pace.step == LIMITS.largest_step


def test_a_step_that_costs_more_than_the_one_before_is_taken_back() -> None:
    run = Run(Disk(per_mib_s=0.0002)).cut(8192 * MIB)
    grown = [pace for pace in run.paces if pace.step > LIMITS.first_step]
    assert 0 < len(grown) < len(run.paces) / 5
    assert max(pace.step for pace in grown) == 2 * LIMITS.first_step


def test_no_step_is_larger_than_asked() -> None:
    for largest in (MIB, 10 * MIB):
        small = PaceLimits(largest_step=largest)
        run = Run(Disk(discard_s=0.0), pacing.first_pace(BASELINE, small)).cut(256 * MIB, small)
        assert {pace.step for pace in run.paces} == {largest}


def test_steps_shrink_where_commits_grow_with_them_until_they_are_bearable() -> None:
    run = Run(Disk(per_mib_s=0.001)).cut(4096 * MIB)
    later = run.paces[len(run.paces) // 2 :]
    felt = [QUIET_S + 0.001 * pace.step / MIB for pace in later]
    assert sorted(felt)[len(felt) * 9 // 10] <= pacing.allowed_commit_s(QUIET_S, LIMITS)


def test_at_the_smallest_step_pauses_become_longer_instead() -> None:
    paces = Run(Disk(per_mib_s=0.02)).cut(512 * MIB).paces
    assert paces[-1].step == LIMITS.smallest_step
    assert paces[-1].brake == pacing.MAX_BRAKE
    assert paces[-1].pause_s > 10 * paces[0].pause_s


def test_the_noise_of_others_is_no_reason_to_crawl() -> None:
    for seed in range(5):
        run = Run(Disk(others=noise(seed, 0.004))).cut(4096 * MIB)
        assert run.disk.spent_s < 1.25 * loop_s(Disk(others=noise(seed, 0.004)), 4096 * MIB)
        assert run.pace.step >= LIMITS.smallest_step


def test_where_others_make_commits_slow_it_is_as_careful_as_by_hand() -> None:
    run = Run(Disk(others=lambda: 0.02)).cut(2048 * MIB)
    by_hand = loop_s(Disk(others=lambda: 0.02), 2048 * MIB)
    assert by_hand / 2 < run.disk.spent_s < 1.25 * by_hand
    assert {pace.step for pace in run.paces[len(run.paces) // 2 :]} == {LIMITS.first_step}
    assert run.pace.reason == "commits take 21.0 ms without a cut, 1.0 ms before the start"


def test_a_disk_that_is_slow_by_itself_is_not_given_way_to() -> None:
    pace = pacing.first_pace((0.02,) * 25, LIMITS)
    for _ in range(60):
        pace = pacing.next_pace(pace, CutMeasurement(pace.step, 0.025, 0.025), LIMITS)
    assert pace.step > LIMITS.first_step
    assert pace.reason == ""


def test_one_that_nobody_could_bear_halves_the_step_at_once_and_not_for_long() -> None:
    pace = pacing.first_pace(BASELINE, LIMITS)
    pace = pacing.next_pace(pace, CutMeasurement(pace.step, 0.3), LIMITS)
    assert pace.step == LIMITS.first_step // 2
    assert pace.reason == "a commit took 300 ms during a cut"
    for _ in range(pacing.CUTS_PER_VERDICT):
        pace = pacing.next_pace(pace, CutMeasurement(pace.step, 0.002), LIMITS)
    assert pace.step == LIMITS.first_step
    assert pace.reason == ""


def test_commits_after_the_cut_count_as_well_as_its_own() -> None:
    pace = replace(pacing.first_pace(BASELINE, LIMITS), step=16 * MIB)
    for _ in range(2 * pacing.CUTS_PER_VERDICT):
        pace = pacing.next_pace(pace, CutMeasurement(16 * MIB, QUIET_S, 0.03), LIMITS)
    assert pace.step == 8 * MIB
    assert pace.reason == "commits took 30.0 ms during a cut, 1.0 ms without one"


def test_a_step_that_hurt_is_tried_again_less_and_less_often() -> None:
    run = Run(Disk(per_mib_s=0.001)).cut(8192 * MIB)
    tried = sum(now.step > before.step for before, now in zip(run.paces, run.paces[1:], strict=False))
    assert 0 < tried < len(run.paces) / 100


def test_the_quiet_figure_keeps_to_what_it_was_told() -> None:
    pace = pacing.first_pace(BASELINE, LIMITS)
    for number in range(100):
        pace = pacing.with_quiet_commit(pace, QUIET_S * (1 + number % 5))
    assert pace.quiet_s is not None
    assert 2 * QUIET_S <= pace.quiet_s <= 4 * QUIET_S


def test_commits_of_the_database_that_are_slow_again_and_again_are_given_way_to() -> None:
    pace = replace(pacing.first_pace(BASELINE, LIMITS), step=16 * MIB)
    for number in range(2 * pacing.CUTS_PER_VERDICT):
        took = 0.002 if number == 0 else 0.05
        pace = pacing.next_pace(pace, CutMeasurement(16 * MIB, QUIET_S, QUIET_S, took, 0.002), LIMITS)
    assert pace.step == 8 * MIB
    assert pace.reason == "the database took 50.0 ms to commit, 2.0 ms without a cut"


def test_the_end_of_a_file_says_nothing_about_a_step() -> None:
    pace = replace(pacing.first_pace(BASELINE, LIMITS), step=16 * MIB)
    assert pacing.next_pace(pace, CutMeasurement(MIB, 0.3, 0.3), LIMITS) == pace


def test_pressure_makes_pauses_longer() -> None:
    pace, usual = pacing.first_pace(BASELINE, LIMITS), HostPressure(2.0, 0.001)
    slower, kept = pacing.adapt_to_host(pace, usual, usual, HostPressure(60.0, 0.001), LIMITS)
    assert slower.brake == 2.0
    assert slower.reason == "tasks wait for I/O 60% of the time, 2.0% before the start"
    assert kept == usual


def test_pressure_that_stays_whatever_is_done_is_somebody_elses() -> None:
    pace, usual = pacing.first_pace(BASELINE, LIMITS), HostPressure(2.0, 0.001)
    now = HostPressure(60.0, 0.001)
    pace, usual = pacing.adapt_to_host(pace, usual, usual, now, LIMITS)
    again, usual = pacing.adapt_to_host(pace, usual, now, now, LIMITS)
    assert again.brake == pace.brake
    assert usual.stall_pct == 60.0


def test_a_device_that_takes_long_makes_pauses_longer() -> None:
    pace, usual = pacing.first_pace(BASELINE, LIMITS), HostPressure(None, 0.004)
    slower, _ = pacing.adapt_to_host(pace, usual, usual, HostPressure(None, 0.2), LIMITS)
    assert slower.reason == "device requests take 200 ms, 4.0 ms before the start"


def test_trouble_without_a_cut_is_waited_for() -> None:
    assert pacing.foreign_load_reason(0.01, LIMITS) == ""
    assert pacing.foreign_load_reason(None, LIMITS) == ""
    assert (
        pacing.foreign_load_reason(0.9, LIMITS) == "commits take 900 ms without any cut: waiting until they are faster"
    )


def test_what_is_told_says_why_it_holds_back() -> None:
    pace = pacing.first_pace(BASELINE, LIMITS)
    assert pacing.pace_text(pace) == "steps of 10.0 MB"
    assert (
        pacing.pace_text(replace(pace, reason="commits took long"))
        == "steps of 10.0 MB; slowed down: commits took long"
    )
