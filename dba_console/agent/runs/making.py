"""From what a console asks for to a run: done in the run's own thread, for servers and disks are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.agent.runs.beginning import begin, require_login, resume
from dba_console.agent.runs.conduct import Audience, Conduct
from dba_console.agent.runs.controls import Controls
from dba_console.agent.runs.desk import Desk
from dba_console.agent.runs.preparing import order_again, order_of, refuse_beside
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.agent.runs.under_way import Make
from dba_console.session.loglines import LogLine
from dba_console.session.runread import read_run
from dba_console.session.runverify import against_sessions

PutLines = Callable[[Sequence[LogLine]], None]


def beginning(asked: RunBegin, who: str, around: Surroundings, put_lines: PutLines, beside: str = "") -> Make:
    """A new run. `beside`: the run that is under way, beside which only settings may be put back."""

    def make(audience: Audience, desk: Desk, controls: Controls) -> Conduct:
        order = order_of(asked)
        refuse_beside(order.plan, beside)
        return begin(order, who, around, audience, put_lines, desk, controls)

    return make


def going_on(
    directory: Path, asked: RunResume, who: str, around: Surroundings, put_lines: PutLines, made: Callable[[], None],
    beside: str = "",
) -> Make:  # fmt: skip
    """The run in that directory; `made` is called once it is under way again."""

    def make(audience: Audience, desk: Desk, controls: Controls) -> Conduct:
        papers = against_sessions(read_run(directory))
        order = order_again(papers, asked.inputs, ending=bool(asked.abort))
        refuse_beside(order.plan, beside)
        if not asked.abort:
            require_login(order.plan, around)
        conduct = resume(papers, order, who, around, audience, put_lines, desk, controls)
        made()
        return conduct

    return make
