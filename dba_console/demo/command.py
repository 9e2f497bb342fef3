"""`dba-console demo`: the practice ground, and the console on it, as a user would open it.

The console, the recorder and the text view run as commands of their own, exactly those a user types; so the demo shows
nothing that is not there, and this process stays free to clean up.
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
from pathlib import Path
from types import FrameType

from dba_console.agent.lock import TargetLock
from dba_console.demo.incidents.incident import Incident, stand_in
from dba_console.demo.incidents.registry import find
from dba_console.demo.leash import end, on_leash
from dba_console.demo.practice import PracticeGround
from dba_console.demo.rehearsal import CALM_TICKS, Rehearsal, recorded_verdict
from dba_console.demo.verdict import Verdict, clock_of, sentence_of, severity_of
from dba_console.errors import ConsoleError, ExitCode, SessionError
from dba_console.processes import python
from dba_console.target import make_target

HEADLESS_S = 20.0
CONSOLE_CALM_TICKS = 11
"""With a screen the incident begins after ten seconds: time to look around."""
RECORDER_PATIENCE_S = 30.0
"""It writes what it holds before it ends; on a stalled disk that takes a while, and the verdict is read from there."""
NOT_SEEN = 1
"""The exit code where an incident was not seen: no error of the command's own."""
AGENT_GRACE = "3s"
"""The agent has nothing to watch once the practice ground is gone."""


def run_demo(headless: bool, duration_s: float | None, keep: bool, incident_name: str | None = None) -> int:
    """Run the demo and return an exit code. Raises ConsoleError when no server can be started.

    `headless`, or no terminal: records for `duration_s` (20 s unless given), then prints the overview. Otherwise the
    console opens, until it is left or `duration_s` has passed. NOT_SEEN: headless, and no finding named the incident.
    """
    headless = headless or not (sys.stdin.isatty() and sys.stdout.isatty())
    incident = None if incident_name is None else find(incident_name)
    if incident is not None and (recording := stand_in(incident)) is not None:
        return _replay(incident, recording, headless)
    with _stopped_by_signals(), PracticeGround(keep=keep, say=_say, incident=incident) as ground:
        if keep:
            _say(_kept(ground))
        _say(f"dba-console '{ground.dsn}'")
        rehearsal = None if incident is None else Rehearsal(ground, incident, _say if headless else _silent)
        try:
            if headless:
                usual = HEADLESS_S if incident is None else HEADLESS_S + incident.within_s
                return _headless(ground, usual if duration_s is None else duration_s, rehearsal)
            return _console(ground, duration_s, rehearsal)
        finally:
            _deaf_to_signals()
            _end_agent(ground.dsn)


def _end_agent(dsn: str) -> None:
    """Its server goes now. Left to itself an agent ends after a while, but not in the middle of a runbook."""
    if (agent := TargetLock(make_target(dsn).key).holder()) is None:
        return
    try:
        os.kill(agent, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended


def _console(ground: PracticeGround, duration_s: float | None, rehearsal: Rehearsal | None) -> int:
    console = on_leash(
        _command(ground.dsn), stdin=sys.stdin.fileno(), output=None, environment=_environment(), own_session=False
    )
    # ctrl-C is a key of the console: it reaches both of us, and is the console's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    until = math.inf if duration_s is None else time.monotonic() + duration_s
    try:
        # The console is a process of its own, so it stays usable while this one brings the incident about.
        if rehearsal is not None and rehearsal.wait_calm(
            CONSOLE_CALM_TICKS, lambda: console.poll() is None and time.monotonic() < until
        ):
            rehearsal.begin()
        code = console.wait(None if duration_s is None else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = ExitCode.OK
    finally:
        end(console)
    if rehearsal is not None and rehearsal.begun:
        _say(_last_word(rehearsal))
    return code


def _headless(ground: PracticeGround, duration_s: float, rehearsal: Rehearsal | None) -> int:
    """Record for `duration_s`, show what the recorder sees at the end of it, and what became of the incident."""
    recorder = on_leash(
        _command("record", "--for", f"{duration_s + 60:.0f}s", ground.dsn), environment=_environment(), output=2
    )
    until = time.monotonic() + duration_s
    try:
        _say(f"recording for {duration_s:g} s, then the overview")
        if rehearsal is not None:
            if rehearsal.wait_calm(CALM_TICKS, lambda: recorder.poll() is None and time.monotonic() < until):
                rehearsal.begin()
            else:
                _say(f"the incident did not begin: it takes {CALM_TICKS} calm samples first")
        _pause(ground, recorder, until)
        if recorder.poll() is not None:
            raise ConsoleError(f"the recorder ended by itself, with exit code {recorder.returncode}")
        code = subprocess.run(
            _command("show", ground.dsn), env=_environment(), stdin=subprocess.DEVNULL, timeout=60, check=False
        ).returncode
    finally:
        end(recorder, patience_s=RECORDER_PATIENCE_S)
    return code if rehearsal is None or code != ExitCode.OK else _tell(rehearsal.verdict())


def _last_word(rehearsal: Rehearsal) -> str:
    """What the recording says of the incident, or why it says nothing: leaving a console is no failure."""
    try:
        return rehearsal.verdict().sentence()
    except SessionError as error:
        return error.message


def _replay(incident: Incident, directory: Path, headless: bool) -> int:
    """Show a recording of the incident, and say that it is one; without a screen, its findings and the verdict too."""
    verdict = recorded_verdict(directory, incident)
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verdict.begun_us / 1e6))
    _say(f"{incident.name} needs root: {incident.title}")
    _say(f"this is a RECORDING of it, of {made}, on another host; nothing happens here")
    at = ["--at", f"finding:{incident.finding}"] if verdict.seen is not None else []
    shown = ["--show", *at] if headless else []
    code = subprocess.run(_command("replay", str(directory), *shown), env=_environment(), check=False).returncode
    return code if not headless or code != ExitCode.OK else _tell(verdict)


def _tell(verdict: Verdict) -> int:
    """The findings to stdout, the verdict to stderr; 0 where the incident was seen, else 1."""
    print("\nFindings raised:" if verdict.findings else "\nNo finding was raised.")
    for event in verdict.findings:
        print(f"  {clock_of(event.wall_us)} {severity_of(event):<8} {sentence_of(event)}")
    sys.stdout.flush()
    _say(verdict.sentence())
    for event in verdict.others:
        _say(f"another critical finding at {clock_of(event.wall_us)}: {sentence_of(event)}")
    return 0 if verdict.seen is not None else NOT_SEEN


def _pause(ground: PracticeGround, recorder: subprocess.Popen[bytes], until: float) -> None:
    while (left := until - time.monotonic()) > 0 and recorder.poll() is None:
        ground.load.check()
        time.sleep(min(left, 0.5))


def _kept(ground: PracticeGround) -> str:
    cluster = ground.cluster
    if not cluster.data_directory.is_relative_to(cluster.base):
        return f"kept afterwards: the logs in {cluster.base}; the data is not kept, its disk goes with the demo"
    return f"kept afterwards: {cluster.base}, to be started again with: {_start_again(ground)}"


def _start_again(ground: PracticeGround) -> str:
    cluster = ground.cluster
    server = f"{cluster.binaries.program('postgres')} -D {cluster.data_directory}"
    return f"runuser -u {cluster.account.name} -- {server}" if cluster.account.switched else server


def _command(*arguments: str) -> list[str]:
    return [*python("dba_console"), *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "DBA_CONSOLE_AGENT_GRACE": AGENT_GRACE}


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def _silent(_text: str) -> None:
    """The console has the screen."""


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
