"""`dba-console session export`: write a span of a session in a format that other programs read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.error_handling import interrupted_by_signals
from dba_console.cli.options import SessionsOption
from dba_console.cli.stderr import print_diagnostic, show_progress
from dba_console.cli.stdout import OutputClosed
from dba_console.core.atomic_files import complete_file
from dba_console.core.errors import ConsoleError, ExitCode, PermissionDenied, UsageError, suggest
from dba_console.core.units import parse_duration
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import EXPORTERS, Progress, Span, load_exporter, whole

_MOMENTS = ("svg", "png")
"""Formats of one moment: the end, unless --at or --from names it."""
_SCREENS = ("asciicast", "text", *_MOMENTS)
OPTIONS: dict[str, tuple[str, ...]] = {
    "table": ("csv", "jsonl"),
    "every": ("csv", "jsonl", "openmetrics", "otlp", "asciicast", "text"),
    "signal": ("otlp",),
    "otlp-endpoint": ("otlp",),
    "at": ("text", *_MOMENTS),
    "size": _SCREENS,
    "panel": _SCREENS,
    "cast-version": ("asciicast",),
    "idle-limit": ("asciicast",),
}
"""Options that not all formats take, and the formats that do."""
_FOLLOW_S = 5.0
"""Interval at which a live session is read."""

_At = Annotated[str | None, typer.Option("--at", metavar="TIME", help="svg, png, text: one moment; default: the end.")]
_Size = Annotated[
    str | None, typer.Option("--size", metavar="COLUMNSxLINES", help="Size of the screen; default: 160x50.")
]
_Panels = Annotated[
    list[str] | None, typer.Option("--panel", metavar="NAME", help="This panel in full, not the overview; repeatable.")
]
_CastVersion = Annotated[
    int | None, typer.Option("--cast-version", metavar="2|3", help="asciicast: 2 (default), or 3 for asciinema 3.")
]
_IdleLimit = Annotated[
    str | None, typer.Option("--idle-limit", metavar="TIME", help="asciicast: longest pause when played; default: 2s.")
]


def export(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or unique prefix, or last.")],
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help=f"{', '.join(EXPORTERS)}.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file to write; - is standard output.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start of the span, as replay --at; default: all.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the span.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="csv, jsonl: panels (default), events, io.devices, …")
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="One value in this time, as 15s; default: all.")
    ] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", metavar="NAME", help="otlp: metrics (default of a file), logs, traces.")
    ] = None,
    otlp_endpoint: Annotated[
        str | None, typer.Option("--otlp-endpoint", metavar="URL", help="otlp: post there instead of writing a file.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --otlp-endpoint: post what is recorded until the session ends.")
    ] = False,
    at: _At = None,
    size: _Size = None,
    panel: _Panels = None,
    cast_version: _CastVersion = None,
    idle_limit: _IdleLimit = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    sessions: SessionsOption = None,
) -> int:
    """Write a session, or a span of it, for other programs."""
    options = {
        "table": table, "every": every, "signal": signal, "otlp-endpoint": otlp_endpoint, "at": at, "size": size,
        "panel": panel or None, "cast-version": cast_version, "idle-limit": idle_limit,
    }  # fmt: skip
    given = given_options(format, options)
    if follow and (otlp_endpoint is None or to is not None):
        raise UsageError("--follow needs --otlp-endpoint and takes no --to")
    if (out is None) == (otlp_endpoint is None):
        raise UsageError("name one output: --out FILE, or with the format otlp --otlp-endpoint URL")
    exporter = load_exporter(format)
    with opened_span(name, _times(format, at, from_, to), sessions) as span:
        if out is None:
            notes = _post(span, given, follow)
        else:
            with opened_output(out, force) as file, progress_line() as progress:
                notes = exporter(span, file, progress, **given) or ()
    for note in notes:
        print_diagnostic(f"note: {note}")
    return ExitCode.OK


def _times(format: str, at: str | None, from_: str | None, to: str | None) -> tuple[str | None, str | None]:
    """Return the ends of the span, None for those of the session. Raises UsageError."""
    if at is not None and (from_ is not None or to is not None):
        raise UsageError("--at names one moment: --from and --to name a span", hint="use one or the other")
    if format in _MOMENTS:
        at = at or from_ or "-0s"
    return (from_, to) if at is None else (at, at)


def given_options(format: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the given options of a format by the name of their parameter. Raises UsageError."""
    if format not in EXPORTERS:
        raise UsageError(f"unknown format {format!r}", hint=suggest(format, EXPORTERS))
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if format not in OPTIONS[option]:
            raise UsageError(f"--{option} is not an option of {format}", hint=f"of {', '.join(OPTIONS[option])}")
    given.pop("at", None)  # it is the span
    for option, parameter in (("every", "every_s"), ("idle-limit", "idle_limit_s")):
        if option in given:
            given[parameter] = parse_duration(given.pop(option))
    if "cast-version" in given:
        given["version"] = given.pop("cast-version")
    return given


def _post(span: Span, given: dict[str, Any], follow: bool) -> Sequence[str]:
    """Post the span to the endpoint; with `follow` until the session, or the operator with Ctrl-C, ends it."""
    from dba_console.reports.otlp import SIGNALS, OtlpReader, post_otlp
    from dba_console.reports.otlp_client import HEADERS_VARIABLE, OtlpClient, parse_headers

    endpoint, every_s = given["otlp-endpoint"], given.get("every_s", 0.0)
    headers = parse_headers(os.environ.get(HEADERS_VARIABLE, ""))
    client = OtlpClient(endpoint, headers, patient=follow, report=print_diagnostic)
    reader = OtlpReader(span.recording, [given["signal"]] if "signal" in given else SIGNALS, int(every_s * 1e6))
    try:
        with progress_line() as progress:
            post_otlp(span, client, progress, reader, _FOLLOW_S if follow else 0.0)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        client.close()
    return reader.notes


@contextmanager
def opened_span(name: str, times: tuple[str | None, str | None], sessions: str | None) -> Iterator[Span]:
    """Yield the span of a session between two TIMEs; missing parts of a damaged session are reported on stderr."""
    from dba_console.cli.replay import parse_time
    from dba_console.recording.session_lookup import resolve

    loaded = load_config(sessions=sessions)
    recording = Recording.open(resolve(name, sessions_directory(loaded.config)))
    try:
        _, first_us, last_us = whole(recording)
        first_us = first_us if times[0] is None else parse_time(recording, times[0])
        last_us = last_us if times[1] is None else parse_time(recording, times[1])
        if last_us < first_us:
            raise UsageError(f"--to {times[1] or 'the end'} is before --from {times[0] or 'the start'}")
        yield Span(recording, first_us, last_us)
        if recording.damage:
            print_diagnostic(f"warning: {recording.damage}")
    finally:
        recording.close()


@contextmanager
def opened_output(out: Path, force: bool) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that gets its name when it is complete. Raises ConsoleError."""
    try:
        if str(out) == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with interrupted_by_signals(), complete_file(out, overwrite=force) as file:
                yield file
    except BrokenPipeError:
        raise OutputClosed from None
    except FileExistsError as error:
        raise UsageError(str(error), hint="--force overwrites a file; - is standard output") from None
    except PermissionError as error:
        raise PermissionDenied(f"cannot write {out}: {error.strerror}") from None
    except OSError as error:
        raise ConsoleError(f"cannot write {out}: {error.strerror or error}; nothing was left there") from error


@contextmanager
def progress_line() -> Iterator[Progress]:
    """Yield a function that shows the share done on stderr, if that is a terminal."""
    shown = -1

    def show(share: float) -> None:
        nonlocal shown
        if int(share * 100) > shown:  # a clock that was set back goes through a time again
            shown = int(share * 100)
            show_progress(f"{shown} %")

    try:
        yield show
    finally:
        show_progress("")
