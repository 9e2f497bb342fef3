"""`dba-console demo`: the practice ground, and the console on it, as a user would open it.

The console, the recorder and the text view run as commands of their own, exactly those a user types; so the demo shows
nothing that is not there, and this process stays free to clean up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dba_console.demo.leash import end, on_leash
from dba_console.demo.practice import PracticeGround
from dba_console.errors import ConsoleError, ExitCode

HEADLESS_S = 20.0
AGENT_GRACE = "3s"
"""The agent has nothing to watch once the practice ground is gone."""


def run_demo(headless: bool, duration_s: float | None, keep: bool) -> int:
    """Run the demo and return an exit code. Raises ConsoleError when no server can be started.

    `headless`, or no terminal: records for `duration_s` (20 s unless given), then prints the overview. Otherwise the
    console opens, until it is left or `duration_s` has passed.
    """
    headless = headless or not (sys.stdin.isatty() and sys.stdout.isatty())
    with _stopped_by_signals(), PracticeGround(keep=keep, say=_say) as ground:
        if keep:
            _say(f"kept afterwards: {ground.cluster.base}, to be started again with: {_start_again(ground)}")
        _say(f"dba-console '{ground.dsn}'")
        try:
            if headless:
                return _headless(ground, HEADLESS_S if duration_s is None else duration_s)
            return _console(ground, duration_s)
        finally:
            _deaf_to_signals()


def _console(ground: PracticeGround, duration_s: float | None) -> int:
    console = on_leash(
        _command(ground.dsn), stdin=sys.stdin.fileno(), output=None, environment=_environment(), own_session=False
    )
    # ctrl-C is a key of the console: it reaches both of us, and is the console's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return console.wait(duration_s)
    except subprocess.TimeoutExpired:
        end(console)
        return ExitCode.OK
    finally:
        end(console)


def _headless(ground: PracticeGround, duration_s: float) -> int:
    """Record for `duration_s`, show what the recorder sees at the end of it."""
    recorder = on_leash(
        _command("record", "--for", f"{duration_s + 60:.0f}s", ground.dsn), environment=_environment(), output=2
    )
    try:
        _say(f"recording for {duration_s:g} s, then the overview")
        _pause(ground, recorder, duration_s)
        if recorder.poll() is not None:
            raise ConsoleError(f"the recorder ended by itself, with exit code {recorder.returncode}")
        return subprocess.run(
            _command("show", ground.dsn), env=_environment(), stdin=subprocess.DEVNULL, timeout=60, check=False
        ).returncode
    finally:
        end(recorder)


def _pause(ground: PracticeGround, recorder: subprocess.Popen[bytes], duration_s: float) -> None:
    until = time.monotonic() + duration_s
    while (left := until - time.monotonic()) > 0 and recorder.poll() is None:
        ground.load.check()
        time.sleep(min(left, 0.5))


def _start_again(ground: PracticeGround) -> str:
    cluster = ground.cluster
    server = f"{cluster.binaries.program('postgres')} -D {cluster.data_directory}"
    return f"runuser -u {cluster.account.name} -- {server}" if cluster.account.switched else server


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dba_console", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "DBA_CONSOLE_AGENT_GRACE": AGENT_GRACE}


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


class _Stopped(SystemExit):
    """A signal asked us to end; unwinding does the cleaning."""


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the block as ctrl-C does; what was there before is put back."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Stopped(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _deaf_to_signals() -> None:
    """From here on it is cleaned up, and an impatient second ctrl-C must not stop that half-way."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
