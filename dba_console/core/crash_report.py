"""Crash reports: written where only their owner can read them, for the developer who fixes the defect.

It has file names, line numbers and the error's text, no values of variables; anything that looks like a secret, and the
passwords known to this process, are masked before it is written. Replaces Textual's own report, which shows locals.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from dba_console import __version__
from dba_console.core import paths
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import MASK, redact
from dba_console.core.target import looks_like_conninfo, parse_conninfo

CRASH_EXIT_CODE = 1
"""Exit code of a command that crashed: not a documented code, because it is a defect."""


def write_report(error: BaseException, argv: Sequence[str]) -> Path:
    """Write the report, 0600 in the state directory; return its path. Raises OSError or ConsoleError."""
    directory = paths.private_dir(paths.state_dir())
    path = directory / f"crash-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(_report_text(error, argv))
    return path


def summary(error: BaseException, argv: Sequence[str]) -> str:
    """Return the error's type and the first line of its text, masked."""
    first = (str(error).splitlines() or [""])[0]
    return _mask_secrets(f"{type(error).__name__}: {first}" if first else type(error).__name__, argv)


def _report_text(error: BaseException, argv: Sequence[str]) -> str:
    lines = (
        f"dba-console {__version__}, Python {platform.python_version()}, {platform.platform()}",
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        f"arguments: {' '.join(argv)}",
        f"TERM: {os.environ.get('TERM', '')}",
        "",
        "".join(traceback.format_exception(error)),
    )
    return _mask_secrets("\n".join(lines), argv)


def _find_passwords(argv: Sequence[str]) -> list[str]:
    """Return the passwords given to this process, longest first so that none is masked partly."""
    found = {os.environ.get("PGPASSWORD", ""), os.environ.get("PGSSLPASSWORD", "")}
    for argument in argv:
        if not looks_like_conninfo(argument):
            continue
        try:
            values = parse_conninfo(argument)
        except ConsoleError:
            continue
        found |= {values.get("password", ""), values.get("sslpassword", "")}
    return sorted((secret for secret in found if secret), key=len, reverse=True)


def _mask_secrets(text: str, argv: Sequence[str]) -> str:
    text = redact(text)
    for secret in _find_passwords(argv):
        text = text.replace(secret, MASK)
    return text
