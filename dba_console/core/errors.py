"""Errors shown to the user, and the exit code of each.

Each failure is reported in one sentence (what, where, why), with a `hint:` line if there is a fix. No traceback ever
reaches a user.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

LONGEST_LIST = 16
"""Maximum number of names in a hint."""


def suggest(name: str, known: Iterable[str], *, what: str = "it can be") -> str:
    """Return `did you mean X?` if a known name is close, else the list of names if it is short, else nothing.

    >>> suggest("chek", ["check", "wait"]), suggest("zzz", ["check", "wait"])
    ('did you mean check?', 'it can be check, wait')
    """
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"{what} {', '.join(names)}" if 0 < len(names) <= LONGEST_LIST else ""


class ExitCode(IntEnum):
    """Exit codes of every command except `check`, which follows the monitoring-plugin convention 0-3."""

    OK = 0
    USAGE = 2
    """Wrong arguments, or a configuration file that cannot be used."""
    CONNECT = 3
    """The server, or the agent, cannot be reached."""
    PERMISSION = 4
    UNSUPPORTED = 5
    """This server version, kernel or terminal does not support the request."""
    SESSION = 6
    """A session directory is missing, damaged, not of dba-console, or of a newer format."""
    RUNBOOK_FAILED = 7
    REFUSED = 8
    """Refused by the permission gate: identity, policy or confirmation failed."""
    INTERRUPTED = 130


class ConsoleError(Exception):
    """Base class of all errors shown to the user.

    `hint` is the advice, printed on a separate line; None if there is none.
    """

    code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class UsageError(ConsoleError):
    code = ExitCode.USAGE


class ConfigError(ConsoleError):
    code = ExitCode.USAGE


class ConnectError(ConsoleError):
    code = ExitCode.CONNECT


class PermissionDenied(ConsoleError):
    code = ExitCode.PERMISSION


class Unsupported(ConsoleError):
    code = ExitCode.UNSUPPORTED


class SessionError(ConsoleError):
    code = ExitCode.SESSION


class Damaged(SessionError):
    """An unreadable part of a recording: truncated, overwritten, or with a wrong checksum."""


class RunbookError(ConsoleError):
    """A runbook that cannot be read, found or used; the message names file and line if known."""

    code = ExitCode.USAGE


class RunbookFailed(ConsoleError):
    code = ExitCode.RUNBOOK_FAILED


class Refused(ConsoleError):
    """Refused by the permission gate: nothing was changed."""

    code = ExitCode.REFUSED
