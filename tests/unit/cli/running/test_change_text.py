"""Every change of a run is printed in lines, whatever it holds."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dba_console.cli.running.changes import change_lines, record_change, view_changes
from dba_console.recording.plan import Prose
from dba_console.runbooks.run_view import RunTable, RunView
from dba_console.watch.drawing.text_elements import line_text, line_width
from dba_console.watch.samples.event import Event
from tests.walkthrough.sample_views import DROP, ENDED, FAILED, SAMPLE_VIEWS, START_US, WAIT

VIEWS = [
    None,
    *(scene.view for scene in SAMPLE_VIEWS),
    DROP,
    WAIT,
    ENDED,
    msgspec.structs.replace(DROP, journal="in memory"),
]


def text_of(before: RunView | None, now: RunView, cells: int = 100) -> str:
    return "\n".join(
        line_text(line) for change in view_changes(before, now) for line in change_lines(change, START_US, cells)
    )


@given(st.sampled_from(VIEWS), st.sampled_from(VIEWS[1:]), st.integers(20, 200))
def test_any_change_is_json_and_fits_its_width(before: RunView | None, now: RunView, cells: int) -> None:
    for change in view_changes(before, now):
        assert msgspec.json.decode(msgspec.json.encode(change.fields)) is not None
        widths = [line_width(line) for line in change_lines(change, START_US, cells)]
        assert max(widths, default=0) <= cells


def test_the_opening_shows_the_runbook_and_where_the_run_is_stored() -> None:
    text = text_of(None, DROP)
    for message in (DROP.run, DROP.title, "db2", DROP.identity, DROP.directory, "Drop the page cache", "type `db2` >"):
        assert message in text


def test_what_runs_is_shown_verbatim_before_the_confirmation() -> None:
    text = text_of(None, DROP)
    assert text.index("echo 1 > /proc/sys/vm/drop_caches") < text.index("type `db2` >")


def test_a_failure_is_reported_with_its_options() -> None:
    text = text_of(DROP, msgspec.structs.replace(DROP, question=FAILED))
    assert "The check failed" in text and "retry" in text and "REASON" in text


def test_the_end_is_reported_with_its_summary() -> None:
    text = text_of(DROP, ENDED)
    assert "I/O came back after 12 s" in text and "execution" in text


def test_the_result_of_a_block_is_reported_once_by_its_record() -> None:
    event = Event(wall_us=START_US, kind="block.result", text="drop/action: ok, 17 GB freed", details={"run": DROP.run})
    text = "\n".join(line_text(line) for line in change_lines(record_change(event), START_US, 100))
    assert "drop/action: ok, 17 GB freed" in text
    done = msgspec.structs.replace(
        DROP, blocks=tuple(msgspec.structs.replace(block, state="ok", note="17 GB freed") for block in DROP.blocks)
    )
    assert "17 GB" not in text_of(DROP, done)


def test_foreign_text_does_not_control_the_terminal() -> None:
    evil = (Prose("\x1b]0;x\x07\x9b2J"),)
    wild = msgspec.structs.replace(DROP, title="a\x1b[2Jb", prose=evil, step_prose=evil, who="\x1b[A")
    assert "\x1b" not in text_of(None, wild) and "\x9b" not in text_of(None, wild)


def test_the_rows_of_a_preview_are_printed_right_after_it_however_far_the_run_is_by_then() -> None:
    rows = RunTable(columns=("pid",), rows=(("4242",),), title="who waits", block="drop/preview")
    before = msgspec.structs.replace(DROP, question=None, state="running")
    steps = tuple(
        msgspec.structs.replace(step, state={"drop": "ok", "after": "running"}.get(step.id, step.state))
        for step in DROP.steps
    )
    now = msgspec.structs.replace(WAIT, steps=steps, table=rows)
    text = text_of(before, now)
    assert (
        text.index("step 4 Drop the page cache: ok") < text.index("who waits") < text.index("step 5 Did I/O come back?")
    )
    here = msgspec.structs.replace(before, table=msgspec.structs.replace(rows, block="drop/action"))
    assert text_of(None, here).rstrip().endswith("4242")
