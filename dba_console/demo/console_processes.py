"""The commands that the demo runs on what it started: the console, or a recorder and the text view.

They are exactly those a user types, as processes of their own; so the demo shows nothing that is not there, and this
process stays free to clean up.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from dba_console.agent.target_lock import TargetLock
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.rehearsal import CALM_TICKS, TriggeredIncident
from dba_console.errors import ConsoleError, ExitCode
from dba_console.safe_environment import python_command
from dba_console.target import make_target

HEADLESS_S = 20.0
CONSOLE_CALM_TICKS = 11
"""With a screen the incident begins after ten seconds: time to see the calm state."""
RECORDER_PATIENCE_S = 30.0
"""It writes what it holds before it ends; on a stalled disk that takes a while, and the verdict is read from there."""
AGENT_GRACE = "3s"
"""The agent has nothing to watch once the practice ground is gone."""


class DemoServers(Protocol):
    """What a demo started: a server under load, or several."""

    @property
    def dsn(self) -> str: ...

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the commands need beside the caller's."""

    def check(self) -> None:
        """Raises ConnectError when the load ended."""


def open_console(ground: DemoServers, duration_s: float | None, incident: TriggeredIncident | None) -> int:
    """Open the console until it is left or `duration_s` has passed; the incident begins after a while."""
    console = start_child(
        console_command(ground.dsn),
        stdin=sys.stdin.fileno(),
        output=None,
        environment=console_environment(ground),
        own_session=False,
    )
    # ctrl-C is a key of the console: it reaches both of us, and is the console's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    until = math.inf if duration_s is None else time.monotonic() + duration_s
    try:
        # The console is a process of its own, so it stays usable while this one brings the incident about.
        if incident is not None and incident.wait_calm(
            CONSOLE_CALM_TICKS, lambda: console.poll() is None and time.monotonic() < until
        ):
            incident.begin()
        code = console.wait(None if duration_s is None else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = ExitCode.OK
    finally:
        end_child(console)
    return code


def record(ground: DemoServers, duration_s: float, incident: TriggeredIncident | None) -> int:
    """Record for `duration_s`, then show what the recorder sees at the end of it. Exit code of the latter."""
    recorder = start_child(
        console_command("record", "--for", f"{duration_s + 60:.0f}s", ground.dsn),
        environment=console_environment(ground),
        output=2,
    )
    until = time.monotonic() + duration_s
    try:
        print_message(f"recording for {duration_s:g} s, then the overview")
        if incident is not None:
            if incident.wait_calm(CALM_TICKS, lambda: recorder.poll() is None and time.monotonic() < until):
                incident.begin()
            else:
                print_message(f"the incident did not begin: it takes {CALM_TICKS} calm samples first")
        _wait_recording(ground, recorder, until)
        if recorder.poll() is not None:
            raise ConsoleError(f"the recorder ended by itself, with exit code {recorder.returncode}")
        return subprocess.run(
            console_command("show", ground.dsn),
            env=console_environment(ground),
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        ).returncode
    finally:
        end_child(recorder, patience_s=RECORDER_PATIENCE_S)


def stop_agent(dsn: str) -> None:
    """Its server goes now. Left to itself an agent ends after a while, but not in the middle of a runbook."""
    if (agent := TargetLock(make_target(dsn).key).holder()) is None:
        return
    try:
        os.kill(agent, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended


def _wait_recording(ground: DemoServers, recorder: subprocess.Popen[bytes], until: float) -> None:
    while (left := until - time.monotonic()) > 0 and recorder.poll() is None:
        ground.check()
        time.sleep(min(left, 0.5))


def console_command(*arguments: str) -> list[str]:
    return [*python_command("dba_console"), *arguments]


def console_environment(ground: DemoServers | None = None) -> dict[str, str]:
    return {**os.environ, "DBA_CONSOLE_AGENT_GRACE": AGENT_GRACE, **({} if ground is None else ground.environment)}


def print_message(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def ignore_message(_text: str) -> None:
    """The console has the screen."""


class _Stopped(SystemExit):
    """A signal asked us to end; unwinding does the cleaning."""


@contextmanager
def exit_on_signals() -> Iterator[None]:
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


def ignore_signals() -> None:
    """From here on it is cleaned up, and an impatient second ctrl-C must not stop that half-way."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
