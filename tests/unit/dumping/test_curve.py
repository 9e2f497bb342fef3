"""How many jobs are worth it, on hosts made up of figures: few trials, near the best, and the fewest that are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from dba_console.dumping.curve import NEAR, Curve, Run, predicted_s, rates_of
from dba_console.dumping.limits import Largest, disturbed, limit_of, notes_of
from dba_console.dumping.words import S4

MB = 1 << 20
EQUAL = [100.0 * MB] * 10


def whole_run(
    jobs: int, seconds: float, *, client_s: float, busy_pct: float, total: float, rate: float | None = None
) -> Run:
    """A trial that came to its end; `rate` while all its jobs were at work."""
    busy_s = seconds / 2
    return Run(
        jobs=jobs, wall_s=seconds, before_s=0.1, complete=True, done=total, busy_s=busy_s,
        busy_done=busy_s * (rate or total / seconds), client_s=client_s, server_s=client_s / 6, host_busy_pct=busy_pct,
    )  # fmt: skip


def swept(curve: Curve, run: Callable[[int], Run]) -> list[int]:
    """The trials a sweep makes, in their order."""
    tried: list[int] = []
    while (jobs := curve.next()) is not None:
        assert jobs not in tried, f"-j {jobs} is tried twice"
        tried.append(jobs)
        curve.add(run(jobs))
    return tried


def host(
    cpus: int, work_s: float, sizes: Sequence[float], *, noise: Callable[[int], float] = lambda _: 1.0
) -> Callable[[int], Run]:
    """A quiet host: each job keeps one processor busy, as long as there are some left."""
    total = sum(sizes)

    def run(jobs: int) -> Run:
        rate = total / work_s

        def of(active: int) -> float:
            return min(active, cpus) * rate

        seconds = predicted_s(sizes, of, jobs) * noise(jobs) + 0.1
        busy = min(100.0, 100 * work_s / (seconds * cpus))
        return whole_run(
            jobs, seconds, client_s=work_s * 6 / 7, busy_pct=busy, total=total, rate=of(jobs) / noise(jobs)
        )

    return run


@pytest.mark.parametrize("cpus", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shared_cores", [False, True])
def test_it_ends_near_the_best_of_all_and_in_less_than_half_of_their_time(cpus: int, shared_cores: bool) -> None:
    run = host(cpus, 100.0, EQUAL)
    curve = Curve(EQUAL, cpus, 8, whole=True, shared_cores=shared_cores)
    tried = swept(curve, run)
    every = {jobs: run(jobs).wall_s for jobs in range(1, 9)}
    assert every[curve.knee()] <= min(every.values()) * 1.1
    limit = every[tried[0]] * (1 + 2 * NEAR)  # what takes longer than the best so far by more than that is cut
    assert sum(min(every[jobs], limit) for jobs in tried if jobs > 1) < sum(every.values()) / 2


@pytest.mark.parametrize("worse", [1, 2, 3, 4, 6, 8])
def test_one_trial_that_is_slower_by_chance_leads_it_no_further_than_a_tenth(worse: int) -> None:
    run = host(4, 100.0, EQUAL, noise=lambda jobs: 1.06 if jobs == worse else 1.0)
    curve = Curve(EQUAL, 4, 8, whole=True, shared_cores=False)
    swept(curve, run)
    quiet = host(4, 100.0, EQUAL)
    assert quiet(curve.knee()).wall_s <= min(quiet(jobs).wall_s for jobs in range(1, 9)) * 1.1


def test_on_the_host_of_story_s4_it_finds_five_or_six() -> None:
    """Four cores with eight threads; its processor time as eight threads take it."""
    times = {**S4, 7: 30.5, 8: 30.5}
    sizes = [1000.0 * MB] * 10

    def run(jobs: int) -> Run:
        alone = 70.3 * 6 / 7
        busy = min(100.0, 100 * jobs / 8 * 1.15)
        spent = alone * (1 + 0.75 * max(0, jobs - 4) / 4) if jobs > 4 else alone
        return whole_run(jobs, times[jobs], client_s=spent, busy_pct=busy, total=sum(sizes))

    curve = Curve(sizes, 8, 8, whole=True, shared_cores=True)
    tried = swept(curve, run)
    assert curve.knee() in (5, 6)
    assert (
        sum(times[jobs] if jobs > 1 else 0.35 * 30.5 for jobs in tried) < sum(times[jobs] for jobs in range(1, 9)) / 2
    )


def test_one_big_table_is_named_as_the_limit_and_no_job_is_added_for_nothing() -> None:
    sizes = [900.0 * MB] + [10.0 * MB] * 10
    curve = Curve(sizes, 8, 8, whole=True, shared_cores=False)
    swept(curve, host(8, 100.0, sizes))
    assert curve.knee() <= 2
    limit = limit_of(curve, Largest("public.big", int(sizes[0])), "most: no more than 8 jobs were to be tried")
    assert limit.kind == "table"
    assert "public.big" in limit.sentence and "90%" in limit.sentence


def test_a_busy_host_is_named_as_the_limit() -> None:
    curve = Curve(EQUAL, 2, 8, whole=True, shared_cores=False)
    swept(curve, host(2, 100.0, EQUAL))
    assert curve.knee() == 2
    assert limit_of(curve, Largest("t", 100 * MB), "most: …").kind == "cpu"


def test_more_jobs_are_tried_as_long_as_they_help() -> None:
    sizes = [100.0 * MB] * 64
    curve = Curve(sizes, 2, 32, whole=True, shared_cores=False)
    disk = host(16, 100.0, sizes)

    def run(jobs: int) -> Run:
        found = disk(jobs)
        return whole_run(jobs, found.wall_s, client_s=5.0, busy_pct=20.0, total=sum(sizes))

    tried = swept(curve, run)
    assert tried[:4] == [2, 4, 8, 16]
    assert 14 <= curve.knee() <= 16


def test_from_runs_that_were_cut_the_whole_is_reckoned_with_the_biggest_table_first() -> None:
    curve = Curve([600.0 * MB, 100.0 * MB, 100.0 * MB], 4, 4, whole=True, shared_cores=False)
    for jobs in (1, 2):
        curve.add(
            Run(jobs=jobs, wall_s=10, before_s=0, complete=False, done=100 * MB * jobs, busy_s=10,
                busy_done=100 * MB * jobs, client_s=9.0 * jobs)
        )  # fmt: skip
    assert not curve.measured(2)
    assert curve.seconds(1) == pytest.approx(80)
    assert curve.seconds(2) == pytest.approx(60), "the big table takes as long whatever runs beside it"


def test_a_rate_above_what_was_measured_is_not_invented() -> None:
    runs = {jobs: whole_run(jobs, 10, client_s=5, busy_pct=50, total=total) for jobs, total in ((2, 20), (4, 30))}
    rate = rates_of(runs)
    assert rate(8) == rate(4) == 3.0
    assert rate(2) < rate(3) < rate(4)


def test_runs_that_read_from_memory_are_told_where_the_database_is_larger() -> None:
    runs = [
        Run(jobs=2, wall_s=10, before_s=0, complete=True, done=100, busy_s=10, busy_done=100, client_s=9,
            server_s=2, read_bytes=read, host_busy_pct=55)
        for read in (100, 0, 0)
    ]  # fmt: skip
    (told,) = notes_of(runs, 10**12, 2, 10**9)
    assert "--fresh" in told
    (told,) = notes_of(runs, 10**6, 2, 10**9)
    assert told == "all but one of these runs read from memory"


def test_what_others_did_meanwhile_is_told() -> None:
    run = Run(jobs=2, wall_s=10, before_s=0, complete=True, done=100, busy_s=10, busy_done=100, client_s=4, server_s=1,
              read_bytes=100, host_busy_pct=99)  # fmt: skip
    assert "others kept up to 74% of the processors busy" in notes_of([run], 100, 2, None)[0]
    assert disturbed([run], 2)
    assert not disturbed([replace(run, host_busy_pct=30)], 2)


def test_near_is_less_than_half_of_what_is_promised() -> None:
    assert 2 * NEAR <= 0.1
