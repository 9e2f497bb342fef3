"""The runbook `cache-drop`, walked in a real agent on a host whose cache is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dba_console.demo.cluster import Cluster
from dba_console.plans.view import ENDED, Question
from dba_console.runbook.library import SHIPPED
from tests.agent.running import RunningAgent, agent
from tests.agent.runs.operator import Operator
from tests.requirements import require_root

TEXT = (SHIPPED / "cache-drop.md").read_text().replace("sleep 10", "sleep 1")
FIRST = "is-it-a-reclaim-stall/check"


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    require_root()
    with agent(cluster.dsn(), tmp_path_factory.mktemp("agent"), extra={"DBA_CONSOLE_AGENT_INTERVAL": "250ms"}) as one:
        yield one


class Choosing:
    """Says yes to what is asked, chooses by step, goes on where the host is too calm for what a step waits for."""

    def __init__(self, **choices: str) -> None:
        self.choices = choices
        self.failed: list[str] = []

    def __call__(self, asked: Question) -> str | None:
        if asked.kind == "failed":
            self.failed.append(asked.block)
            return "skip rehearsed on a calm host"
        if asked.kind == "choose":
            return self.choices[asked.step.replace("-", "_")]
        return {"start": "yes", "manual": "ticket 4711", "yes": "yes", "ack": "y"}.get(asked.kind, asked.expects)


def waits(operator: Operator) -> bool:
    view = operator.view
    return view is not None and view.waiting is not None and view.question is None


def ended(operator: Operator) -> bool:
    return operator.view is not None and operator.view.state in ENDED


def test_a_host_that_reclaims_nothing_fails_the_first_check(running: RunningAgent) -> None:
    operator, says = Operator.of(running), Choosing()
    operator.begin(TEXT)

    def giving_up(asked: Question) -> str | None:
        says(asked)
        return {"failed": "abort", "undo": "none"}.get(asked.kind, "")

    operator.walk(giving_up)
    assert says.failed == [FIRST]
    assert not any(asked.kind == "type" for asked in operator.asked)


def test_what_the_kernel_counted_is_shown_and_nothing_need_be_done(running: RunningAgent) -> None:
    operator = Operator.of(running)
    operator.begin(TEXT)
    view = operator.walk(Choosing(what_does_the_kernel_count="other"))
    assert view.state == "done", view.ending
    assert any(line.text.startswith("pgsteal_file +") for line in operator.lines)


@pytest.mark.alone
def test_the_cache_is_dropped_after_the_servers_name_is_typed(running: RunningAgent) -> None:
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        pytest.skip("this kernel lets nobody drop its caches here")
    operator = Operator.of(running)
    operator.begin(TEXT, {"look": "1s"})
    says = Choosing(what_does_the_kernel_count="stall", did_i_o_come_back="no")

    def answered() -> bool:
        view = operator.view
        assert view is not None
        asked = view.question
        if asked is not None and operator.may_answer and asked.id not in {one.id for one in operator.asked}:
            operator.asked.append(asked)
            text = says(asked)
            assert text is not None
            operator.answer(asked, text)
        return ended(operator) or waits(operator)

    operator.until(answered, "the wait after the drop")
    assert operator.view is not None
    assert any(step.id == "drop-it" and step.state == "ok" for step in operator.view.steps)
    drop = next(asked for asked in operator.asked if asked.block == "drop-it/action" and asked.kind == "type")
    assert drop.expects == operator.view.target
    operator.control("abort", reason="it was a rehearsal")
    operator.walk(lambda asked: {"undo": "none", "choose": "abort"}.get(asked.kind, "abort"))
    assert ended(operator)
