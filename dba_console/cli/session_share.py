"""`dba-console session share`: write a session as one file without names and secrets, for other people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.options import SessionsOption
from dba_console.cli.session_export import opened_output, progress_line
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, Refused, UsageError
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes
from dba_console.recording.recording import Recording
from dba_console.watch.drawing.time_formats import date_and_time

if TYPE_CHECKING:
    from dba_console.reports.share import Shared, WrittenNote
    from dba_console.reports.share_text import Level

LEVELS = ("none", "secrets", "names", "all")
CONFIRMATION = "share"


def share(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or unique prefix, or last.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; replay and show open it.")],
    level: Annotated[str, typer.Option("--level", metavar="LEVEL", help="none, secrets, names or all.")] = "names",
    yes: Annotated[bool, typer.Option("--yes", help="Do not show the notes for review.")] = False,
    map_: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Use and extend this map of pseudonyms; default: the session's."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="NAME", help="Leave this name as it is; repeatable.")
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option("--hide", metavar="WORD", help="Replace this word too, also in longer words; repeatable."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    sessions: SessionsOption = None,
) -> int:
    """Write one file of a session for a colleague, vendor or customer.

    secrets masks passwords, keys and their paths; names also replaces hosts, addresses, users, databases, relations,
    applications, paths and the values in statements; all also leaves out statements and notes.
    """
    if level not in LEVELS:
        raise UsageError(f"unknown level {level!r}", hint=f"one of {', '.join(LEVELS)}")
    if str(out) == "-":
        raise UsageError("a shared file is searched for originals before it exists: name a file", hint="--out case.zip")
    if hide and level not in ("names", "all"):
        raise UsageError(f"the level {level} replaces no names", hint="--hide needs --level names or all")
    from dba_console.recording.session_lookup import resolve
    from dba_console.reports.share import SessionSharer
    from dba_console.reports.share_names import can_be_hidden, load_map, map_path, save_map

    if (word := next((one for one in hide or () if not can_be_hidden(one)), None)) is not None:
        raise UsageError(f"cannot hide {word!r}: it is a word of every recording, or shorter than 3 characters")
    loaded = load_config()
    if sessions is not None:
        loaded = loaded.with_option(("recording", "directory"), sessions, "--sessions")
    recording = Recording.open(resolve(name, sessions_directory(loaded.config)))
    try:
        map_file = map_ or map_path(recording.directory.name if recording.meta is None else recording.meta.id)
        names = load_map(map_file, keep or (), hide or ())
        sharer = SessionSharer(recording, names, cast("Level", level))
        with opened_output(out, force) as file:
            with progress_line() as progress:
                sharer.learn(lambda share: progress(share * 0.4))
            if not yes:
                _review(sharer.notes())
            if level in ("names", "all"):
                # Before the file exists: without its map a file that was handed over cannot be explained.
                save_map(names, map_file)
            with progress_line() as progress:
                done = sharer.write(file, out.absolute().parent, lambda share: progress(0.4 + share * 0.6))
            if level in ("names", "all"):
                save_map(names, map_file)
    finally:
        recording.close()
    put("\n".join(_lines(out, level, done, map_file)))
    return ExitCode.OK


def _review(notes: Sequence[WrittenNote]) -> None:
    """Show what people wrote, and ask. Raises Refused unless the operator types the word."""
    if not notes:
        return
    if not sys.stdin.isatty():
        need = "1 note of people needs" if len(notes) == 1 else f"{len(notes)} notes of people need"
        raise Refused(f"not shared: {need} a review", hint="run it in a terminal, or with --yes")
    put("people wrote this, and it will be shared as:")
    for note in notes:
        who = f" {note.who}:" if note.who else ""
        put(f"  {date_and_time(note.wall_us)}{clean(who)} {clean(note.text)}")
    put(f"type {CONFIRMATION} to write the file; anything else writes nothing")
    if sys.stdin.readline().strip() != CONFIRMATION:
        raise Refused("not shared: not confirmed")


def _lines(out: Path, level: str, done: Shared, map_file: Path) -> list[str]:
    """Return what was done, and what cannot be promised."""
    lines = [f"{out}: {human_bytes(out.stat().st_size)}, {done.samples} samples, {done.events} events, level {level}"]
    lines += [f"{count:>8} {what}" for what, count in done.replaced.items()]
    lines += [f"missing: {text}" for text in done.left_out]
    if done.searched:
        lines.append(f"searched the file for {done.searched} originals: none found")
    if level in ("names", "all"):
        if done.not_searched:
            shown = ", ".join(done.not_searched[:12]) + (", …" if len(done.not_searched) > 12 else "")
            lines.append(f"not searched for, because they are ordinary words: {shown}")
        lines.append(f"the map of pseudonyms is private: {map_file}")
        lines.append(
            "a name that stands nowhere as a name, as in a note, is not recognised: read the file before sending;"
            " --hide WORD replaces it"
        )
    return [clean(line) for line in lines]
