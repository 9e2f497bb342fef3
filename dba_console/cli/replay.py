"""`dba-console replay`: open the console on a recording, or with --show print its panels as text, like `show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.options import Json, SessionsOption, new_app
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.core.config import Config
from dba_console.core.errors import ExitCode, SessionError, UsageError, suggest
from dba_console.core.units import parse_duration
from dba_console.recording.recording import Recording
from dba_console.watch.subjects import PANEL_NAMES

app = new_app("Open the console on a recording.")


@app.command()
def replay(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SESSION [PANEL…]", help="A directory, an id or unique prefix, or last."),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="14:53:07, RFC 3339, -10m from the end, +90s from the start, finding:NAME, mark:TEXT.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="No screen: print the overview, or the panels named.")] = False,
    json: Json = False,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="With --show: print every tick for this time.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", metavar="COLUMNS", help="Columns; default: the terminal's.")
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SESSION", help="Also a session of another host, at the same moments."),
    ] = None,
    sessions: SessionsOption = None,
) -> int:
    """Open the console on a recording, actions off.

    --show and --json print the panels at the time --at (default: the end) instead.
    """
    loaded = load_config(sessions=sessions)
    name, panels = split_arguments(words)
    if panels and not (show or json):
        raise UsageError("panels need --show", hint=f"dba-console replay {name} --show {' '.join(panels)}")
    from dba_console.recording.session_lookup import resolve_hosts

    directory, *others = resolve_hosts(name, with_ or (), sessions_directory(loaded.config))
    if show or json:
        for_s = None if for_ is None else parse_duration(for_)
        return run_replay(directory, loaded.config, panels, json, at, for_s, width, others)
    return _open_screen([directory, *others], at, loaded.config)


def split_arguments(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return session and panels of the command line; the first word that is not a panel is the session.

    >>> split_arguments(["last", "locks"]), split_arguments(["locks", "last"])
    (('last', ['locks']), ('last', ['locks']))
    """
    names = [word for word in words if word not in PANEL_NAMES]
    if not names:
        raise UsageError("no session named", hint="dba-console session list shows them; `last` is the newest")
    if len(names) > 1:
        raise UsageError(
            f"{names[1]!r} is not a panel, and the session is already {names[0]!r}",
            hint=f"{suggest(names[1], PANEL_NAMES, what='panels:')}; the overview (no panel) shows the findings",
        )
    return names[0], [word for word in words if word in PANEL_NAMES]


def run_replay(
    directory: Path,
    config: Config,
    panels: Sequence[str],
    as_json: bool,
    at: str | None,
    for_s: float | None,
    width: int | None,
    others: Sequence[Path] = (),
) -> int:
    """Print the recording at one time, or every tick from there, and beside it others at the same moments.

    Raises SessionError if a recording cannot be read.
    """
    from dba_console.cli.frame_output import FrameBuilder, frame_json, frame_text, terminal_width

    with ExitStack() as opened:
        recordings = [Recording.open(one) for one in (directory, *others)]
        for recording in recordings:
            opened.callback(recording.close)
            if recording.damage:
                print_diagnostic(f"warning: {recording.damage}")
        first, blank = recordings[0], ""
        shifts = [0] * len(recordings)
        for wall_us in tick_times(first, at, for_s):
            if not blank:
                shifts = [0, *(_measure_shift(first, other, wall_us) for other in recordings[1:])]
            for recording, shift_us in zip(recordings, shifts, strict=True):
                if recording is not first and recording.picture_at(wall_us - shift_us) is None:
                    continue  # it starts later
                builder = FrameBuilder()
                frame = builder.build_recorded(recording, wall_us - shift_us)
                if as_json:
                    put(frame_json(frame, panels))
                else:
                    columns = width or terminal_width()
                    put(blank + frame_text(frame, panels, columns, builder.history, ascii=config.screen.ascii))
                blank = "\n"
        return ExitCode.OK


def _measure_shift(first: Recording, other: Recording, wall_us: int) -> int:
    """Return what to add to the other recording's times, and print it with how it is known."""
    from dba_console.reports.clock_offsets import measure_offset, offset_text

    offset = measure_offset(first, other, wall_us, wall_us)
    print_diagnostic(f"clock offset of {other.directory.name}: {offset_text(offset)}")
    return offset.offset_us or 0


def tick_times(recording: Recording, at: str | None, for_s: float | None) -> Iterator[int]:
    """Yield the wall times to print. Raises SessionError if nothing was recorded then."""
    start_us = recording.last_us if at is None else parse_time(recording, at)
    if recording.picture_at(start_us) is None:
        raise SessionError(f"nothing was recorded at or before {at or 'the end'} in {recording.directory.name}")
    yield start_us
    if for_s is None:
        return
    wall_us = recording.step(start_us, 1)
    while wall_us is not None and wall_us <= start_us + int(for_s * 1e6):
        yield wall_us
        wall_us = recording.step(wall_us, 1)


def parse_time(recording: Recording, at: str) -> int:
    """Return the wall time that TIME means in the recording. Raises UsageError."""
    from dba_console.recording.session_lookup import parse_when

    events = recording.events() if at.startswith(("mark:", "finding:")) else []
    return parse_when(at, first_us=recording.first_us, last_us=recording.last_us, events=events)


def _open_screen(directories: Sequence[Path], at: str | None, config: Config) -> int:
    from dba_console.cli.attach import open_session

    targets = [_target_name(directory) for directory in directories]
    names = [
        target if targets.count(target) == 1 else directory.name
        for directory, target in zip(directories, targets, strict=True)
    ]
    return open_session(list(zip(directories, names, strict=True)), at, config)


def _target_name(directory: Path) -> str:
    recording = Recording.open(directory)
    recording.close()
    return recording.meta.target if recording.meta is not None else directory.name
