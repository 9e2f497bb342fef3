"""`dba-console stamp`: what comes in goes out, each line stamped with the time it arrived; like logger(1) and ts(1).

Loaded past the argument parser: it stands at the end of a pipe, often for one line, and its command waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dba_console.cli.stamp_lines import Outlet, Screen, Stamps, pump
from dba_console.errors import ExitCode, UsageError

HELP = """\
Usage: dba-console stamp -t TAG [--iso] [--utc] [--summary] [--syslog[=SOCKET]] [--session SESSION]

Copies standard input to standard output, each line stamped with the time it arrived, this host and TAG:

  pg_restore --verbose … 2>&1 | dba-console stamp -t PGRESTORE
  Jul 24 03:36:44 link PGRESTORE: creating INDEX "public.orders_pkey"

  -t, --tag TAG        what the lines are of
  --iso                RFC 3339 with zone and microseconds instead of the time as syslog writes it
  --utc                in UTC instead of local time
  --summary            at the end, on stderr, the ten lines after which it took longest until the next
  --syslog[=SOCKET]    also to syslog (/dev/log, else journald), as user.notice
  --session SESSION    also into a file in out/ of that session: a directory, an id or its beginning, or last"""

_FLAGS = ("--iso", "--utc", "--summary", "--help", "-h")
_VALUED = ("--tag", "-t", "--session")


class Asked(NamedTuple):
    """What the command line says. `syslog` is a socket's path, empty for the system's own, None for none."""

    tag: str = ""
    session: str | None = None
    syslog: str | None = None
    iso: bool = False
    utc: bool = False
    summary: bool = False
    help: bool = False


def parse(arguments: Sequence[str]) -> Asked:
    """What was asked for. Raises UsageError.

    >>> parse(["-tPGRESTORE", "--summary"]).tag, parse(["--tag=X", "--syslog"]).syslog
    ('PGRESTORE', '')
    """
    asked, rest = Asked(), list(arguments)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if name.startswith("-t") and len(name) > 2:
            name, given, value = "-t", "=", name[2:] + given + value
        if name in _VALUED:
            if not given:
                if not rest:
                    raise UsageError(f"{name} wants a value", hint="dba-console stamp --help tells what it takes")
                value = rest.pop(0)
            asked = asked._replace(session=value) if name == "--session" else asked._replace(tag=value)
        elif name == "--syslog":
            asked = asked._replace(syslog=value)
        elif name in _FLAGS and not given:
            asked = _flagged(asked, name)
        else:
            raise UsageError(f"no such option: {name}{given}{value}", hint=_meant(name))
    if not asked.help and not asked.tag:
        raise UsageError("no tag: what are the lines of?", hint="for instance `… | dba-console stamp -t PGRESTORE`")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in asked.tag):
        raise UsageError("a tag is one or more words without control characters")
    return asked


def _flagged(asked: Asked, name: str) -> Asked:
    if name == "--iso":
        return asked._replace(iso=True)
    if name == "--utc":
        return asked._replace(utc=True)
    return asked._replace(summary=True) if name == "--summary" else asked._replace(help=True)


def _meant(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, (*_FLAGS, *_VALUED, "--syslog"), 1)
    return f"did you mean {near[0]}?" if near else "dba-console stamp --help tells what it takes"


def run(arguments: Sequence[str]) -> int:
    """The exit code of `dba-console stamp ARGUMENTS`. Never raises."""
    try:
        return _run(parse(arguments))
    except BaseException as error:
        return _told(error, arguments)


def _told(error: BaseException, arguments: Sequence[str]) -> int:
    # What tells of errors loads much: it is loaded where there is one.
    from dba_console.cli.guard import guarded

    def again() -> int:
        raise error

    return guarded(again, ["stamp", *arguments])


def _run(asked: Asked) -> int:
    if asked.help:
        from dba_console.cli.stdout import put

        put(HELP)
        return ExitCode.OK
    outlets = _outlets(asked)
    interrupted = _stay_until_the_end()
    try:
        pump(sys.stdin.fileno(), outlets)
    finally:
        said = [sentence for outlet in outlets for sentence in outlet.close()]
        if said:
            from dba_console.cli.stderr import say

            say("\n".join(said))
    if interrupted():
        return ExitCode.INTERRUPTED
    return max(outlet.code for outlet in outlets)


def _outlets(asked: Asked) -> list[Outlet]:
    host = os.uname().nodename.partition(".")[0]
    stamps = Stamps(host, asked.tag, iso=asked.iso, utc=asked.utc)
    found: list[Outlet] = []
    if asked.session is not None:
        from dba_console.cli.stamp_outlets import SessionFile

        found.append(SessionFile.of(asked.session, asked.tag))
    if asked.syslog is not None:
        from dba_console.cli.stamp_outlets import Syslog

        found.append(Syslog(asked.tag, asked.syslog or None))
    # Last: where nobody reads it any more, the others have got the lines before it says so.
    found.append(Screen(sys.stdout.fileno(), stamps, alone=not found))
    if asked.summary:
        from dba_console.cli.stamp_outlets import Slowest

        found.insert(0, Slowest(stamps))
    return found


def _stay_until_the_end() -> Callable[[], bool]:
    """Ctrl-C reaches the whole pipe: the command before us ends and has last words, so we go on until it has. A second
    one ends us, and so does the first where a person types what we read. A lost terminal is no reason to end either.

    Gives whether there was one.
    """
    seen: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        if seen or os.isatty(sys.stdin.fileno()):
            raise KeyboardInterrupt
        seen.append(number)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return lambda: bool(seen)
