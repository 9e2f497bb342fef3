"""Which operators may answer a run: the one who began it, one who takes over, and a second where two must agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dba_console.agent.runs.operator_identity import ConsoleOperator, difference, login_uid, person_of
from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import RunningAgent
from tests.agent.runs.scripted_console import Operator
from tests.agent.runs.second_console import OtherConsole
from tests.agent.runs.small_runbooks import TWO_OPERATORS, WAITING


def test_only_the_driver_may_answer_and_another_console_may_take_over(running: RunningAgent) -> None:
    first, second = Operator.of(running), Operator.of(running)
    view = first.begin(TWO_OPERATORS)
    start = first.question("start")
    second.watch(view.run)
    assert first.yours and not second.yours
    second.answer(start, "yes")
    assert "controls this run" in second.refusal().text
    second.control("take")
    second.until(lambda: second.yours, "the run taken over")
    first.until(lambda: not first.yours, "the run lost")
    first.answer(start, "yes")
    assert "controls this run" in first.refusal().text
    second.answer(second.question("start", again=True), "no")
    assert second.until(lambda: second.view is not None and second.view.state == "aborted", "the end").ending


def test_a_second_run_is_refused_while_one_is_active(running: RunningAgent) -> None:
    first, second = Operator.of(running), Operator.of(running)
    first.begin(TWO_OPERATORS)
    first.question("start")
    with pytest.raises(AssertionError, match="a run is active: Two-people"):
        second.begin(TWO_OPERATORS)
    assert second.refused[-1].code == 8
    assert [one.runbook for one in Operator.of(running).runs] == ["two-people"]


def test_a_step_for_two_operators_is_not_done_by_one(running: RunningAgent) -> None:
    first = Operator.of(running)
    view = first.begin(TWO_OPERATORS)
    first.answer(first.question("start"), "yes")
    typed = first.question("type")
    first.answer(typed, typed.expects)
    asked = first.question("second")
    assert asked.first_by and not first.may_answer and "same console" in first.why_not
    first.answer(asked, asked.expects)
    assert "a second operator" in first.refusal().text
    with OtherConsole(running, "bertha") as other:
        assert other.answer(view.run, "second", asked.expects) == ""
        done = first.until(lambda: first.view is not None and first.view.state == "done", "the end")
    assert done.state == "done"
    [confirmed] = [event for event in first.events if "confirmed by" in event.text]
    assert "bertha" in confirmed.text and "according to the console" in confirmed.text


def test_a_lost_console_leaves_the_run_waiting(running: RunningAgent, cluster: Cluster) -> None:
    cluster.psql("create table awaited(i int)")
    try:
        first = Operator.of(running)
        view = first.begin(WAITING)
        first.answer(first.question("start"), "yes")
        first.until(lambda: first.view is not None and first.view.waiting is not None, "the wait")
        first.close()
        cluster.psql("insert into public.awaited values (1)")
        again = Operator.of(running)
        assert [one.run for one in again.runs] == [view.run]
        again.watch(view.run)
        assert again.until(lambda: again.yours, "driving again").state in ("running", "waiting")
        asked = again.question("yes")
        again.answer(asked, "yes")
        again.until(lambda: again.view is not None and again.view.state == "done", "the end")
        assert cluster.psql("select sum(i) from public.awaited").strip() == "3"
    finally:
        cluster.psql("drop table public.awaited")


def test_operators_are_distinguished_by_the_login_uid_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    for pid, uid in ((7, "0"), (8, "4294967295")):
        directory = tmp_path / str(pid)
        directory.mkdir()
        (directory / "loginuid").write_text(uid)
        (directory / "stat").write_text(f"{pid} (dba) S 1 " + "0 " * 48)
    assert login_uid(7, proc=str(tmp_path)) == 0 and login_uid(8, proc=str(tmp_path)) is None
    assert login_uid(9, proc=str(tmp_path)) is None
    root = person_of(7, "anna from 10.0.0.1", proc=str(tmp_path))
    assert root.name == "root (anna from 10.0.0.1)"
    assert not difference(root, ConsoleOperator("bertha", 11, 0)).two, "one login behind two names"
    assert difference(root, ConsoleOperator("bertha", 11, 1)).two
    reported = (
        ConsoleOperator("anna from 10.0.0.1", 8),
        ConsoleOperator("anna from 10.0.0.2", 9),
        ConsoleOperator("bertha", 9),
        ConsoleOperator("bertha", 8),
    )
    assert [difference(reported[0], other).two for other in reported[1:]] == [False, True, False]


def test_a_console_reports_its_login_terminal_and_address() -> None:
    ours, theirs = os.openpty()
    name = os.ttyname(theirs).removeprefix("/dev/")
    says = "from dba_console.agent.client import operator_login; print(operator_login())"
    environ = {**os.environ, "SUDO_USER": "anna", "SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}
    try:
        message = subprocess.run(
            [sys.executable, "-c", says], stdin=theirs, env=environ, capture_output=True, text=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert message.stdout.strip() == f"anna on {name} from 10.0.0.1", message.stderr
    assert ConsoleOperator(message.stdout.strip(), 7, 0).console == f"root on {name} from 10.0.0.1"
