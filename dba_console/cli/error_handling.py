"""What ends a command: every way out becomes an exit code of the contract and at most a sentence with a hint.

A traceback never reaches a user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from dba_console.cli.stderr import print_diagnostic, report_crash
from dba_console.cli.stdout import OutputClosed
from dba_console.core.crash_report import CRASH_EXIT_CODE
from dba_console.core.errors import ConsoleError, ExitCode

PLUGIN_UNKNOWN = 3
"""The monitoring-plugin convention's code for "could not be found out"."""


def run_guarded(command: Callable[[], int], argv: Sequence[str]) -> int:
    """The exit code of `command`, whatever it raises; what it had to say is then on stderr."""
    try:
        return int(command())
    except ConsoleError as error:
        _flush_stdout()
        print_diagnostic(f"error: {error}")
        return int(error.code)
    except PermissionError as error:
        _flush_stdout()
        print_diagnostic(
            f"error: not permitted: {error.filename or error}\nhint: run it as the user it belongs to: sudo -u USER"
        )
        return int(ExitCode.PERMISSION)
    except KeyboardInterrupt:
        _discard_stdout()
        return int(ExitCode.INTERRUPTED)
    except (OutputClosed, BrokenPipeError):
        # The reader (head, less) has seen enough; that is no error of ours.
        _discard_stdout()
        return int(ExitCode.OK)
    except Exception as error:
        _flush_stdout()
        print_diagnostic(report_crash(error, argv))
        return CRASH_EXIT_CODE


def run_plugin_guarded(command: Callable[[], int], argv: Sequence[str]) -> int:
    """The same for `check`: any failure is UNKNOWN, for 1 and 2 would be taken for a warning and an alarm."""
    finished = False

    def finish() -> int:
        nonlocal finished
        code = command()
        finished = True
        return code

    code = run_guarded(finish, argv)
    if finished or code == ExitCode.INTERRUPTED:
        return code
    try:
        print("DBACONSOLE UNKNOWN - the check could not be made; stderr tells why", flush=True)
    except OSError:
        pass  # nobody reads it: the code says the same
    return PLUGIN_UNKNOWN


def prepare_streams() -> None:
    """A locale that cannot write `·` or `▇` gets a question mark there instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    # The interpreter flushes stdout once more at exit and would complain about the pipe that has gone.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
