"""Settings of a run whose agent, server or operator went away: found, told by every command, and put back."""

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
from dba_console.demo.cluster import Cluster
from dba_console.runbooks.library import SHIPPED
from dba_console.watch.frames.model import Finding, Frame
from tests.actions.temporary_runs import as_before
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.scripted_console import PATIENCE_S, WILLING, Operator, answers
from tests.agent.runs.small_runbooks import book
from tests.clusters import binaries_of

MORTAL = "tests.agent.runs.agent_that_kills_itself"
RULE = "settings-left"
_HOLD = """
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
TUNED = book(
    "tuned",
    """## Set

```toml {action set-parameters confirm=ack}
temporary = true
settings = { maintenance_work_mem = "77MB", max_wal_size = "2GB" }
```
"""
    + _HOLD,
)
UNSAFE = book(
    "unsafe",
    """## Set

```toml {action set-parameters confirm=type:"lose everything"}
temporary = true
settings = { fsync = "off", full_page_writes = "off" }
```
"""
    + _HOLD,
)
WAITS = book("waits", "## Wait\n" + _HOLD.partition("## Load")[2].partition("## Put back")[0])
BY_LETTER = UNSAFE.replace('type:"lose everything"', "ack")
PUT_BACK = (SHIPPED / "put-back.md").read_text()
AUTO = "select count(*) from pg_file_settings where sourcefile like '%auto.conf'"


@pytest.fixture(scope="module", params=[14, 18])
def durable(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(binaries_of(request.param)) as made:
        yield made


@pytest.fixture
def one(cluster: Cluster) -> Iterator[Cluster]:
    """The shared server; not durable from the beginning."""
    yield cluster
    as_before(cluster)


def die(cluster: Cluster, place: Path, text: str, dies: str) -> None:
    """An agent that begins the run and is killed in it."""
    with agent(cluster.dsn(), place, extra={DIES: dies}, program=MORTAL) as running:
        operator = Operator.of(running)
        with pytest.raises((AgentConnectionLost, ConnectError)):
            operator.begin(text)
            operator.walk(WILLING)


def found(running: RunningAgent, severity: str, text: str) -> Finding:
    """The finding, once it is that grave and says this: before the server has answered it says what is known."""

    def there(frame: Frame) -> list[Finding]:
        return [one for one in frame.findings if (one.rule, one.severity) == (RULE, severity) and text in one.text]

    return there(running.watch().until(there, PATIENCE_S, what=f"{RULE}, {severity}: {text}"))[0]


def cleared(running: RunningAgent) -> None:
    def gone(frame: Frame) -> bool:
        return frame.judged and all(one.rule != RULE for one in frame.findings)

    running.watch().until(gone, PATIENCE_S, what=f"the end of {RULE}")


def put_back(running: RunningAgent) -> str:
    """By the shipped runbook; what its action said."""
    operator = Operator.of(running)
    operator.begin(PUT_BACK)
    view = operator.walk(WILLING)
    assert view.state == "done", view
    return next(event.text for event in operator.events if event.kind == "block.result")


def at_work(operator: Operator) -> None:
    """A run that has set something, and waits for the work it is for."""
    operator.begin(TUNED)
    operator.answer(operator.question("start"), "yes")
    operator.answer(operator.question("ack"), "y")
    operator.question("manual")


def gone_on_with(operator: Operator) -> None:
    """The run that an agent before this one left."""
    operator.resume(operator.until(lambda: operator.view is not None, "the interrupted run").run)


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command beside which no agent runs."""
    return subprocess.run(
        [sys.executable, "-m", "dba_console", *arguments], capture_output=True, text=True, check=False, timeout=300,
        env=dict(os.environ),
    )  # fmt: skip


def owed(place: Path) -> list[Path]:
    return list((place / "state" / "dba-console" / "reverts").glob("*.json"))


def test_settings_a_killed_agent_left_are_found_and_reverted(one: Cluster, tmp_path: Path) -> None:
    """Killed when the settings were made and no record said so yet."""
    die(one, tmp_path, TUNED, "before:block.result")
    assert one.psql("show maintenance_work_mem") == "77MB" and len(owed(tmp_path)) == 2
    with agent(one.dsn(dbname="template1"), tmp_path) as running:  # another spelling of the same server
        told = found(running, "warning", "maintenance_work_mem (77MB), max_wal_size (2GB) still differ from before run")
        assert told.runbook == "put-back" and any("was not set" in line for line in told.evidence["settings"])
        put_back(running)
        cleared(running)
    assert one.psql(AUTO) == "0" and one.psql("show maintenance_work_mem") == "64MB" and owed(tmp_path) == []


def test_a_server_that_crashed_without_fsync_is_not_trusted(durable: Cluster, tmp_path: Path) -> None:
    die(durable, tmp_path, UNSAFE, "before:block.result")
    assert durable.psql("show fsync") == "off"
    durable.kill()
    durable.start()
    if durable.major == 18:
        checked = said("check", durable.dsn())
        assert (
            checked.returncode == 2 and "fsync (off), full_page_writes (off) still differ from before" in checked.stdout
        )
        shown = said("show", "findings", durable.dsn())
        assert "fsync (off)" in shown.stdout, shown
    with agent(durable.dsn(), tmp_path) as running:
        found(running, "critical", "the data of this cluster cannot be trusted, restore it from a backup")
        assert "cannot be trusted, restore" in put_back(running)
        cleared(running)
    assert durable.psql(AUTO) == "0" and durable.psql("show fsync") == "on" and owed(tmp_path) == []


def test_a_pending_revert_that_was_never_set_is_removed(one: Cluster, tmp_path: Path) -> None:
    """Killed after the reverts were written and before anything was set: no finding says otherwise, and the run sets it
    when it goes on, without a person who decides about a failure."""
    die(one, tmp_path, TUNED, "before:block.mark")
    assert one.psql(AUTO) == "0" and len(owed(tmp_path)) == 2
    with agent(one.dsn(), tmp_path) as running:
        watch = running.watch()
        assert "has its old value again" in watch.event("setting.returned", PATIENCE_S).text
        cleared(running)
        assert [event.text for event in watch.events if RULE in event.text or event.details.get("rule") == RULE] == []
        assert owed(tmp_path) == []
        operator = Operator.of(running)
        gone_on_with(operator)
        operator.answer(operator.question("ack"), "y")
        work = operator.question()
        assert (work.kind, one.psql("show maintenance_work_mem")) == ("manual", "77MB")
        assert any("not finished, will continue" in event.text for event in operator.events)
        assert operator.walk(answers({"manual": "done", "ack": "y"})).state == "done"
    assert one.psql(AUTO) == "0" and owed(tmp_path) == []


def test_partly_set_settings_are_resumed(one: Cluster, tmp_path: Path) -> None:
    """Killed between the two."""
    die(one, tmp_path, TUNED, "before:block.mark:set:2")
    assert one.psql("select count(*) from pg_file_settings where sourcefile like '%auto.conf'") == "1"
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        gone_on_with(operator)
        operator.answer(operator.question("ack"), "y")
        assert operator.question().kind == "manual"
        assert (one.psql("show maintenance_work_mem"), one.psql("show max_wal_size")) == ("77MB", "2GB")
        operator.control("abort", reason="enough")
        operator.walk({})
    assert one.psql(AUTO) == "0" and owed(tmp_path) == []


def test_a_run_killed_while_reverting_continues_reverting(one: Cluster, tmp_path: Path) -> None:
    with agent(one.dsn(), tmp_path, extra={DIES: "before:block.mark:put-back:2"}, program=MORTAL) as running:
        operator = Operator.of(running)
        operator.begin(TUNED)
        with pytest.raises((AgentConnectionLost, ConnectError)):
            operator.walk(answers({"manual": "done", "*": "="}))
    assert len(owed(tmp_path)) == 2 and one.psql(AUTO) == "1"
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        gone_on_with(operator)
        assert operator.walk(answers({"ack": "y"})).state == "done"
    assert one.psql(AUTO) == "0" and owed(tmp_path) == []


def test_during_the_run_only_the_most_severe_setting_is_reported_and_its_end_raises_the_finding(
    one: Cluster, tmp_path: Path
) -> None:
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        operator.begin(BY_LETTER)
        operator.walk({"ack": "y", "start": "yes", "failed": "abort", "undo": "none"})
        refused = [one.text for one in operator.events if one.kind == "block.result"]
        assert "its block must use confirm=type" in " ".join(refused), "a letter does not confirm it"
        assert one.psql(AUTO) == "0"
        operator.begin(UNSAFE)
        operator.answer(operator.question("start"), "yes")
        operator.answer(operator.question("type"), "lose everything")
        operator.question("manual")
        found(running, "info", "destroys the whole cluster")
        running.end()  # in order, as by a reboot: the run is left, and nothing of it done
    with agent(one.dsn(), tmp_path) as running:
        found(running, "critical", "(ended)")
        put_back(running)
        cleared(running)
    assert one.psql(AUTO) == "0" and owed(tmp_path) == []


def test_a_run_that_is_ended_reverts_its_settings_without_a_question(one: Cluster, tmp_path: Path) -> None:
    """By a person, at once; and after its agent was killed, as soon as somebody ends it."""
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        at_work(operator)
        assert one.psql("show maintenance_work_mem") == "77MB"
        operator.control("abort", reason="enough")
        assert operator.walk({}).ending == "run aborted: enough; temporary settings reverted"
        told = next(event.text for event in operator.events if event.kind == "undo.settings")
        assert "maintenance_work_mem is not set in postgresql.auto.conf; it is 64MB now" in told
        assert one.psql(AUTO) == "0" and owed(tmp_path) == []
    die(one, tmp_path, TUNED, "after:block.asked:load")
    assert one.psql("show maintenance_work_mem") == "77MB"
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        gone_on_with(operator)
        operator.question("manual")
        operator.control("abort", reason="enough")
        assert "temporary settings reverted" in operator.walk({}).ending
        assert one.psql(AUTO) == "0" and owed(tmp_path) == []


def test_settings_whose_revert_was_killed_are_reverted_when_the_run_continues(one: Cluster, tmp_path: Path) -> None:
    """Killed when the run was given up, and when the settings were back and no record said so."""
    for dies in ("after:undo.offered", "before:undo.settings"):
        with agent(one.dsn(), tmp_path, extra={DIES: dies}, program=MORTAL) as running:
            operator = Operator.of(running)
            at_work(operator)
            with pytest.raises((AgentConnectionLost, ConnectError)):
                operator.control("abort", reason="enough")
                operator.walk({})
        with agent(one.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            gone_on_with(operator)
            assert operator.walk({}).ending.startswith("run aborted: enough"), dies
            assert one.psql(AUTO) == "0" and one.psql("show maintenance_work_mem") == "64MB" and owed(tmp_path) == []


def test_only_settings_are_reverted_while_a_run_waits_for_an_answer(one: Cluster, tmp_path: Path) -> None:
    """A run waits in a terminal that was closed; an earlier one has left its settings."""
    die(one, tmp_path, TUNED, "before:block.result")
    assert one.psql("show maintenance_work_mem") == "77MB"
    with agent(one.dsn(), tmp_path) as running:
        closed = Operator.attach(running.socket())
        closed.begin(WAITS)
        closed.answer(closed.question("start"), "yes")
        waiting = closed.question("manual")
        closed.close()
        put_back(running)
        assert one.psql(AUTO) == "0" and owed(tmp_path) == []
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
        assert back.walk(WILLING).state == "done"


def test_settings_of_an_active_run_are_left_to_it_and_that_is_reported(one: Cluster, tmp_path: Path) -> None:
    with agent(one.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        at_work(operator)
        assert operator.view is not None
        other = Operator.of(running)
        other.begin(PUT_BACK)
        assert other.walk(answers({"start": "yes", "failed": "abort"})).state == "failed"
        assert other.view is not None and other.view.run != operator.view.run
        [told] = [event.text for event in other.events if event.kind == "block.seen" and "refused" in event.text]
        assert f"set by run {operator.view.run}, which is active and reverts it when it ends" in told
        assert f"dba-console runbook resume {operator.view.run}, then /abort" in told
        assert one.psql("show maintenance_work_mem") == "77MB" and len(owed(tmp_path)) == 2
        operator.control("abort", reason="enough")
        operator.walk({})
        assert one.psql(AUTO) == "0" and owed(tmp_path) == []
