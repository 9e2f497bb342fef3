"""An agent that kills itself at a record of a run's journal: `python -m tests.agent.runs.mortal record DSN`.

DIES in the environment says when: `after:4`, once the fourth record of this life is on the disk; `before:block.result`,
when the first record of that kind is about to be written.
"""

from __future__ import annotations

import os
import signal
import sys

from dba_console.agent import launch
from dba_console.plans.record import Record
from dba_console.session.runjournal import RunJournal

DIES = "DIES"
_append = RunJournal.append
_written = 0


def append(self: RunJournal, record: Record) -> Record:
    """As the journal's own, but for the end of it all."""
    global _written
    when, _, what = os.environ[DIES].partition(":")
    if when == "before" and record.kind == what:
        os.kill(os.getpid(), signal.SIGKILL)
    written = _append(self, record)
    _written += 1
    if when == "after" and _written >= int(what):
        os.kill(os.getpid(), signal.SIGKILL)
    return written


def live() -> int:
    """With arguments the command, which turns itself into the agent; without, that agent."""
    if len(sys.argv) > 1:
        from dba_console.__main__ import main

        launch._COMMAND = [sys.executable, "-m", "tests.agent.runs.mortal"]
        return main()
    from dba_console.agent.__main__ import main as agent

    return agent()


if __name__ == "__main__":
    RunJournal.append = append  # type: ignore[method-assign]
    sys.exit(live())
