"""Temporary settings of a run whose agent, server or operator went away: found, reported, and reverted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.client import AgentConnectionLost
from dba_console.agent.protocol import RunBegin
from dba_console.core.errors import ConnectError
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.library import SHIPPED
from dba_console.watch.frames.model import Finding, Frame
from tests.actions.run_actions import reset_settings
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.scripted_console import CONFIRM_ALL, LIMIT_S, Operator, answers
from tests.agent.runs.small_runbooks import runbook_text
from tests.clusters import binaries_of

SELF_KILLING_AGENT = "tests.agent.runs.agent_that_kills_itself"
RULE = "settings-left"
_WAIT_STEPS = """
## Load

```toml {manual}
text = "The work they are set for."
evidence = "that it is done"
```

## Put back

```toml {action put-back confirm=ack undo=none}
of = "run"
```
"""
TUNED = runbook_text(
    "tuned",
    """## Set

```toml {action set-parameters confirm=ack}
temporary = true
settings = { maintenance_work_mem = "77MB", max_wal_size = "2GB" }
```
"""
    + _WAIT_STEPS,
)
UNSAFE = runbook_text(
    "unsafe",
    """## Set

```toml {action set-parameters confirm=type:"lose everything"}
temporary = true
settings = { fsync = "off", full_page_writes = "off" }
```
"""
    + _WAIT_STEPS,
)
WAITS = runbook_text("waits", "## Wait\n" + _WAIT_STEPS.partition("## Load")[2].partition("## Put back")[0])
UNSAFE_WITHOUT_TYPING = UNSAFE.replace('type:"lose everything"', "ack")
PUT_BACK = (SHIPPED / "put-back.md").read_text()
AUTO_CONF_COUNT = "select count(*) from pg_file_settings where sourcefile like '%auto.conf'"


@pytest.fixture
def shared_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The shared server; not durable from the beginning."""
    yield cluster
    reset_settings(cluster)


def assert_reverted(cluster: Cluster, directory: Path) -> None:
    """Nothing is set, and no revert is pending."""
    assert (cluster.psql(AUTO_CONF_COUNT), pending_files(directory)) == ("0", [])
    assert cluster.psql("show maintenance_work_mem") == "64MB"


def kill_in_run(cluster: Cluster, directory: Path, text: str, killed_at: str) -> None:
    """An agent that begins the run and is killed in it."""
    with agent(cluster.dsn(), directory, extra={DIES: killed_at}, program=SELF_KILLING_AGENT) as running:
        operator = Operator.of(running)
        with pytest.raises((AgentConnectionLost, ConnectError)):
            operator.begin(text)
            operator.walk(CONFIRM_ALL)


def wait_for_finding(running: RunningAgent, severity: str, text: str) -> Finding:
    """Wait for the finding with this severity and text."""

    def there(frame: Frame) -> list[Finding]:
        return [row for row in frame.findings if (row.rule, row.severity) == (RULE, severity) and text in row.text]

    return there(running.watch().until(there, LIMIT_S, what=f"{RULE}, {severity}: {text}"))[0]


def wait_until_cleared(running: RunningAgent) -> None:
    def gone(frame: Frame) -> bool:
        return frame.judged and all(row.rule != RULE for row in frame.findings)

    running.watch().until(gone, LIMIT_S, what=f"the end of {RULE}")


def put_back(running: RunningAgent) -> str:
    """By the shipped runbook; what its action said."""
    operator = Operator.of(running)
    operator.begin(PUT_BACK)
    view = operator.walk(CONFIRM_ALL)
    assert view.state == "done", view
    return next(event.text for event in operator.events if event.kind == "block.result")


def begin_and_set(operator: Operator) -> None:
    """A run that has set something, and waits for the work it is for."""
    operator.begin(TUNED)
    operator.answer(operator.question("start"), "yes")
    operator.answer(operator.question("ack"), "y")
    operator.question("manual")


def resume_interrupted(operator: Operator) -> None:
    """The run that an agent before this one left."""
    operator.resume(operator.until(lambda: operator.view is not None, "the interrupted run").run)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command beside which no agent runs."""
    return subprocess.run(
        [sys.executable, "-m", "dba_console", *arguments], capture_output=True, text=True, check=False, timeout=300,
        env=dict(os.environ),
    )  # fmt: skip


def pending_files(directory: Path) -> list[Path]:
    return list((directory / "state" / "dba-console" / "reverts").glob("*.json"))


def test_settings_a_killed_agent_left_are_found_and_reverted(shared_cluster: Cluster, tmp_path: Path) -> None:
    """Killed when the settings were made and no record said so yet."""
    kill_in_run(shared_cluster, tmp_path, TUNED, "before:block.result")
    assert shared_cluster.psql("show maintenance_work_mem") == "77MB" and len(pending_files(tmp_path)) == 2
    with agent(shared_cluster.dsn(dbname="template1"), tmp_path) as running:  # another spelling of the same server
        finding = wait_for_finding(
            running, "warning", "maintenance_work_mem (77MB), max_wal_size (2GB) still differ from before run"
        )
        assert finding.runbook == "put-back" and any("was not set" in line for line in finding.evidence["settings"])
        put_back(running)
        wait_until_cleared(running)
    assert_reverted(shared_cluster, tmp_path)


def test_a_server_that_crashed_without_fsync_is_not_trusted(tmp_path: Path) -> None:
    with Cluster(binaries_of(None)) as durable:
        kill_in_run(durable, tmp_path, UNSAFE, "before:block.result")
        assert durable.psql("show fsync") == "off"
        durable.kill()
        durable.start()
        checked = run_command("check", durable.dsn())
        assert checked.returncode == 2
        assert "fsync (off), full_page_writes (off) still differ from before" in checked.stdout
        shown = run_command("show", "findings", durable.dsn())
        assert "fsync (off)" in shown.stdout, shown
        with agent(durable.dsn(), tmp_path) as running:
            wait_for_finding(
                running, "critical", "the data of this cluster cannot be trusted, restore it from a backup"
            )
            assert "cannot be trusted, restore" in put_back(running)
            wait_until_cleared(running)
        assert durable.psql(AUTO_CONF_COUNT) == "0" and durable.psql("show fsync") == "on"
        assert pending_files(tmp_path) == []


def test_a_pending_revert_that_was_never_set_is_removed(shared_cluster: Cluster, tmp_path: Path) -> None:
    """Killed after the reverts were written and before anything was set: no finding says otherwise, and the run sets it
    when it goes on, without a person who decides about a failure."""
    kill_in_run(shared_cluster, tmp_path, TUNED, "before:block.mark")
    assert shared_cluster.psql(AUTO_CONF_COUNT) == "0" and len(pending_files(tmp_path)) == 2
    with agent(shared_cluster.dsn(), tmp_path) as running:
        watch = running.watch()
        assert "has its old value again" in watch.event("setting.returned", LIMIT_S).text
        wait_until_cleared(running)
        assert [event.text for event in watch.events if RULE in event.text or event.details.get("rule") == RULE] == []
        assert pending_files(tmp_path) == []
        operator = Operator.of(running)
        resume_interrupted(operator)
        operator.answer(operator.question("ack"), "y")
        work = operator.question()
        assert (work.kind, shared_cluster.psql("show maintenance_work_mem")) == ("manual", "77MB")
        assert any("not finished, will continue" in event.text for event in operator.events)
        assert operator.walk(answers({"manual": "done", "ack": "y"})).state == "done"
    assert_reverted(shared_cluster, tmp_path)


def test_partly_set_settings_are_resumed(shared_cluster: Cluster, tmp_path: Path) -> None:
    """Killed between the two."""
    kill_in_run(shared_cluster, tmp_path, TUNED, "before:block.mark:set:2")
    assert shared_cluster.psql(AUTO_CONF_COUNT) == "1"
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        resume_interrupted(operator)
        operator.answer(operator.question("ack"), "y")
        assert operator.question().kind == "manual"
        assert shared_cluster.psql("show maintenance_work_mem") == "77MB"
        assert shared_cluster.psql("show max_wal_size") == "2GB"
        operator.control("abort", reason="enough")
        operator.walk({})
    assert_reverted(shared_cluster, tmp_path)


def test_a_run_killed_while_reverting_continues_reverting(shared_cluster: Cluster, tmp_path: Path) -> None:
    with agent(
        shared_cluster.dsn(), tmp_path, extra={DIES: "before:block.mark:put-back:2"}, program=SELF_KILLING_AGENT
    ) as running:
        operator = Operator.of(running)
        operator.begin(TUNED)
        with pytest.raises((AgentConnectionLost, ConnectError)):
            operator.walk(answers({"manual": "done", "*": "="}))
    assert len(pending_files(tmp_path)) == 2 and shared_cluster.psql(AUTO_CONF_COUNT) == "1"
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        resume_interrupted(operator)
        assert operator.walk(answers({"ack": "y"})).state == "done"
    assert_reverted(shared_cluster, tmp_path)


def test_during_the_run_only_the_most_severe_setting_is_reported_and_its_end_raises_the_finding(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        operator.begin(UNSAFE_WITHOUT_TYPING)
        operator.walk({"ack": "y", "start": "yes", "failed": "abort", "undo": "none"})
        refused = [event.text for event in operator.events if event.kind == "block.result"]
        assert "its block must use confirm=type" in " ".join(refused), "a letter does not confirm it"
        assert shared_cluster.psql(AUTO_CONF_COUNT) == "0"
        operator.begin(UNSAFE)
        operator.answer(operator.question("start"), "yes")
        operator.answer(operator.question("type"), "lose everything")
        operator.question("manual")
        wait_for_finding(running, "info", "destroys the whole cluster")
        running.end()  # in order, as by a reboot: the run is left, and nothing of it done
    with agent(shared_cluster.dsn(), tmp_path) as running:
        wait_for_finding(running, "critical", "from before run")
        put_back(running)
        wait_until_cleared(running)
    assert_reverted(shared_cluster, tmp_path)


def test_a_run_that_is_ended_reverts_its_settings_without_a_question(shared_cluster: Cluster, tmp_path: Path) -> None:
    """By a person, at once; and after its agent was killed, as soon as somebody ends it."""
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        begin_and_set(operator)
        assert shared_cluster.psql("show maintenance_work_mem") == "77MB"
        operator.control("abort", reason="enough")
        assert operator.walk({}).ending == "run aborted: enough; temporary settings reverted"
        finding = next(event.text for event in operator.events if event.kind == "undo.settings")
        assert "maintenance_work_mem is not set in postgresql.auto.conf; it is 64MB now" in finding
        assert_reverted(shared_cluster, tmp_path)
    kill_in_run(shared_cluster, tmp_path, TUNED, "after:block.asked:load")
    assert shared_cluster.psql("show maintenance_work_mem") == "77MB"
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        resume_interrupted(operator)
        operator.question("manual")
        operator.control("abort", reason="enough")
        assert "temporary settings reverted" in operator.walk({}).ending
        assert_reverted(shared_cluster, tmp_path)


def test_settings_whose_revert_was_killed_are_reverted_when_the_run_continues(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    """Killed when the run was given up, and when the settings were back and no record said so."""
    for killed_at in ("after:undo.offered", "before:undo.settings"):
        with agent(shared_cluster.dsn(), tmp_path, extra={DIES: killed_at}, program=SELF_KILLING_AGENT) as running:
            operator = Operator.of(running)
            begin_and_set(operator)
            with pytest.raises((AgentConnectionLost, ConnectError)):
                operator.control("abort", reason="enough")
                operator.walk({})
        with agent(shared_cluster.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            resume_interrupted(operator)
            assert operator.walk({}).ending.startswith("run aborted: enough"), killed_at
            assert_reverted(shared_cluster, tmp_path)


def test_only_settings_are_reverted_while_a_run_waits_for_an_answer(shared_cluster: Cluster, tmp_path: Path) -> None:
    """A run waits in a terminal that was closed; an earlier one has left its settings."""
    kill_in_run(shared_cluster, tmp_path, TUNED, "before:block.result")
    assert shared_cluster.psql("show maintenance_work_mem") == "77MB"
    with agent(shared_cluster.dsn(), tmp_path) as running:
        closed = Operator.attach(running.socket())
        closed.begin(WAITS)
        closed.answer(closed.question("start"), "yes")
        waiting = closed.question("manual")
        closed.close()
        put_back(running)
        assert_reverted(shared_cluster, tmp_path)
        other = Operator.of(running)
        other.client.send(RunBegin(text=WAITS, source="test.md"))
        refused = other.refusal()
        assert (refused.code, refused.hint) == (8, "only one can run: attach to it, or wait for its end")
        assert refused.text.startswith("a run is active: Waits (")
        back = Operator.of(running)
        [under_way] = [one for one in back.runs if one.runbook == "waits"]
        back.watch(under_way.run)
        back.until(lambda: back.yours, "the run driven from here")
        assert back.question("manual") == waiting, "the run waits as before"
        back.answer(waiting, "done")
        assert back.walk(CONFIRM_ALL).state == "done"


def test_settings_of_an_active_run_are_left_to_it_and_that_is_reported(shared_cluster: Cluster, tmp_path: Path) -> None:
    with agent(shared_cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        begin_and_set(operator)
        assert operator.view is not None
        other = Operator.of(running)
        other.begin(PUT_BACK)
        assert other.walk(answers({"start": "yes", "failed": "abort"})).state == "failed"
        assert other.view is not None and other.view.run != operator.view.run
        [finding] = [event.text for event in other.events if event.kind == "block.seen" and "refused" in event.text]
        assert f"set by run {operator.view.run}, which is active and reverts it when it ends" in finding
        assert f"dba-console runbook resume {operator.view.run}, then /abort" in finding
        assert shared_cluster.psql("show maintenance_work_mem") == "77MB" and len(pending_files(tmp_path)) == 2
        operator.control("abort", reason="enough")
        operator.walk({})
        assert_reverted(shared_cluster, tmp_path)
