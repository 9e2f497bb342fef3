"""An agent that kills itself at a record of a run's journal: `python -m MODULE record DSN`.

DBA_CONSOLE_TEST_DIES in the environment says when: `after:block.mark`, once the first record of that kind that this
process writes is on the disk; `before:block.result`, when it is about to be written; `after:step.ended:look`, at that
of the step `look`; `before:block.mark:set:2`, at the second of the step `set`. With DBA_CONSOLE_TEST_KILLS, the shell
script it names kills something else in its place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_journal import RunJournal
from tests.agent.runs import nodes
from tests.agent.runs.agent_command import command_or_agent

DIES = "DBA_CONSOLE_TEST_DIES"
KILLS = "DBA_CONSOLE_TEST_KILLS"
_real_append = RunJournal.append
_seen_kinds: list[JournalRecord] = []


def append(self: RunJournal, record: JournalRecord, *, ends: bool = False) -> JournalRecord:
    """As the journal's own, but for the end of it all."""
    when, kind, *more = os.environ[DIES].split(":")
    due = record.kind == kind and more[:1] in ([], [record.step])
    if due and len(more) > 1:
        _seen_kinds.append(record)
        due = len(_seen_kinds) == int(more[1])
    if due and when == "before":
        _kill()
    written = _real_append(self, record, ends=ends)
    if due and when == "after":
        _kill()
    return written


def _kill() -> None:
    if KILLS not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    subprocess.run(["/bin/sh", "-eu", os.environ[KILLS]], check=True)


if __name__ == "__main__":
    nodes.register()
    RunJournal.append = append  # type: ignore[method-assign]
    sys.exit(command_or_agent("tests.agent.runs.agent_that_kills_itself"))
