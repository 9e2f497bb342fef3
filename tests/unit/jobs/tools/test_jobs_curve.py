"""How many jobs are worth it, on hosts made up of figures: few trials, near the best, and the fewest that are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dba_console.jobs.tools.job_count_sweep import SINGLE_JOB_S, LargestTable, find_bottleneck, measurement_notes
from dba_console.jobs.tools.jobs_curve import TOLERANCE, JobsCurve, TrialRun, predict_seconds

MB = 1 << 20
EQUAL = [100.0 * MB] * 10


def completed_trial(
    jobs: int, seconds: float, *, client_s: float, busy_pct: float, total: float, rate: float | None = None
) -> TrialRun:
    """A trial that came to its end; `rate` while all its jobs were at work."""
    busy_s = seconds / 2
    return TrialRun(
        jobs=jobs, wall_s=seconds, startup_s=0.1, complete=True, done=total, busy_s=busy_s,
        busy_done=busy_s * (rate or total / seconds), client_s=client_s, server_s=client_s / 6, host_busy_pct=busy_pct,
    )  # fmt: skip


def sweep_jobs(curve: JobsCurve, run: Callable[[int], TrialRun]) -> list[int]:
    """The trials a sweep makes, in their order."""
    tried: list[int] = []
    while (jobs := curve.next_jobs()) is not None:
        assert jobs not in tried, f"-j {jobs} is tried twice"
        tried.append(jobs)
        curve.add(run(jobs))
    return tried


def host(
    cpus: int, work_s: float, sizes: Sequence[float], *, noise: Callable[[int], float] = lambda _: 1.0
) -> Callable[[int], TrialRun]:
    """A quiet host: each job keeps one processor busy, as long as there are some left."""
    total = sum(sizes)

    def run(jobs: int) -> TrialRun:
        rate = total / work_s

        all_busy = min(jobs, cpus) * rate
        seconds = predict_seconds(sizes, cpus * rate, rate, jobs) * noise(jobs) + 0.1
        busy = min(100.0, 100 * work_s / (seconds * cpus))
        return completed_trial(
            jobs, seconds, client_s=work_s * 6 / 7, busy_pct=busy, total=total, rate=all_busy / noise(jobs)
        )

    return run


@pytest.mark.parametrize("cpus", [1, 2, 4, 8, 16])
def test_it_finds_a_nearly_best_number_in_less_than_half_of_the_time_for_all(cpus: int) -> None:
    run = host(cpus, 100.0, EQUAL)
    curve = JobsCurve(EQUAL, cpus, 8, all_tables=True)
    tried = sweep_jobs(curve, run)
    every = {jobs: run(jobs).wall_s for jobs in range(1, 9)}
    assert every[curve.recommended_jobs()] <= min(every.values()) * 1.1
    assert sum(SINGLE_JOB_S if jobs == 1 else every[jobs] for jobs in tried) < sum(every.values()) / 2


@pytest.mark.parametrize("worse", [1, 2, 3, 4, 6, 8])
def test_a_randomly_slow_trial_costs_at_most_a_tenth(worse: int) -> None:
    run = host(4, 100.0, EQUAL, noise=lambda jobs: 1.06 if jobs == worse else 1.0)
    curve = JobsCurve(EQUAL, 4, 8, all_tables=True)
    sweep_jobs(curve, run)
    quiet = host(4, 100.0, EQUAL)
    assert quiet(curve.recommended_jobs()).wall_s <= min(quiet(jobs).wall_s for jobs in range(1, 9)) * 1.1


def test_on_the_host_of_story_s4_it_finds_five_or_six() -> None:
    """Four cores with eight threads; its processor time as eight threads take it."""
    times = {1: 70.3, 2: 43.6, 3: 38.8, 4: 33.7, 5: 31.0, 6: 30.5, 7: 30.5, 8: 30.5}
    sizes = [1000.0 * MB] * 10

    def run(jobs: int) -> TrialRun:
        alone = 70.3 * 6 / 7
        busy = min(100.0, 100 * jobs / 8 * 1.15)
        spent = alone * (1 + 0.75 * max(0, jobs - 4) / 4) if jobs > 4 else alone
        return completed_trial(jobs, times[jobs], client_s=spent, busy_pct=busy, total=sum(sizes))

    curve = JobsCurve(sizes, 8, 8, all_tables=True)
    tried = sweep_jobs(curve, run)
    assert curve.recommended_jobs() in (5, 6)
    assert (
        sum(times[jobs] if jobs > 1 else SINGLE_JOB_S for jobs in tried) < sum(times[jobs] for jobs in range(1, 9)) / 2
    )


def test_one_big_table_is_named_as_the_bottleneck_and_no_useless_job_is_added() -> None:
    sizes = [900.0 * MB] + [10.0 * MB] * 10
    curve = JobsCurve(sizes, 8, 8, all_tables=True)
    sweep_jobs(curve, host(8, 100.0, sizes))
    assert curve.recommended_jobs() <= 2
    limit = find_bottleneck(curve, LargestTable("public.big", int(sizes[0])), "most: the maximum of 8 jobs to try")
    assert limit.kind == "table"
    assert "public.big" in limit.sentence and "90%" in limit.sentence


def test_a_busy_host_is_named_as_the_bottleneck() -> None:
    curve = JobsCurve(EQUAL, 2, 8, all_tables=True)
    sweep_jobs(curve, host(2, 100.0, EQUAL))
    assert curve.recommended_jobs() == 2
    assert find_bottleneck(curve, LargestTable("t", 100 * MB), "most: …").kind == "cpu"


def test_more_jobs_are_tried_while_they_help() -> None:
    sizes = [100.0 * MB] * 64
    curve = JobsCurve(sizes, 2, 32, all_tables=True)
    disk = host(16, 100.0, sizes)

    def run(jobs: int) -> TrialRun:
        found = disk(jobs)
        return completed_trial(jobs, found.wall_s, client_s=5.0, busy_pct=20.0, total=sum(sizes))

    tried = sweep_jobs(curve, run)
    assert tried[:5] == [1, 2, 4, 8, 16]
    assert 14 <= curve.recommended_jobs() <= 16


def test_from_truncated_trials_the_total_is_computed_with_the_biggest_table_first() -> None:
    curve = JobsCurve([600.0 * MB, 100.0 * MB, 100.0 * MB], 4, 4, all_tables=True)
    for jobs in (1, 2):
        curve.add(
            TrialRun(jobs=jobs, wall_s=10, startup_s=0, complete=False, done=100 * MB * jobs, busy_s=10,
                busy_done=100 * MB * jobs, client_s=9.0 * jobs)
        )  # fmt: skip
    assert not curve.is_measured(2)
    assert curve.seconds(1) == pytest.approx(80)
    assert curve.seconds(2) == pytest.approx(60), "the big table takes as long whatever runs beside it"


def test_trials_served_from_the_page_cache_are_reported_if_the_database_is_larger() -> None:
    runs = [
        TrialRun(jobs=2, wall_s=10, startup_s=0, complete=True, done=100, busy_s=10, busy_done=100, client_s=9,
            server_s=2, read_bytes=read, host_busy_pct=55)
        for read in (100, 0, 0)
    ]  # fmt: skip
    (reported,) = measurement_notes(runs, 10**12, 2, 10**9)
    assert "--fresh" in reported
    (reported,) = measurement_notes(runs, 10**6, 2, 10**9)
    assert reported == "all but one of these runs read from memory"


def test_concurrent_activity_of_others_is_reported() -> None:
    run = TrialRun(jobs=2, wall_s=10, startup_s=0, complete=True, done=100, busy_s=10, busy_done=100, client_s=4,
    server_s=1,
              read_bytes=100, host_busy_pct=99)  # fmt: skip
    assert "other processes used up to 74% of the CPUs" in measurement_notes([run], 100, 2, None)[0]


def test_the_tolerance_is_less_than_half_of_what_is_promised() -> None:
    assert 2 * TOLERANCE <= 0.1
