"""The last net: an error nobody foresaw becomes a report in a file and three lines, never a traceback on the screen.

The report has file names, line numbers and the error's text, no values of variables; what looks like a secret and the
passwords known to this process are masked before it is written.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from dba_console import __version__, paths
from dba_console.errors import ConsoleError
from dba_console.redact import MASK, redact
from dba_console.target import looks_like_conninfo, parse_conninfo

CRASHED = 1
"""Exit code of a command that crashed: no code of the contract, for it is a defect and not an answer."""


def report_crash(error: BaseException, argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Write the report and return the three lines that tell of it. Never raises."""
    secrets = _secrets(argv, environ)
    try:
        told = f"its report, with secrets masked, is {_write(_report(error, argv, secrets))}"
    except (OSError, ConsoleError) as refused:
        told = f"its report could not be written: {_first_line(refused)}"
    what = _mask(f"{type(error).__name__}: {_first_line(error)}", secrets)
    return (
        f"error: dba-console itself failed ({what})\n"
        f"{told}\n"
        "hint: this is a defect; what was recorded is kept; please send the report to the maintainers"
    )


def _report(error: BaseException, argv: Sequence[str], secrets: Sequence[str]) -> str:
    trace = "".join(traceback.format_exception(error))
    head = (
        f"dba-console {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n"
        f"arguments: {' '.join(argv)}\n\n"
    )
    return _mask(head + trace, secrets)


def _write(report: str) -> Path:
    directory = paths.private_dir(paths.state_dir())
    path = directory / f"crash-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(report)
    return path


def _secrets(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Passwords this process was given, longest first so that none is masked by half."""
    found = {environ.get("PGPASSWORD", ""), environ.get("PGSSLPASSWORD", "")}
    for argument in argv:
        if not looks_like_conninfo(argument):
            continue
        try:
            values = parse_conninfo(argument)
        except ConsoleError:
            continue
        found |= {values.get("password", ""), values.get("sslpassword", "")}
    return sorted((secret for secret in found if secret), key=len, reverse=True)


def _mask(text: str, secrets: Sequence[str]) -> str:
    text = redact(text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def say(text: str) -> None:
    """One diagnostic on stderr. Never raises: a lost stderr must not hide the exit code."""
    try:
        print(redact(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
