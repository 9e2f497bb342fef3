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
from dba_console.agent.runs.operator_identity import ConsoleOperator
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

LIMIT_S = 120.0
RUNBOOK = """# Touch

```toml {runbook}
id = "touch"
```

Why and when.

## Touch it

```sh {run host confirm=yes undo=none}
true
```
"""


class RunCallbacks:
    """The run service, as far as an active run calls it."""

    def __init__(self, session: Path, error: str | None = None) -> None:
        self.ended = threading.Event()
        self.events: list[Event] = []
        self.refused: list[RunRefused] = []
        context = RunContext(
            target=Target("db2", "key1", "host=db2"), config=Config(), clock=SYSTEM,
            session=lambda: None if error else session, recording_error=lambda: error,
            frame=lambda since: None, is_server_here=lambda: True, emit=self.events.append,
            put_lines=lambda lines: None,
        )  # fmt: skip
        anna = ConsoleOperator("anna", 1)
        asked = RunBegin(text=RUNBOOK, source="touch.md")
        service = cast("RunService", self)
        self.run = ActiveRun(
            lambda one: start_run(one, asked, anna.name, ""), _no_console(), anna, context, service, session.parent, ""
        )

    def view(self, active_run: ActiveRun) -> None: ...

    def lines(self, run: str, block: str, lines: list[OutputLine], dropped: int) -> None: ...

    def refuse(self, peer: ConsoleConnection | None, refused: RunRefused) -> None:
        self.refused.append(refused)

    def run_ended(self, active_run: ActiveRun) -> None:
        self.ended.set()


def _no_console() -> Any:
    """The console that drives is only compared here."""
    return object()


def test_a_run_that_cannot_be_shown_is_unchanged_and_its_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(active_run, "run_view", broken)
    session = tmp_path / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    callbacks = RunCallbacks(session)
    callbacks.run.start()
    assert callbacks.ended.wait(LIMIT_S)
    assert not callbacks.refused
    [directory] = run_directories(session)
    assert not is_open(directory)
    stored = read_run(directory)
    assert stored.ended is None and stored.records[-1].kind == "run.interrupted"
    assert any("interrupted by an internal error: ZeroDivisionError" in event.text for event in callbacks.events)


def test_a_run_that_failed_to_start_releases_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("dba_console.agent.runs.start_run.planned", broken)
    session = tmp_path / "20260101T000000Z-db2-1a2b3c4d"
    session.mkdir()
    callbacks = RunCallbacks(session)
    callbacks.run.start()
    assert callbacks.ended.wait(LIMIT_S)
    assert "ZeroDivisionError" in callbacks.refused[0].text
    assert [is_open(directory) for directory in run_directories(session)] == [False]


def test_a_run_that_cannot_be_recorded_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dba_console.agent.runs.start_run.SESSION_S", 10 * LIMIT_S)
    callbacks = RunCallbacks(tmp_path / "20260101T000000Z-db2-1a2b3c4d", "not recording: no space left on device")
    callbacks.run.start()
    assert callbacks.ended.wait(LIMIT_S), "it waits for a recording that cannot come"
    [refused] = callbacks.refused
    assert "a run must be recorded; not recording: no space left on device" in refused.text
