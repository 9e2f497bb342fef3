"""Screenshots of a runbook: run on a real server with waiting sessions, by the console's own screen and keys.

The screen of a recording does not show a run in progress, so these are taken live.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from dba_console.agent.client import AgentClient
from dba_console.core.errors import ConsoleError
from dba_console.reports.svg import drawing
from dba_console.tui.terminal import ScreenOptions, configure_textual
from dba_console.watch.drawing.text_elements import Line, Span, fit_line
from screenshots.shots import plain
from screenshots.watching import NAME

TIMEOUT_S = 120.0
RUNBOOK = "lock-queue"
SIZE, LARGE = (120, 36), (160, 50)
FIRST, LAST = "▶ action", "run done"
"""Of a run as text: the first line of the screenshot, and the text that ends the run."""
ANSWERS = {
    "start": "yes",
    "what-to-stop": "ddl",
    "cancel-the-statement-in-the-middle": "1",
    "prevent-a-recurrence": "informed ann, who retries with a lock_timeout",
}


@dataclass(frozen=True, slots=True)
class Move:
    """Wait until `expects` is on the screen, take a screenshot if `picture` names one, then press the keys."""

    expects: str
    keys: Sequence[str] = ()
    picture: str = ""


TOGETHER = (
    Move("wait behind"),
    Move("rec 00:01:", ("r",)),
    Move("The one to stop", ("s",)),
    Move("Start “Sessions queue", (*"yes", "enter")),
    Move("Which session do you stop?", picture="together"),
    Move("Which session do you stop?", (*"none", "enter")),
    Move("run done"),
)
"""Findings, charts of a minute and a runbook at once, on a large screen."""
MOVES = (
    Move("wait behind", ("b",)),
    Move("checksum-failure", picture="runbooks"),
    Move("Runbooks", ("escape", "r")),
    Move("The one to stop", ("s",)),
    Move("Start “Sessions queue", (*"yes", "enter")),
    Move("Which session do you stop?", picture="walkthrough"),
    Move("Which session do you stop?", (*"ddl", "enter")),
    Move("(the number", picture="confirmation"),
    Move("(the number", (*"no", "enter")),
    Move("abort", (*"abort", "enter")),
    Move("run failed"),
)


def walked(socket: Path) -> dict[str, str]:
    """Return the screenshots by name, as SVG. Raises ConsoleError if an expected text did not appear."""
    return pictured(socket, TOGETHER, LARGE) | pictured(socket, MOVES, SIZE)


def pictured(socket: Path, moves: Sequence[Move], size: tuple[int, int]) -> dict[str, str]:
    """Return the screenshots of these moves by name, as SVG. Raises ConsoleError as above."""
    return {name: drawing(rows, size[0]) for name, rows in asyncio.run(_walk(socket, moves, size)).items()}


async def _walk(socket: Path, moves: Sequence[Move], size: tuple[int, int]) -> dict[str, list[Line]]:
    configure_textual("16")
    from dba_console.tui.console import Canvas, ConsoleApp
    from dba_console.tui.live_feed import LiveFeed

    feed = LiveFeed(lambda: AgentClient.connect(socket), NAME)
    app = ConsoleApp(feed, ScreenOptions(), "16")
    feed.start()
    taken: dict[str, list[Line]] = {}
    try:
        async with app.run_test(size=size) as pilot:
            canvas = app.query_one(Canvas)

            def rows() -> list[Line]:
                return [fit_line(spans, canvas.size.width) for spans in canvas.lines]

            for move in moves:
                await _until(move, rows)
                if move.picture:
                    taken[move.picture] = rows()
                for key in move.keys:
                    await pilot.press(key)
    finally:
        feed.close()
    return taken


async def _until(move: Move, rows: Callable[[], list[Line]]) -> None:
    until = time.monotonic() + TIMEOUT_S
    shown = ""
    while time.monotonic() < until:
        shown = plain(rows())
        if move.expects in " ".join(shown.split()):
            return
        await asyncio.sleep(0.05)
    raise ConsoleError(f"{move.expects!r} did not appear:\n{shown}")


def as_lines(dsn: str) -> str:
    """Run the same runbook as lines of text, with answers as arguments; return it as SVG."""
    answers = [word for step, text in ANSWERS.items() for word in ("--confirm", f"{step}={text}")]
    command = [sys.executable, "-m", "dba_console", "runbook", "run", RUNBOOK, "--dsn", dsn, "--plain", *answers]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        input="",
    )
    if done.returncode != 0 or LAST not in done.stdout:
        raise ConsoleError(f"the runbook did not end:\n{done.stdout}{done.stderr}")
    lines = [part for line in done.stdout.splitlines() for part in wrap(line, SIZE[0])]
    first = next(index for index, line in enumerate(lines) if FIRST in line)
    return drawing([(Span(line),) for line in lines[first : first + SIZE[1]]], SIZE[0])
