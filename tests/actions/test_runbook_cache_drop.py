"""The runbook `cache-drop`, walked in a real agent on a host whose cache is left alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dba_console.agent.runs.commands import command_environment, script_argv
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.block_kind_registry import bind_inputs
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.runbooks.library import SHIPPED
from dba_console.runbooks.run_view import ENDED_STATES, Question, RunView
from dba_console.runbooks.values import typed
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.scripted_console import Operator
from tests.requirements import require_root

TEXT = (
    (SHIPPED / "cache-drop.md").read_text().replace("sleep 10", "sleep 1").replace('hold_for = "5s"', 'hold_for = "1s"')
)
BOOST = Path("/proc/sys/vm/watermark_boost_factor")


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    require_root()
    with agent(cluster.dsn(), tmp_path_factory.mktemp("agent"), extra={"DBA_CONSOLE_AGENT_INTERVAL": "250ms"}) as one:
        yield one


class ChoosingAnswers:
    """Says yes to what is asked, chooses by step, goes on where the host is too calm for what a step waits for."""

    def __init__(self, **choices: str) -> None:
        self.choices = choices

    def __call__(self, asked: Question) -> str | None:
        if asked.kind == "failed":
            return "skip rehearsed on a calm host"
        if asked.kind == "choose":
            return self.choices[asked.step.replace("-", "_")]
        return {"start": "yes", "manual": "ticket 4711", "yes": "yes", "ack": "y"}.get(asked.kind, asked.expects)


def waits(operator: Operator) -> bool:
    view = operator.view
    return view is not None and view.waiting is not None and view.question is None


def ended(operator: Operator) -> bool:
    return operator.view is not None and operator.view.state in ENDED_STATES


def test_the_kernel_counters_are_shown_and_no_change_is_needed(running: RunningAgent) -> None:
    operator = Operator.of(running)
    operator.begin(TEXT)
    view = operator.walk(ChoosingAnswers(what_does_the_kernel_count="other"))
    assert view.state == "done", view.ending
    assert any(line.text.startswith("pgsteal_file +") for line in operator.lines)


def test_a_counted_cause_is_fixed_before_anything_is_dropped_and_undo_restores_the_old_value(
    running: RunningAgent,
) -> None:
    if not os.access(BOOST, os.W_OK):
        pytest.skip("this kernel lets nobody set vm.watermark_boost_factor here")
    was = BOOST.read_text()
    try:
        BOOST.write_text("14999")
        operator = Operator.of(running)
        operator.begin(TEXT)
        message = ChoosingAnswers(what_does_the_kernel_count="fix", which_fix="boost", did_it_end="ended")
        until_it_waits(operator, message, "does-it-recur")
        assert BOOST.read_text() == "0\n"
        assert [asked.expects for asked in operator.asked if asked.kind == "type"] == [view_of(operator).target]
        assert not has_acted(operator, "drop-it")
        operator.control("abort", reason="it was a rehearsal")
        operator.walk(lambda asked: {"undo": "all", "yes": "yes", "type": asked.expects}.get(asked.kind, "abort"))
        assert BOOST.read_text() == "14999\n"
    finally:
        BOOST.write_text(was)


def test_a_past_stall_is_watched_and_nothing_is_dropped_or_set(running: RunningAgent) -> None:
    operator = Operator.of(running)
    operator.begin(TEXT)
    until_it_waits(operator, ChoosingAnswers(what_does_the_kernel_count="over"), "does-it-recur")
    assert not has_acted(operator, "drop-it") and not any(asked.kind == "type" for asked in operator.asked)
    operator.control("abort", reason="it was a rehearsal")
    operator.walk({"undo": "none", "*": "abort"})


def test_a_fix_is_watched_for_longer_than_the_recurrence_interval() -> None:
    plan = compile_text(TEXT, "cache-drop.md")
    waits = bind_inputs(plan, typed(plan, {"every": "40m"})).step("does-it-recur").blocks
    held = [one.settings["hold_for_s"] for one in waits if one.kind == "wait"]
    assert sum(held) >= 1.5 * 40 * 60


def test_the_memory_limit_of_the_server_is_shown_with_how_often_it_was_hit(cluster: Cluster) -> None:
    _, block = compile_text(TEXT, "cache-drop.md").block("raise-the-limit/run")

    def shown() -> str:
        env = command_environment(server_environment(cluster.dsn(), read_only=True))
        return subprocess.run(
            script_argv(block.body), env=env, capture_output=True, text=True, check=True, cwd="/"
        ).stdout

    with memory_limited(cluster, 8 << 30) as (limit, refused):
        text = shown()
    assert f"{limit}: {8 << 30}\n" in text and f"  {refused}: " in text, text
    assert str(limit) not in shown()


@contextmanager
def memory_limited(cluster: Cluster, limit: int) -> Iterator[tuple[Path, str]]:
    """The postmaster in a control group of its own with that limit: the limit's file, and the one that counts."""
    require_root()
    pid = cluster.pid
    assert pid is not None
    version_1 = Path("/sys/fs/cgroup/memory")
    top, name, refused = (
        (version_1, "memory.limit_in_bytes", "memory.failcnt")
        if version_1.is_dir()
        else (Path("/sys/fs/cgroup"), "memory.max", "memory.events")
    )
    own = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    before = next(path for _, kinds, path in own if kinds == ("memory" if version_1.is_dir() else ""))
    group = top / f"dba-console-test-{pid}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield group / name, refused
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it ended since it was listed
                Path(f"{top}{before}", "cgroup.procs").write_text(one)
        group.rmdir()


def until_it_waits(operator: Operator, answers: ChoosingAnswers, step: str) -> None:
    """Answer until the run waits in that step."""

    def answered() -> bool:
        asked = view_of(operator).question
        if asked is not None and operator.may_answer and asked.id not in {one.id for one in operator.asked}:
            operator.asked.append(asked)
            text = answers(asked)
            assert text is not None
            operator.answer(asked, text)
        there = waits(operator) and any(one.id == step and one.state == "running" for one in view_of(operator).steps)
        return ended(operator) or there

    operator.until(answered, f"the wait of {step}")
    assert not ended(operator), view_of(operator).ending


def view_of(operator: Operator) -> RunView:
    assert operator.view is not None
    return operator.view


def has_acted(operator: Operator, step: str) -> bool:
    return any(one.id == step and one.state == "ok" for one in view_of(operator).steps)
