"""What a run looks like on a screen: against golden text, and held to its size whatever the run holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dba_console.recording.plan import Prose
from dba_console.runbooks.run_view import BlockView, OutputLine, Question, RunTable, RunView, StepView
from dba_console.runbooks.walkthrough_layout import PANES, Pane, ViewOptions, body_lines, walkthrough
from dba_console.watch.drawing.text_elements import line, line_width
from tests.panels.golden import assert_golden, text_of
from tests.walkthrough.sample_views import DROP, FAILED, OUTPUT, SAMPLE_VIEWS, START_US, TYPED, SampleView

PANELS = [line(" Memory: cached 18 GB"), line(" I/O: no reads or writes")]


def shown(view: RunView, showing: ViewOptions | None = None, width: int = 80, height: int = 22) -> str:
    return text_of(walkthrough(view, OUTPUT, PANELS, showing or ViewOptions(), width, height).lines)


@pytest.mark.parametrize("sample", SAMPLE_VIEWS, ids=lambda sample: sample.name)
def test_a_run_fits_eighty_by_twenty_four(sample: SampleView) -> None:
    laid = walkthrough(sample.view, sample.output, PANELS, ViewOptions(), 80, 22)
    assert_golden(f"walkthrough-{sample.name}-80x24", text_of(laid.lines))


@pytest.mark.parametrize("sample", SAMPLE_VIEWS, ids=lambda sample: sample.name)
def test_a_run_fits_a_wide_screen(sample: SampleView) -> None:
    laid = walkthrough(sample.view, sample.output, PANELS, ViewOptions(), 150, 40)
    assert_golden(f"walkthrough-{sample.name}-150x42", text_of(laid.lines))


def test_the_question_is_shown_whole_however_long_the_step_is() -> None:
    text = shown(structs.replace(DROP, step_prose=(Prose("A long word of warning. " * 200),), question=FAILED))
    assert "The check failed: cached is 200 MB." in text and "Type `retry`, `skip` or `abort`" in text
    assert "echo 1 > /proc/sys/vm/drop_caches" in text


def test_journal_problems_are_shown_at_the_top() -> None:
    view = structs.replace(DROP, journal="in memory: the disk of the session is stalled")
    assert "in memory: the disk of the session is stalled" in shown(view).splitlines()[1]


def test_before_the_start_the_text_of_the_runbook_is_next_to_the_plan() -> None:
    start = Question(id=1, kind="start", text="Start?")
    checked = (BlockView(id="a/check", kind="check", title="The cache is large", state="ok", note="cached 18 GB"),)
    text = shown(structs.replace(DROP, state="planned", current="", block="", blocks=checked, question=start))
    assert "Why: free memory grows while I/O is dead." in text and "the storage team" in text
    assert "Checked on this server" in text and "cached 18 GB" in text
    assert "system identifier 7412" in text and "Type `yes` to start, no to cancel" in text


def test_the_step_alone_has_the_whole_width_for_its_rows() -> None:
    rows = RunTable(columns=("pid", "query"), rows=tuple((str(pid), "select " + "x" * 50) for pid in range(6)))
    view = structs.replace(DROP, table=rows)
    assert "x" * 50 not in shown(view) and "x" * 50 in shown(view, ViewOptions(pane="whole"))
    assert "x" * 50 in shown(structs.replace(view, steps=DROP.steps[3:4]))


@pytest.mark.parametrize(("width", "height"), [(80, 22), (160, 48)])
@pytest.mark.parametrize("pane", ["step", "whole"])
def test_the_statement_of_a_session_to_be_terminated_is_shown_whole(width: int, height: int, pane: Pane) -> None:
    query = "alter table public.orders\n    add column note text,\n    add column checked_by_somebody_else bigint"
    moments = ("2026-11-20 14:51:18 UTC",) * 2
    rows = RunTable(
        columns=("pid", "backend_start", "query_start", "usename", "application_name", "query"),
        rows=(("4242", *moments, "postgres", "nightly-migration-of-orders", query),),
    )
    text = " ".join(
        shown(structs.replace(DROP, table=rows), ViewOptions(pane=pane), width, height).replace("│", " ").split()
    )
    for reported in (
        "4242",
        "postgres",
        "nightly-migration-of-orders",
        *(" ".join(one.split()) for one in query.split("\n")),
    ):
        assert reported in text


def test_many_rows_too_wide_next_to_the_steps_are_whole_if_the_step_has_the_screen() -> None:
    rows = RunTable(columns=("pid", "query"), rows=tuple((str(pid), "x" * 100) for pid in range(7)))
    reported = text_of(body_lines(structs.replace(DROP, table=rows), 79, 1000)).replace("\n", "")
    assert reported.replace(" ", "").count("x" * 100) == 7


def test_the_newest_line_of_the_full_output_is_shown_whole_however_long_it_is() -> None:
    long = OutputLine(START_US, "o", "T", "word " * 60 + "end of it")
    laid = walkthrough(DROP, (*OUTPUT, long), PANELS, ViewOptions(pane="output"), 80, 22)
    assert "end of it" in text_of(laid.lines).replace("\n", " ")


def test_nothing_in_a_run_controls_the_terminal() -> None:
    evil = "a\x1b[2Jb\u202ec"
    view = structs.replace(
        DROP, title=evil, progress=evil,
        step_prose=(Prose(evil), Prose(evil, lead=evil), Prose(evil, "code"), Prose(evil, "heading")),
        steps=(StepView(id="drop", title=evil, state="running", note=evil),),
        blocks=(BlockView(id="x", kind="run", title=evil, state="running", exact=evil, note=evil),), block="x",
        question=structs.replace(FAILED, text=evil), ending=evil, target=evil, runbook=evil,
    )  # fmt: skip
    for pane in PANES:
        text = shown(view, ViewOptions(pane=pane))
        assert "\x1b" not in text and "\u202e" not in text


words = st.text(st.characters(codec="utf-8"), max_size=60)
prose = st.lists(st.builds(Prose, words, st.sampled_from(("text", "heading", "code")), words, st.booleans())).map(tuple)
views = st.builds(
    RunView,
    run=words, runbook=words, title=words, mode=st.sampled_from(("run", "rehearse")),
    state=st.sampled_from(("planned", "running", "waiting", "done", "failed")), target=words, prose=prose,
    steps=st.lists(
        st.builds(StepView, id=st.sampled_from("abc"), title=words, state=st.sampled_from(("ok", "running", "unknown")),
                  note=words, elapsed_s=st.none() | st.floats(0, 1e7), round=st.integers(0, 9)),
        max_size=12,
    ).map(tuple),
    current=st.sampled_from("abc"), step_prose=prose, progress=words, journal=words,
    blocks=st.lists(
        st.builds(BlockView, id=st.sampled_from("xyz"), kind=words, title=words, state=st.just("running"), exact=words),
        max_size=4,
    ).map(tuple),
    block=st.sampled_from("xyz"),
    question=st.none() | st.builds(Question, id=st.just(1), kind=st.sampled_from(("ack", "type", "input", "choose")),
                                   text=words, expects=words, since_us=st.just(START_US)),
)  # fmt: skip


@given(views, st.sampled_from(((80, 22), (60, 12), (150, 40))), st.sampled_from(PANES), st.none() | st.integers(0, 50))
def test_any_run_fills_the_screen_exactly(view: RunView, size: tuple[int, int], pane: object, top: int | None) -> None:
    width, height = size
    laid = walkthrough(view, OUTPUT, PANELS, ViewOptions(pane=pane, top=top), width, height)  # type: ignore[arg-type]
    assert len(laid.lines) == height
    assert all(line_width(one) <= width for one in laid.lines)


def test_of_many_rows_the_first_are_shown_below_the_column_names() -> None:
    rows = tuple((str(9000 + place), "app") for place in range(163))
    view = structs.replace(DROP, question=TYPED, table=RunTable(columns=("pid", "application"), rows=rows, total=163))
    text = shown(view)
    assert "pid application" in text and "9000 app" in text and "more lines" in text


def test_a_time_with_a_zone_is_shown_in_the_zone_of_this_host() -> None:
    table = RunTable(columns=("backend_start",), rows=(("2026-11-22 06:05:33.123+00",),), total=1)
    text = shown(structs.replace(DROP, table=table))
    assert "11-22" in text or "11-21" in text or "11-23" in text
    assert "2026-" not in text and ".123" not in text
