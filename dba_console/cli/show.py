"""`dba-console show`: print the panels as text or JSON, once or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.formatting import print_json, split_note
from dba_console.cli.frame_output import (
    FrameBuilder,
    frame_json,
    frame_text,
    is_panel,
    require_json_panels,
    terminal_width,
)
from dba_console.cli.live_source import first_view, open_live
from dba_console.cli.options import Json, SessionsOption, new_app
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.config import Config
from dba_console.core.errors import ExitCode, UsageError, suggest
from dba_console.core.target import Target, looks_like_conninfo
from dba_console.core.units import parse_duration
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.subjects import PANEL_NAMES

MIN_WIDTH = 40
TICK_TOLERANCE_US = 200_000
"""A sample this much early still belongs to its second."""

app = new_app("Print the panels as text or JSON.")


@app.command()
def show(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PANEL… DSN", help=f"Any of {', '.join(PANEL_NAMES)}; none: the overview. Last, the server."
        ),
    ] = None,
    json: Json = False,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="Repeat, as in 5s.")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after N times.")] = None,
    width: Annotated[
        int | None, typer.Option("--width", metavar="COLUMNS", help="Columns; default: the terminal's.")
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="TIME1 TIME2", help="What changed between two times of a recording."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="SESSION", help="With --diff: the recording; default: the newest."),
    ] = None,
    sessions: SessionsOption = None,
) -> int:
    """Print the panels as text: the overview, or each named panel in full. --json: one object per line and tick.

    Uses the running agent of the target; without one it reads the server itself, which takes a second for the first
    rates, and leaves nothing behind. Exit code 0 also if no connection slot is free: what is known without one is
    shown.
    """
    loaded = load_config()
    names, dsn = split_arguments(words or [], loaded.config)
    if diff is not None:
        if dsn is not None or every is not None or count is not None:
            raise UsageError("--diff compares two times of a recording", hint="name the recording by --session")
        if sessions is not None:
            loaded = loaded.with_option(("recording", "directory"), sessions, "--sessions")
        return run_diff(session or "last", sessions_directory(loaded.config), diff, names, as_json=json)
    if session is not None or sessions is not None:
        raise UsageError("--session needs --diff", hint="dba-console replay SESSION --show prints a recording")
    every_s = None if every is None else parse_duration(every)
    return run_show(resolve_target(dsn, loaded), loaded.config, names, json, every_s, count, width)


def run_diff(name: str, directory: Path, times: tuple[str, str], areas: Sequence[str], *, as_json: bool) -> int:
    """Print what changed between two times of a recording, largest change first. Raises SessionError, UsageError."""
    from dba_console.cli.replay import parse_time
    from dba_console.recording.recording import Recording
    from dba_console.recording.session_lookup import resolve
    from dba_console.reports.comparison import compare_recorded, comparison_lines, comparison_object

    with closing(Recording.open(resolve(name, directory))) as recording:
        from_us, to_us = (parse_time(recording, at) for at in times)
        found = compare_recorded(recording, from_us, to_us, areas)
        if recording.damage:
            print_diagnostic(f"warning: {recording.damage}")
    if as_json:
        print_json(comparison_object(found))
    else:
        put("\n".join(comparison_lines(found)))
    return ExitCode.OK


def split_arguments(words: Sequence[str], config: Config) -> tuple[list[str], str | None]:
    """Return panels and server of the command line: a panel's name is always a panel. Raises UsageError.

    >>> split_arguments(["locks", "host=db1", "io"], Config())
    (['locks', 'io'], 'host=db1')
    """
    names = [word for word in words if is_panel(word)]
    others = [word for word in words if not is_panel(word)]
    for word in others:
        if not looks_like_conninfo(word) and word not in config.targets:
            raise _unknown_word_error(word, [*PANEL_NAMES, *config.targets])
    if len(others) > 1:
        parts = all("=" in word for word in others)
        hint = f"quote a connection string of several parts: '{' '.join(others)}'" if parts else None
        raise UsageError(f"only one server can be named, not {len(others)}", hint=hint)
    return names, others[0] if others else None


def _unknown_word_error(word: str, known: Sequence[str]) -> UsageError:
    hint = suggest(word, known, what="known are") or f"panels: {', '.join(PANEL_NAMES)}"
    return UsageError(f"{word!r} is neither a panel nor a target", hint=hint)


def run_show(
    target: Target,
    config: Config,
    names: Sequence[str],
    as_json: bool,
    every_s: float | None,
    count: int | None,
    width: int | None,
    *,
    clock: Clock = SYSTEM,
) -> int:
    """Print the panels `count` times, `every_s` seconds apart (once unless one of the two is given).

    Returns 0, also if no slot is free and this is the server's host; 4 if authentication failed, 3 if the server could
    not be reached. Raises ConsoleError.
    """
    if width is not None and width < MIN_WIDTH:
        raise UsageError(f"{width} columns are too few", hint=f"the minimum is {MIN_WIDTH}")
    if as_json:
        require_json_panels(names)
    left = count if count is not None or every_s is not None else 1
    with open_live(target, config, clock=clock) as live:
        view = first_view(live, clock=clock)
        frame_builder = FrameBuilder(live.session, view.picture.wall_us)
        next_us = view.picture.mono_us
        printed = 0
        while True:
            frame = frame_builder.build(view)
            if view.picture.mono_us + TICK_TOLERANCE_US >= next_us:
                if as_json:
                    put(frame_json(frame, names))
                else:
                    text = frame_text(
                        frame, names, width or terminal_width(), frame_builder.history, ascii=config.screen.ascii
                    )
                    put(text if printed == 0 else "\n" + text)
                printed += 1
                next_us += int((every_s or 0.0) * 1e6)
                if left is not None and printed >= left:
                    return _exit_code(frame, view.picture)
            view = live.next_view()


def _exit_code(frame: Frame, picture: Picture) -> int:
    if frame.target.state != "disconnected":
        return ExitCode.OK
    sentence, hint = split_note(frame.target.note, "the server does not answer")
    print_diagnostic(f"error: not connected: {sentence}" + (f"\nhint: {hint}" if hint else ""))
    own = picture.now("self", AgentHealth)
    return ExitCode.PERMISSION if own is not None and own.outage == "auth" else ExitCode.CONNECT
