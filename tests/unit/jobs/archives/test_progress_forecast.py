"""The end is foretold within 25 % over the second half, of a dump within 10 %; the part done never goes back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dba_console.jobs.archives.cost_model import CostModel
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.index_build import BuildStage
from dba_console.jobs.archives.object_durations import PreviousRun, RunObject, RunPhase
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.progress_forecast import ForecastState, forecast
from dba_console.jobs.archives.toc import DumpEntry
from tests.unit.jobs.archives.made_archives import MB, ForecastRun, ObjectCosts, SimulatedRestore, at, plan_of_sizes

EQUAL = [200 * MB] * 10
UNEVEN = [1800 * MB, *[10 * MB] * 20]
TINY = [1800 * MB, *[MB // 4 + 3000 * n for n in range(200)]]
WITHIN = 0.25
WITHIN_OF_DUMP = 0.1


def assert_promises(run: ForecastRun) -> None:
    """What is promised of every course of looks."""
    parts = [predicted.pct for _, predicted in run.forecasts if predicted.pct is not None]
    assert parts == sorted(parts)
    assert all(0 <= part < 100 for part in parts)
    for _, predicted in run.forecasts:
        assert (predicted.eta_s is None) == (predicted.eta_grade == "unknown") == (predicted.reason is not None)
        for phase in predicted.phases:
            assert phase.pct is None or 0 <= phase.pct <= 100


@pytest.mark.parametrize("jobs", [1, 2, 4])
@pytest.mark.parametrize("sizes", [EQUAL, UNEVEN, TINY], ids=["equal", "uneven", "tiny"])
def test_the_eta_of_a_restore_is_within_25_percent_over_its_second_half(sizes: list[int], jobs: int) -> None:
    run = SimulatedRestore(plan_of_sizes(sizes), jobs, costs=ObjectCosts(fk=60.0)).run()
    assert_promises(run)
    assert len(run.errors()) >= 0.7 * len(run.second_half())
    assert max(run.errors()) <= WITHIN


@pytest.mark.parametrize("sizes", [EQUAL, UNEVEN, TINY], ids=["equal", "uneven", "tiny"])
def test_every_observation_of_the_second_half_of_a_dump_has_an_eta(sizes: list[int]) -> None:
    run = SimulatedRestore(plan_of_sizes(sizes), 2, dumps=True).run(every_s=1.0)
    assert_promises(run)
    assert len(run.errors()) == len(run.second_half())
    assert max(run.errors()) <= WITHIN_OF_DUMP


def test_without_row_observations_the_messages_suffice() -> None:
    run = SimulatedRestore(plan_of_sizes(EQUAL), 2, costs=ObjectCosts(fk=60.0)).run(shares=False)
    assert_promises(run)
    assert run.errors()
    assert max(run.errors()) <= WITHIN


def test_the_previous_run_gives_the_durations_of_indexes_and_keys() -> None:
    first = SimulatedRestore(plan_of_sizes(UNEVEN), 2, seed=1).run()
    predicted = [RunPhase(one.name, one.wall_s or 0.0, one.busy_s) for one in first.progress.phases(0)]
    again = SimulatedRestore(plan_of_sizes(UNEVEN), 2, seed=2).run(
        before=PreviousRun(wall_s=first.seconds, phases=tuple(predicted))
    )
    assert_promises(again)
    assert len(again.errors()) == len(again.second_half())
    assert max(again.errors()) <= WITHIN
    assert any(one.eta_grade == "history" for _, one in again.forecasts)


def test_nothing_is_estimated_while_the_remaining_kinds_were_never_measured() -> None:
    run = SimulatedRestore(plan_of_sizes(EQUAL), 2).run()
    loading = [predicted for seconds, predicted in run.forecasts if seconds < 30]
    assert loading
    assert all(predicted.eta_s is None and predicted.reason for predicted in loading)


def test_nothing_is_estimated_for_objects_of_unknown_size() -> None:
    plan = plan_of_sizes([MB])
    bare = DumpPlan(
        entries=tuple(type(one)(dump_id=one.dump_id, desc=one.desc, phase=one.phase) for one in plan.entries)
    )
    progress = ObjectProgress(bare, "pg_restore", 2)
    progress.add_line(at(0), "pg_restore: launching item 1000 TABLE DATA t0")
    predicted = forecast(progress, at(60), state=ForecastState())
    assert (predicted.pct, predicted.grade, predicted.eta_s, predicted.eta_grade) == (None, "unknown", None, "unknown")
    assert predicted.reason == "the sizes of its objects are unknown"


def test_a_materialized_view_and_its_index_make_no_other_object_unknown() -> None:
    plan = plan_of_sizes([100 * MB, 100 * MB], keys=False)
    view = DumpEntry(dump_id=9, desc="MATERIALIZED VIEW DATA", phase="rest", tag="v", table=9)
    index = DumpEntry(dump_id=10, desc="INDEX", phase="indexes", tag="v_idx", table=9, needs=(9,))
    progress = ObjectProgress(DumpPlan(entries=(*plan.entries, view, index), format="directory"), "pg_restore", 1)
    message = "pg_restore: launching item {} TABLE DATA t{}", "pg_restore: finished item {} TABLE DATA t{}"
    progress.add_line(at(0), message[0].format(1000, 0))
    progress.add_line(at(10), message[1].format(1000, 0))
    progress.add_line(at(10), message[0].format(1001, 1))
    progress.observe_running(1001, at(15), 50.0, 100.0, "bytes", 1)
    predicted = forecast(progress, at(15), state=ForecastState())
    data = next(one for one in predicted.phases if one.name == "data")
    assert (data.pct, predicted.pct is not None) == (75.0, True)
    assert data.eta_s == pytest.approx(5.0, rel=0.1)
    assert predicted.reason is None or "the sizes" not in predicted.reason
    assert any("materialized view" in note for note in predicted.notes)


def test_a_job_without_objects_is_estimated_by_the_previous_run_until_it_is_late() -> None:
    progress = ObjectProgress(None, "psql")
    progress.add_line(at(0), "SET")
    memory, before = ForecastState(), PreviousRun(wall_s=100.0)
    halfway = forecast(progress, at(50), state=memory, previous=before)
    assert (halfway.pct, halfway.eta_s, halfway.eta_grade) == (50.0, 50.0, "history")
    late = forecast(progress, at(130), state=memory, previous=before)
    assert (late.pct, late.eta_s, late.eta_grade) == (50.0, None, "unknown")
    assert late.reason == "it takes longer than the previous run"


def test_it_is_complete_only_if_it_ended_well() -> None:
    for code, pct in ((0, 100.0), (1, None), (None, None)):
        progress = ObjectProgress(plan_of_sizes([MB]), "pg_restore", 2)
        progress.add_line(at(0), "pg_restore: launching item 1000 TABLE DATA t0")
        progress.program_ended(at(9), code)
        assert forecast(progress, at(10)).pct == pct


def test_a_lower_bound_from_before_an_agent_restart_is_kept() -> None:
    restore = SimulatedRestore(plan_of_sizes(EQUAL), 2, dumps=True).run()
    progress = ObjectProgress(restore.progress.plan, "pg_dump", 2)
    progress.observe_running(1000, at(20), done=150 * MB, total=200 * MB, unit="bytes", since_us=at(0))
    predicted = forecast(progress, at(20), state=ForecastState(pct=61.0))
    assert predicted.pct is not None
    assert predicted.pct >= 61.0


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=500 * MB), min_size=1, max_size=12),
    jobs=st.integers(min_value=1, max_value=6),
    noise=st.floats(min_value=0.0, max_value=0.9),
    seed=st.integers(min_value=0, max_value=1000),
)
def test_whatever_the_sizes_the_done_part_never_goes_back_nor_reaches_100(
    sizes: list[int], jobs: int, noise: float, seed: int
) -> None:
    assert_promises(
        SimulatedRestore(plan_of_sizes(sizes), jobs, costs=ObjectCosts(noise=noise), seed=seed).run(every_s=5.0)
    )


def test_an_object_that_takes_long_makes_no_other_one_longer() -> None:
    progress = ObjectProgress(plan_of_sizes([10 * MB] * 10), "pg_restore", 2)
    for nth in (1, 2):
        progress.observe_running(60_000 + nth, at(10 * nth))
        progress.observe_finished(60_000 + nth, at(10 * nth + 4))
    progress.observe_running(60_009, at(100))
    entry = progress.objects()[60_003].entry
    cost = CostModel(progress.classes, progress.running_objects, at(160), None).cost(entry)
    assert cost is not None
    assert cost.seconds == pytest.approx(2.0)


def _with_a_slow_index(method: str | None) -> ObjectProgress:
    """Half an hour's restore, that builds one index for a long time while the others wait."""
    plan = plan_of_sizes([100 * MB] * 6, keys=False)
    slow = DumpEntry(
        dump_id=9,
        desc="INDEX",
        phase="indexes",
        tag="slow",
        method=method,
        weight=100.0 * MB,
        table=1000,
        needs=(1000,),
    )
    progress = ObjectProgress(DumpPlan(entries=(*plan.entries, slow), format="directory"), "pg_restore", 2)
    for nth in range(6):
        progress.add_line(at(4 * nth), f"pg_restore: launching item {1000 + nth} TABLE DATA t{nth}")
        progress.add_line(at(4 * nth + 4), f"pg_restore: finished item {1000 + nth} TABLE DATA t{nth}")
    for nth, number in enumerate((40_000, 40_001, 20_000)):
        desc = "CONSTRAINT" if number == 20_000 else "INDEX"
        progress.add_line(at(24 + 2 * nth), f"pg_restore: launching item {number} {desc} x")
        progress.add_line(at(26 + 2 * nth), f"pg_restore: finished item {number} {desc} x")
    progress.add_line(at(30), "pg_restore: launching item 9 INDEX slow")
    return progress


@pytest.mark.parametrize("method", [None, "gin"])
def test_without_news_the_predicted_end_moves_no_faster_than_time(method: str | None) -> None:
    progress, memory, ends = _with_a_slow_index(method), ForecastState(), []
    for second in range(31, 120):
        predicted = forecast(progress, at(second), state=memory)
        if predicted.eta_s is not None:
            ends.append((second, second + predicted.eta_s))
        assert predicted.eta_s is None or predicted.eta_s <= 60
    assert all(after - end <= later - second + 1e-6 for (second, end), (later, after) in pairwise(ends))


def test_an_index_build_is_estimated_by_its_own_stages() -> None:
    progress, memory = _with_a_slow_index("gin"), ForecastState()
    others = [number for nth in range(6) for number in (20_000 + nth, 40_000 + 2 * nth, 40_001 + 2 * nth)]
    waiting = [number for number in others if progress.objects()[number].state == "waiting"]
    for second in range(31, 90):
        if second % 2 and waiting:
            progress.observe_running(waiting[0], at(second))
        elif waiting:
            progress.observe_finished(waiting.pop(0), at(second))
        progress.observe_running(9, at(second), stage=BuildStage("whole", (second - 30) / 60))
        predicted = forecast(progress, at(second), state=memory)
        if second > 45:
            assert predicted.eta_s == pytest.approx(90 - second, abs=8)


def test_what_runs_at_the_end_is_never_at_zero_seconds() -> None:
    plan = plan_of_sizes([100 * MB], keys=False)
    view = DumpEntry(dump_id=9, desc="MATERIALIZED VIEW DATA", phase="rest", tag="v", weight=100.0 * MB, table=9)
    progress = ObjectProgress(DumpPlan(entries=(*plan.entries, view), format="directory"), "pg_restore", 1)
    memory = ForecastState()
    for nth, (number, desc) in enumerate(
        [(1000, "TABLE DATA"), (20_000, "CONSTRAINT"), (40_000, "INDEX"), (40_001, "INDEX")]
    ):
        progress.add_line(at(10 * nth), f"pg_restore: launching item {number} {desc} x")
        progress.add_line(at(10 * nth + 10), f"pg_restore: finished item {number} {desc} x")
    assert forecast(progress, at(40), state=memory).eta_s is None, "the time to fill a view is not known"
    progress.add_line(at(40), "pg_restore: launching item 9 MATERIALIZED VIEW DATA v")
    for second in range(41, 200):
        predicted = forecast(progress, at(second), state=memory)
        assert predicted.eta_s is None or predicted.eta_s >= 1.0
    before = PreviousRun(
        wall_s=70.0, longest={("MATERIALIZED VIEW DATA", "v"): RunObject("MATERIALIZED VIEW DATA", "v", "rest", 30.0)}
    )
    assert forecast(progress, at(50), state=ForecastState(), previous=before).eta_s == pytest.approx(20.0, abs=1)


def test_one_small_part_of_the_data_does_not_predict_the_rest() -> None:
    progress, memory = ObjectProgress(plan_of_sizes([100 * MB] * 6, keys=False), "pg_dump", 1), ForecastState()
    for number, shown in ((1000, False), (1001, True)):
        at_s = 20 * (number - 1000)
        progress.add_line(at(at_s), f'pg_dump: dumping contents of table "public.t{number - 1000}"')
        progress.observe_running(number, at(at_s + 15), 75.0, 100.0, "bytes", 1)
        assert (forecast(progress, at(at_s + 15), state=memory).eta_s is not None) == shown


def test_compressed_rows_do_not_predict_other_tables() -> None:
    plan, memory = plan_of_sizes([100 * MB] * 4, keys=False), ForecastState()
    first, *others = plan.entries
    documents = structs.replace(first, compressed=True)
    progress = ObjectProgress(structs.replace(plan, entries=(documents, *others)), "pg_dump", 1)
    progress.add_line(at(0), 'pg_dump: dumping contents of table "public.t0"')
    progress.add_line(at(60), 'pg_dump: dumping contents of table "public.t1"')
    assert forecast(progress, at(60), state=memory).eta_s is None, "sixty seconds of documents say nothing about rows"
    for second in (61, 62):
        progress.observe_running(1001, at(second), 25.0 * (second - 60), 100.0, "rows", 1)
    assert forecast(progress, at(62), state=memory).eta_s == pytest.approx(10.0, rel=0.1)


def test_what_becomes_faster_is_near_its_end_sooner() -> None:
    seconds = range(2, 90, 2)
    constant = [second / 100 for second in seconds]
    faster = [second / 200 if second < 60 else (second - 30) / 100 for second in seconds]
    left = []
    for shares in (constant, faster):
        progress = ObjectProgress(plan_of_sizes([100 * MB], keys=False), "pg_restore", 1)
        progress.add_line(at(0), "pg_restore: launching item 1000 TABLE DATA t0")
        for second, share in zip(seconds, shares, strict=True):
            item = progress.observe_running(1000, at(second), 100 * share, 100.0, "bytes", 1)
        assert item is not None and item.share is not None
        left.append(88 * (1 - item.share) / item.share / item.speed_up)
    assert left[0] == pytest.approx(12, rel=0.05), "a constant speed is the average"
    assert 42 <= left[1] <= 55, "between the average, 64, and twice that speed"
