"""A command's output in the session: whole, tagged, harmless, and never a flood."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dba_console.agent.runs.commands import Appender, CommandOutput
from dba_console.keeper.output_log_reader import StampedLine
from dba_console.recording.backlog import LINES, Backlog
from dba_console.recording.journal import LogLine
from dba_console.recording.run_records import TextMask
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from tests.build import NOW_US
from tests.unit.recording.recordings import recorder


def arrived(count: int, first: int = 0) -> list[StampedLine]:
    return [StampedLine(NOW_US + n, "o", f"line {n}") for n in range(first, first + count)]


class KeptLines:
    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def put(self, lines: Sequence[LogLine]) -> None:
        self.lines += lines

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


def test_lines_are_in_log_and_view_between_the_events_of_their_time(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    append = Appender(made.put_lines, "PGRESTORE", run="r", block="load/run", execution=1)
    append.feed([StampedLine(NOW_US, "o", "ALTER TABLE"), StampedLine(NOW_US, "e", "warn\x1b[2J password=hunter2")])
    append.close()
    assert made.flush()
    made.put_event(Event(wall_us=NOW_US + 5_000_000, kind="note", text="after"))
    made.close("done")
    log = (made.directory / "session.log").read_text()
    assert " db2 PGRESTORE: ALTER TABLE\n" in log
    assert " db2 PGRESTORE: warn␛[2J password=********\n" in log
    connection = sqlite3.connect(made.directory / "session.db")
    lines = connection.execute("SELECT tag, text FROM lines").fetchall()
    rows = connection.execute("SELECT stream, run, block, execution FROM output").fetchall()
    connection.close()
    assert [text for tag, text in lines if tag == "PGRESTORE"] == ["ALTER TABLE", "warn␛[2J password=********"]
    assert rows == [("o", "r", "load/run", 1), ("e", "r", "load/run", 1)]
    assert log.index("ALTER TABLE") < log.index("after")
    assert verify(made.directory).ok


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_of_a_flood_of_output_the_session_keeps_start_count_and_end(at_once: int) -> None:
    kept = KeptLines()
    append = Appender(kept.put, "T", where="out.log", head=5, tail=3)
    for first in range(0, 100, at_once):
        append.feed(arrived(min(at_once, 100 - first), first))
    append.close()
    assert kept.texts == [
        *(f"line {n}" for n in range(5)),
        "only the first 5 lines are recorded here; all are in out.log",
        "… 92 lines left out",
        "line 97", "line 98", "line 99",
    ]  # fmt: skip
    assert append.lines == 100


@pytest.mark.parametrize("count", range(9))
def test_output_below_the_flood_limit_is_kept_whole(count: int) -> None:
    kept = KeptLines()
    append = Appender(kept.put, "T", head=5, tail=3)
    append.feed(arrived(count))
    append.close()
    assert [text for text in kept.texts if text.startswith("line")] == [f"line {n}" for n in range(count)]


def test_a_secret_is_masked_before_it_is_stored() -> None:
    kept = KeptLines()
    shown: list[str] = []
    output = CommandOutput(
        "block",
        "T",
        Appender(kept.put, "T"),
        TextMask(("s3cr3t",)),
        lambda _, new, __: shown.extend(line.text for line in new),
    )
    output.feed([StampedLine(1, "o", "it is s3cr3t")])
    assert kept.texts == shown == ["it is ********"]


def test_lines_that_wait_for_a_disk_are_limited_and_counted() -> None:
    backlog = Backlog()
    backlog.put_lines([LogLine(n, "T", "x") for n in range(LINES + 7)])
    assert backlog.dropped_lines == 7
    written = 0
    while not backlog.empty():
        batch = backlog.take()
        written += len(batch.lines)
        backlog.written(batch)
    assert written == LINES


def test_the_steps_of_a_run_are_reported_by_their_names(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    now = time.time_ns() // 1000
    made.put_event(Event(wall_us=now, kind="step.ended", text="ok", tag="CACHEDROP",
                         details={"run": "r1", "step": "drop-it", "state": "skipped"}))  # fmt: skip
    made.close("done")
    connection = sqlite3.connect(made.directory / "session.db")
    rows = connection.execute("SELECT run, step, state, text FROM steps").fetchall()
    connection.close()
    assert rows == [("r1", "drop-it", "skipped", "ok")]
