"""`dba-console stamp`: copy standard input to standard output, each line prefixed with its time, like logger and ts.

Runs without the argument parser: it ends a pipe, often for one line, and the command before it waits.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dba_console.cli.stamp.lines import LineDestination, LinePrefix, StandardOutput, copy_lines
from dba_console.core.errors import ExitCode, UsageError, suggest

HELP = """\
Usage: dba-console stamp -t TAG [--iso] [--utc] [--summary] [--syslog[=SOCKET]] [--session SESSION]

Copies standard input to standard output. Each line gets the time it arrived, this host and TAG as prefix:

  pg_restore --verbose … 2>&1 | dba-console stamp -t PGRESTORE
  Jul 24 03:36:44 link PGRESTORE: creating INDEX "public.orders_pkey"

  -t, --tag TAG        name of the source of the lines
  --iso                RFC 3339 with zone and microseconds instead of the syslog time format
  --utc                in UTC instead of local time
  --summary            at the end, print on stderr the ten lines with the longest time until the next line
  --syslog[=SOCKET]    also to syslog (/dev/log, else journald), as user.notice
  --session SESSION    also into a file in out/ of that session: a directory, an id or unique prefix, or last"""

_FLAGS = ("--iso", "--utc", "--summary", "--help", "-h")
_OPTIONS_WITH_VALUE = ("--tag", "-t", "--session")


class StampOptions(NamedTuple):
    """The parsed command line. `syslog` is a socket path, empty for the default socket, None for no syslog."""

    tag: str = ""
    session: str | None = None
    syslog: str | None = None
    iso: bool = False
    utc: bool = False
    summary: bool = False
    help: bool = False


def parse(arguments: Sequence[str]) -> StampOptions:
    """Return the parsed options. Raises UsageError.

    >>> parse(["-tPGRESTORE", "--summary"]).tag, parse(["--tag=X", "--syslog"]).syslog
    ('PGRESTORE', '')
    """
    options, rest = StampOptions(), list(arguments)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if name.startswith("-t") and len(name) > 2:
            name, given, value = "-t", "=", name[2:] + given + value
        if name in _OPTIONS_WITH_VALUE:
            if not given:
                if not rest:
                    raise UsageError(f"{name} requires a value", hint="see dba-console stamp --help")
                value = rest.pop(0)
            options = options._replace(session=value) if name == "--session" else options._replace(tag=value)
        elif name == "--syslog":
            options = options._replace(syslog=value)
        elif name in _FLAGS and not given:
            options = _with_flag(options, name)
        else:
            raise UsageError(f"no such option: {name}{given}{value}", hint=_option_hint(name))
    if not options.help and not options.tag:
        raise UsageError("no tag: --tag is required", hint="for example `… | dba-console stamp -t PGRESTORE`")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in options.tag):
        raise UsageError("a tag is one or more words without control characters")
    return options


def _with_flag(options: StampOptions, name: str) -> StampOptions:
    if name == "--iso":
        return options._replace(iso=True)
    if name == "--utc":
        return options._replace(utc=True)
    return options._replace(summary=True) if name == "--summary" else options._replace(help=True)


def _option_hint(name: str) -> str:
    return suggest(name, (*_FLAGS, *_OPTIONS_WITH_VALUE, "--syslog"), what="options:")


def run(arguments: Sequence[str]) -> int:
    """Return the exit code of `dba-console stamp ARGUMENTS`. Never raises."""
    try:
        return _run(parse(arguments))
    except BaseException as error:
        return _report_error(error, arguments)


def _report_error(error: BaseException, arguments: Sequence[str]) -> int:
    # Error handling imports much, so it is loaded only for an error.
    from dba_console.cli.error_handling import run_guarded

    def reraise() -> int:
        raise error

    return run_guarded(reraise, ["stamp", *arguments])


def _run(options: StampOptions) -> int:
    if options.help:
        from dba_console.cli.stdout import put

        put(HELP)
        return ExitCode.OK
    destinations = _make_destinations(options)
    interrupted = _handle_interrupts()
    try:
        copy_lines(sys.stdin.fileno(), destinations)
    finally:
        messages = [sentence for destination in destinations for sentence in destination.close()]
        if messages:
            from dba_console.cli.stderr import print_diagnostic

            print_diagnostic("\n".join(messages))
    if interrupted():
        return ExitCode.INTERRUPTED
    return max(destination.exit_code for destination in destinations)


def _make_destinations(options: StampOptions) -> list[LineDestination]:
    host = os.uname().nodename.partition(".")[0]
    stamps = LinePrefix(host, options.tag, iso=options.iso, utc=options.utc)
    found: list[LineDestination] = []
    if options.session is not None:
        from dba_console.cli.stamp.destinations import SessionFile

        found.append(SessionFile.for_session(options.session, options.tag))
    if options.syslog is not None:
        from dba_console.cli.stamp.destinations import Syslog

        found.append(Syslog(options.tag, options.syslog or None))
    # Last: if its reader has gone, the other destinations already have the lines.
    found.append(StandardOutput(sys.stdout.fileno(), stamps, only_destination=not found))
    if options.summary:
        from dba_console.cli.stamp.destinations import SlowestLines

        found.insert(0, SlowestLines(stamps))
    return found


def _handle_interrupts() -> Callable[[], bool]:
    """Handle Ctrl-C and SIGHUP. Returns a function that tells whether Ctrl-C was pressed.

    Ctrl-C reaches the whole pipe: the command before us ends with final messages, so copying goes on until its end. A
    second Ctrl-C ends us, and so does the first if the input is a terminal. A lost terminal (SIGHUP) is ignored.
    """
    interrupts: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        if interrupts or os.isatty(sys.stdin.fileno()):
            raise KeyboardInterrupt
        interrupts.append(number)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return lambda: bool(interrupts)
