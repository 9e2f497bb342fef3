"""The list of screenshots, and the real screen opened on the recording without a terminal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dba_console.core.errors import ConsoleError
from dba_console.reports.svg import drawing
from dba_console.tui.feed import Session
from dba_console.tui.live_feed import ReplayFeed
from dba_console.tui.terminal import ScreenOptions, configure_textual
from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line_text
from screenshots.watching import NAME

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Shot:
    """One screenshot. `keys` are pressed one after the other; `expects` must then be on the screen."""

    name: str
    size: tuple[int, int]
    expects: str
    keys: tuple[str, ...] = ()
    moment: str = "peak"
    command: tuple[str, ...] = ()
    """Arguments of `replay SESSION --at TIME` for a screenshot of text; empty for one of the screen."""


SHOTS = (
    Shot("overview", (160, 50), "─ Connections"),
    Shot("overview-120x36", (120, 36), "─ Connections"),
    Shot("overview-80x24", (80, 24), "─ Connections"),
    Shot("findings", (120, 30), "lock-queue", ("f",)),
    Shot("evidence", (120, 36), "around its start", ("f", "enter")),
    Shot("connections", (120, 36), "shop-web-retry", ("1",)),
    Shot("io", (120, 36), "iowait", ("2",)),
    Shot("memory", (120, 36), "cached", ("3",)),
    Shot("safety", (120, 36), "xid", ("4",)),
    Shot("progress", (120, 24), "pg_dump", ("5",)),
    Shot("locks", (120, 36), "AccessExclusiveLock", ("6",)),
    Shot("replication", (120, 30), "standby_1", ("7",)),
    Shot("disks", (120, 30), "mount", ("8",)),
    Shot("sessions", (160, 36), "shop-web", ("9",)),
    Shot("events", (120, 24), "pages are slow", ("0",), moment="after"),
    Shot("replay", (120, 36), "REPLAY", ("left_square_bracket", "plus"), moment="after"),
    Shot("show", (100, 24), "AccessExclusive", command=("--show", "locks", "progress", "--width", "100")),
)


class Recorded(Protocol):
    """A finished recording and its named times."""

    moments: dict[str, str]

    @property
    def directory(self) -> Path: ...


def take(shot: Shot, recorded: Recorded) -> str:
    """Return the screenshot as SVG. Raises ConsoleError if `expects` did not appear."""
    at = recorded.moments[shot.moment]
    if shot.command:
        return drawing(_text_rows(shot, recorded.directory, at), shot.size[0])
    return drawing(asyncio.run(screen_rows(shot, recorded.directory, at)), shot.size[0])


async def screen_rows(shot: Shot, directory: Path, at: str, name: str = NAME) -> list[Line]:
    """Return the lines of the screen at time `at` of a recording, after the keys of the shot."""
    configure_textual("16")
    from dba_console.tui.console import Canvas, ConsoleApp

    feed = ReplayFeed(Session(name, directory=directory))
    app = ConsoleApp(feed, ScreenOptions(at=at), "16")
    feed.start()
    try:
        async with app.run_test(size=shot.size) as pilot:
            canvas = app.query_one(Canvas)

            def rows() -> list[Line]:
                return [fit_line(spans, canvas.size.width) for spans in canvas.lines]

            await _until(lambda: app.navigator.frame() is not None, shot, rows)
            for key in shot.keys:
                await pilot.press(key)
            await pilot.pause()
            await _until(lambda: shot.expects in plain(rows()), shot, rows)
            return rows()
    finally:
        feed.close()


async def _until(condition: Callable[[], bool], shot: Shot, rows: Callable[[], list[Line]]) -> None:
    for _ in range(int(TIMEOUT_S / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise ConsoleError(f"screenshot {shot.name}: {shot.expects!r} did not appear:\n{plain(rows())}")


def plain(rows: list[Line]) -> str:
    """Return the text of painted lines."""
    return "\n".join(line_text(spans) for spans in rows)


def _text_rows(shot: Shot, directory: Path, at: str) -> list[Line]:
    command = [sys.executable, "-m", "dba_console", "replay", str(directory), "--at", at, *shot.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    if done.returncode != 0 or shot.expects not in done.stdout:
        raise ConsoleError(f"screenshot {shot.name}: {shot.expects!r} is not in the text:\n{done.stdout}{done.stderr}")
    return [(Span(text),) for text in done.stdout.rstrip().splitlines()]
