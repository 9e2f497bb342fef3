"""Dumps and restores on the screen: one in full, until after its end; and the history of all of them."""

from __future__ import annotations

from msgspec import structs

from dba_console.core.config import JobsConfig
from dba_console.jobs.history.duration_trend import JobWindows, TargetJobHistory
from dba_console.tui.jobs import JobPage, JobsView
from dba_console.tui.loaders import BackgroundLoader
from dba_console.tui.screen_view import Scene
from dba_console.tui.terminal import ScreenOptions
from dba_console.watch.console.panel import EventRow, EventsPanel
from dba_console.watch.drawing.text_elements import line_text, line_width
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.readings import Operations
from dba_console.watch.samples.postgres import Activity, Sessions
from dba_console.watch.samples.sample import Sample
from tests import build
from tests.clocks import HeldClock
from tests.jobs import NOW_US, dump_row, frame_of, job, nightly_runs
from tests.tui.manual_feed import BOOT, START_US, S
from tests.tui.test_console import screen

PAST = TargetJobHistory(jobs=(job(), job("other", nightly_runs(3))), until_us=NOW_US)


def shown(view: JobPage | JobsView, frame: Frame | None, height: int = 22, *, live: bool = True) -> str:
    lines = view.lines(Scene(frame, ChartHistory(), "", live=live), 80, height)
    assert len(lines) <= height and all(line_width(one) <= 80 for one in lines)
    return "\n".join(line_text(one) for one in lines)


def dumping(second: int, *, ended: bool = False) -> Sample:
    """The sample of a second in which pg_dump has a session, or has none any more."""
    now_us = START_US + second * S
    row = Activity(
        8001, START_US - 9 * S, "client backend", "appdb", "backup", "pg_dump", "[local]", "active", START_US - 9 * S,
        START_US - S, START_US - S, None, None, None, None, None, None, "COPY public.orders (id) TO stdout;",
    )  # fmt: skip
    parts = [
        build.part("pg.activity", Sessions(now_us, [] if ended else [row]), at_s=1000 + second),
        build.part("pg.progress", Operations([]), at_s=1000 + second),
    ]
    return build.sample(*parts, at_s=1000 + second, seq=second + 1, boot=BOOT, wall_us=now_us)


async def test_enter_opens_the_job_and_d_its_history_and_escape_goes_back_step_by_step() -> None:
    options = ScreenOptions(jobs=JobsConfig(window="3h"))
    async with screen(options=options, history=lambda: PAST) as one:
        await one.press("d")
        await one.until("pg_dump of appdb")
        assert "until ≈2027-" in one.text and "it exceeds its window of 3h00" in one.text
        await one.press("down", "enter")
        await one.until("not enough history: 3 runs over 2 days")
        await one.press("escape", "escape")
        one.feed.give(dumping(0), dumping(1))
        await one.press("5", "enter")
        await one.until("time left unknown")
        assert "pg_dump appdb" in one.lines[1] and "backend 8001" in one.text
        await one.press("d")
        await one.until("2026-11-19")
        assert "pg_dump of appdb as backup" in one.lines[1] and "directory -j4" not in one.lines[1]
        await one.press("escape")
        one.feed.give(dumping(2, ended=True))
        await one.until("it has ended; its result is not known")
        assert "COPY" not in one.lines[1] and "backend 8001" in one.text
        await one.press("escape")
        await one.until("no dump, restore, vacuum")


def test_an_ended_job_is_shown_in_its_last_state_with_what_is_known_of_its_end() -> None:
    row = dump_row()
    view = JobPage(row)
    assert "68% of all, estimated" in shown(view, frame_of(row))
    over = structs.replace(frame_of(), at_us=NOW_US + S)
    over.panels["events"] = EventsPanel(rows=[
        EventRow(at="2026-11-20T14:57:30Z", kind="job.ended", tag="x", text="pg_dump of appdb ended: exit 1, 2 errors"),
        EventRow(at="2026-11-20T18:00:00Z", kind="job.ended", tag="x", text="pg_dump of appdb ended: the one after it"),
    ])  # fmt: skip
    text = shown(view, over)
    assert "the one after it" not in text
    assert "exit 1, 2 errors. Shown as last seen at" in text and "68% of all" in text
    assert "it was not running at this moment" in shown(view, structs.replace(frame_of(), at_us=NOW_US - S))
    assert shown(view, None)


def test_a_job_whose_panel_could_not_be_read_is_not_shown_as_ended() -> None:
    view = JobPage(dump_row())
    shown(view, frame_of(dump_row()))
    silent = frame_of()
    silent.progress.status = "timeout"
    assert "unknown whether it continues" in shown(view, silent)


def test_a_page_of_old_readings_shows_its_age_and_a_job_beyond_its_window_says_so() -> None:
    view = JobPage(dump_row(), JobWindows(3600.0))
    frame = frame_of(dump_row())
    assert "will exceed its window of 1h00 by about 1m27s" in shown(view, frame) and "old" not in shown(view, frame)
    frame = frame_of(structs.replace(dump_row(), elapsed_s=4200.0))
    frame.progress.status, frame.progress.age_s = "stale", 140.0
    assert "2m20s old" in shown(view, frame) and "exceeds its window of 1h00 by 10m" in shown(view, frame)


def test_the_page_is_scrolled_and_stays_there_when_a_new_sample_arrives() -> None:
    view = JobPage(dump_row(10_000))
    assert "more lines" in shown(view, frame_of(dump_row(10_000)), 12)
    view.do_page_down()
    first = shown(view, frame_of(dump_row(10_000)), 12).splitlines()[1]
    assert first == shown(view, frame_of(dump_row(10_000)), 12).splitlines()[1] != ""


def test_enter_on_an_ended_job_opens_its_last_state_and_no_other_job() -> None:
    view = JobsView()
    shown(view, frame_of(dump_row()))
    assert view.chosen is not None and view.chosen.process == 812
    shown(view, frame_of(structs.replace(dump_row(), process=900, pid=1, backends=[1])))
    assert view.chosen is not None and view.chosen.process == 812
    assert "68% of all" in shown(JobPage(view.chosen), frame_of())
    shown(nothing := JobsView(), frame_of())
    assert nothing.chosen is None


def test_the_selection_stays_on_a_row_whose_program_is_found() -> None:
    young = structs.replace(dump_row(), process=None, started="2026-11-20T14:10:03Z", backends=[8001])
    view = JobsView()
    shown(view, frame_of(young))
    assert view.chosen is not None and view.chosen.process is None
    assert "gone" not in shown(view, frame_of(dump_row()))
    assert view.chosen is not None and view.chosen.process == 812


def test_the_history_is_reread_only_when_old_and_its_errors_are_reported() -> None:
    clock, arrived = HeldClock(), list[TargetJobHistory]()

    def failing_read() -> TargetJobHistory:
        raise OSError("the disk is gone")

    loaders = BackgroundLoader(
        "job history", failing_read, lambda why: TargetJobHistory(note=why), arrived.append, clock
    )
    for _ in range(3):
        loaders.reread_if_old()
        assert loaders.wait_until_read(60.0)
    clock.advance(31.0)
    loaders.reread_if_old()
    assert loaders.wait_until_read(60.0)
    assert len(arrived) == 2 and "the disk is gone" in (arrived[0].note or "")
