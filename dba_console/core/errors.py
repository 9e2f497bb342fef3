"""Errors shown to the user, and the exit code of each.

Each failure is reported in one sentence (what, where, why), with a `hint:` line if there is a fix. No traceback ever
reaches a user.
"""

from __future__ import annotations

from enum import IntEnum


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
