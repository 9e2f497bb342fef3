"""From what a console asks for to a run: done in the run's own thread, for servers and disks are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.agent.runs.beginning import begin, require_login, resume
from dba_console.agent.runs.conduct import Audience, Conduct
from dba_console.agent.runs.controls import Controls
from dba_console.agent.runs.desk import Desk
from dba_console.agent.runs.preparing import order_again, order_of
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.agent.runs.under_way import Make
from dba_console.session.loglines import LogLine
from dba_console.session.runread import read_run

PutLines = Callable[[Sequence[LogLine]], None]


def beginning(asked: RunBegin, who: str, around: Surroundings, put_lines: PutLines) -> Make:
    """A new run."""

    def make(audience: Audience, desk: Desk, controls: Controls) -> Conduct:
        return begin(order_of(asked), who, around, audience, put_lines, desk, controls)

    return make


def going_on(
    directory: Path, asked: RunResume, who: str, around: Surroundings, put_lines: PutLines, made: Callable[[], None]
) -> Make:
    """The run in that directory; `made` is called once it is under way again."""

    def make(audience: Audience, desk: Desk, controls: Controls) -> Conduct:
        papers = read_run(directory)
        order = order_again(papers, asked.inputs, ending=bool(asked.abort))
        if not asked.abort:
            require_login(order.plan, around)
        conduct = resume(papers, order, who, around, audience, put_lines, desk, controls)
        made()
        return conduct

    return make
