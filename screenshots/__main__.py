"""`python -m screenshots`: create all screenshots, in about six minutes; `runbooks` or `restore` creates only those.

Nothing on a screenshot is invented: the events happened on a server under load, were recorded by the agent, and are
drawn by the console's own screen.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.incident import session_count, wait_for
from dba_console.demo.incidents.lock_queue import LockQueue
from dba_console.demo.practice_server import PracticeGround
from screenshots.incident import Incident
from screenshots.png import convert, require_converters
from screenshots.restoring import restored
from screenshots.shots import SHOTS, take
from screenshots.walking import as_lines, walked
from screenshots.watching import Watching

HERE = Path(__file__).resolve().parent
RUNBOOK_LOAD = LoadPlan(clients=20, rate_per_s=120, idle=40, scale=10)
LOCK_WAIT = session_count("wait_event_type = 'Lock' and query_start < clock_timestamp() - interval '4 s'") + " > 0"
"""The runbook starts with a check for waits of two seconds; the panel it reads may be two seconds old."""


def main() -> int:
    """Record, take every screenshot, write NAME.svg and NAME.png beside this file. Return an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # to clean up servers and directories
    begun = time.monotonic()
    try:
        require_converters()
        with tempfile.TemporaryDirectory(prefix="dbas-", dir="/tmp") as base:
            if not sys.argv[1:]:
                session = _record(Path(base))
                for shot in SHOTS:
                    _write(shot.name, take(shot, session))
        with tempfile.TemporaryDirectory(prefix="dbas-", dir="/tmp") as base:
            if sys.argv[1:] != ["restore"]:
                _walk(Path(base))
        with tempfile.TemporaryDirectory(prefix="dbas-", dir="/tmp") as base:
            if sys.argv[1:] != ["runbooks"]:
                for name, svg in restored(Path(base), say).items():
                    _write(name, svg)
    except ConsoleError as error:
        print(f"screenshots: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return int(error.code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    say(f"done in {time.monotonic() - begun:.0f} s")
    return 0


def _record(base: Path) -> Watching:
    """Run the incident while an agent records; return the finished recording."""
    with Incident(say) as incident:
        watching = Watching(base, incident.dsn)
        with watching:
            incident.happen(watching)
    return watching


def _walk(base: Path) -> None:
    """Run a runbook on its incident and write its screenshots."""
    queue = LockQueue()
    with PracticeGround(RUNBOOK_LOAD, say=say) as ground, Watching(base, ground.dsn) as watching:
        say("running a runbook on waiting sessions")
        queue.cause(ground)
        wait_for(ground.cluster, LOCK_WAIT)
        for name, svg in walked(watching.socket).items():
            _write(name, svg)
        _write("plain-run", as_lines(ground.dsn))
        queue.end(ground)


def _write(name: str, svg: str) -> None:
    target = HERE / f"{name}.svg"
    target.write_text(svg)
    png = convert(target)
    say(f"{name}: svg {target.stat().st_size // 1000} kB, png {png.stat().st_size // 1000} kB")


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"screenshots: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
