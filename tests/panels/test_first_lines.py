"""The first lines of the panels that an operator reads while a run or a wait goes on."""

from __future__ import annotations

from msgspec import structs

from dba_console.clusters.subject.panel import ClusterPanel
from dba_console.clusters.subject.readings import CutoverMark
from dba_console.runbooks.walkthrough_layout import panel_lines
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import LocksPanel
from tests.build import busy_frame, busy_history


def test_the_line_that_a_run_shows_of_a_cluster_begins_with_how_long_its_clients_are_held() -> None:
    frame = busy_frame()
    mark = CutoverMark(
        run="20261124T1-cutover", host="console-host", operator="mara", cluster="shop", kind="cutover", old="db1",
        to="db2", system_identifier="7", role="postgres", begun_us=frame.at_us - 20_000_000, stage="held",
        held_since_us=frame.at_us - 12_000_000,
    )  # fmt: skip
    frame.panels["cluster"] = structs.replace(frame.of(ClusterPanel), cutover=mark)
    [shown] = panel_lines(frame, busy_history(), ["cluster"], 80)
    assert line_text(shown) == " Cluster: ! clients held for 12s"


def test_without_waiting_sessions_no_longest_wait_is_shown() -> None:
    locks = LocksPanel(waiting=0)
    head = PANELS["locks"].full(Frame(panels={"locks": locks}), 80, ChartHistory()).head
    assert [line_text(one) for one in head] == ["waiting 0"]
