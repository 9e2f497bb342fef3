"""Error handling of commands: every exception becomes a documented exit code and at most a message and a hint.

The user never gets a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dba_console.cli.stderr import print_diagnostic, report_crash
from dba_console.cli.stdout import OutputClosed
from dba_console.core.crash_report import CRASH_EXIT_CODE
from dba_console.core.errors import ConsoleError, ExitCode

PLUGIN_UNKNOWN = 3
"""UNKNOWN in the monitoring-plugin convention."""


def run_guarded(command: Callable[[], int], argv: Sequence[str]) -> int:
    """Return the exit code of `command`, whatever it raises; its message goes to stderr."""
    try:
        return int(command())
    except ConsoleError as error:
        _flush_stdout()
        print_diagnostic(f"error: {error}")
        return int(error.code)
    except PermissionError as error:
        _flush_stdout()
        print_diagnostic(
            f"error: permission denied: {error.filename or error}\nhint: run it as the owner: sudo -u USER"
        )
        return int(ExitCode.PERMISSION)
    except KeyboardInterrupt:
        _discard_stdout()
        return int(ExitCode.INTERRUPTED)
    except (OutputClosed, BrokenPipeError):
        # The reader (head, less) closed the pipe; this is not an error.
        _discard_stdout()
        return int(ExitCode.OK)
    except Exception as error:
        _flush_stdout()
        print_diagnostic(report_crash(error, argv))
        return CRASH_EXIT_CODE


def run_plugin_guarded(command: Callable[[], int], argv: Sequence[str]) -> int:
    """Run `check`: any failure is UNKNOWN, because 1 and 2 would be taken for a warning and an alarm."""
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
        print("DBACONSOLE UNKNOWN - the check failed; the reason is on stderr", flush=True)
    except OSError:
        pass  # the exit code reports it
    return PLUGIN_UNKNOWN


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that it removes its unfinished files. Not under nohup."""
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def prepare_streams() -> None:
    """Print a question mark for `·` or `▇` in a locale that cannot encode them, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    # The interpreter flushes stdout again at exit and would report the closed pipe.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
