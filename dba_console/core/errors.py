"""Errors that reach a person, and the exit code of each.

The rule of this room: whatever goes wrong is told in one sentence (what, where, why), with a `hint:` line where
something can be done about it. No traceback ever reaches a user.
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
    """This server version, kernel or terminal cannot do what was asked."""
    SESSION = 6
    """A session directory is missing, damaged, foreign, or of a newer format."""
    RUNBOOK_FAILED = 7
    REFUSED = 8
    """Refused by the gate: identity, policy or confirmation did not hold."""
    INTERRUPTED = 130


class ConsoleError(Exception):
    """The root of every error a user may see.

    `hint` says what would help and is printed on a line of its own; None where nothing would.
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


class RunbookError(ConsoleError):
    """A runbook that cannot be read, found or used; the message names file and line where there is one."""

    code = ExitCode.USAGE


class RunbookFailed(ConsoleError):
    code = ExitCode.RUNBOOK_FAILED


class Refused(ConsoleError):
    """The gate said no: nothing was changed."""

    code = ExitCode.REFUSED
