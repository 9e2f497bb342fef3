"""A run and its thread: whatever is wrong with the program, the run is not held by a thread that is gone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from dba_console.agent.console_connection import ConsoleConnection
from dba_console.agent.protocol import RunBegin, RunRefused
from dba_console.agent.runs import active_run
from dba_console.agent.runs.active_run import ActiveRun
from dba_console.agent.runs.operators import ConsoleOperator
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.run_service import RunService
from dba_console.agent.runs.start_run import start_run
from dba_console.core.clock import SYSTEM
from dba_console.core.config import Config
from dba_console.core.target import Target
from dba_console.recording.run_paths import is_open, run_directories
from dba_console.recording.run_reader import read_run
from dba_console.runbooks.run_view import OutputLine
from dba_console.watch.samples.event import Event

PATIENCE_S = 120.0
BOOK = """# Touch

```toml {runbook}
id = "touch"
```

Why and when.

## Touch it

```sh {run host confirm=yes undo=none}
true
```
"""


class Room:
    """The agent around a run, as far as it is told of it."""

    def __init__(self, session: Path) -> None:
        self.over = threading.Event()
        self.events: list[Event] = []
        self.refused: list[RunRefused] = []
        around = RunContext(
            target=Target("db2", "key1", "host=db2"), config=Config(), clock=SYSTEM, session=lambda: session,
            frame=lambda since: None, is_server_here=lambda: True, emit=self.events.append,
            put_lines=lambda lines: None,
        )  # fmt: skip
        anna = ConsoleOperator("anna", 1)
        asked = RunBegin(text=BOOK, source="touch.md")
        side = cast("RunService", self)
        self.run = ActiveRun(
            lambda one: start_run(one, asked, anna.name, ""), _nobody(), anna, around, side, session.parent, ""
        )

    def view(self, under_way: ActiveRun) -> None: ...

    def lines(self, run: str, block: str, lines: list[OutputLine], dropped: int) -> None: ...

    def refuse(self, peer: ConsoleConnection | None, refused: RunRefused) -> None:
        self.refused.append(refused)

    def run_ended(self, under_way: ActiveRun) -> None:
        self.over.set()


def _nobody() -> Any:
    """Who drives is only compared here."""
    return object()


def test_a_run_that_cannot_be_shown_is_unchanged_and_its_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(active_run, "run_view", broken)
    session = tmp_path / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    room = Room(session)
    room.run.start()
    assert room.over.wait(PATIENCE_S)
    assert not room.refused
    [directory] = run_directories(session)
    assert not is_open(directory)
    papers = read_run(directory)
    assert papers.ended is None and papers.records[-1].kind == "run.interrupted"
    assert any("interrupted by an internal error: ZeroDivisionError" in event.text for event in room.events)


def test_a_run_that_failed_to_start_releases_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("dba_console.agent.runs.start_run.planned", broken)
    session = tmp_path / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    room = Room(session)
    room.run.start()
    assert room.over.wait(PATIENCE_S)
    assert "ZeroDivisionError" in room.refused[0].text
    assert [is_open(directory) for directory in run_directories(session)] == [False]
