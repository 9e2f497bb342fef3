"""The servers of a run crash, are restarted, or are replaced by others."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from dba_console.actions.lost_answer import settle_mark
from dba_console.actions.statement_results import StatementMark
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_reader import read_run
from tests.actions.connections import acting_connection
from tests.agent.agents import agent
from tests.agent.runs.scripted_console import Operator, answers
from tests.agent.runs.small_runbooks import runbook_text
from tests.background import session, wait_until
from tests.clusters import FreshCluster

WILLING = answers({"*": "="})
SLOW = runbook_text(
    "slow",
    """## Change

```sql {change confirm=yes}
insert into public.changed select 1 from pg_sleep(600)
```
""",
)
TWO_SERVERS = runbook_text(
    "two-servers",
    """## There

```sql {check on=other}
select true as there
```

```sql {change confirm=yes on=other}
insert into public.changed values (1)
```

## Here

```sql {change confirm=yes}
insert into public.changed values (2)
```
""",
)


@pytest.mark.parametrize("how", ["backend", "server"])
def test_an_id_that_may_have_been_reused_proves_no_commit(fresh_cluster: FreshCluster, how: str) -> None:
    """What a crash forgets are the last transaction ids too: another transaction gets them."""
    cluster = fresh_cluster()
    marks: list[StatementMark] = []
    with acting_connection(cluster, marks=marks) as link:
        link.execute_change("create table public.acted ()")
    with acting_connection(cluster) as straight:
        assert settle_mark(straight, marks[0]).state == "ok"
        straight.execute_change(
            "checkpoint"
        )  # the servers of tests are not durable, and this one is to know the transaction
    if how == "server":
        cluster.restart(mode="immediate")
    else:
        before = checkpointer(cluster)
        with session(cluster) as victim:
            [[pid]] = victim.execute("select pg_backend_pid()")
            os.kill(int(str(pid)), signal.SIGKILL)
        wait_until(lambda: checkpointer(cluster) not in ("", before), 60, what="the server after its crash")
    with acting_connection(cluster) as straight:
        reported = settle_mark(straight, marks[0])
    assert reported.state == "unknown" and "started since" in reported.text


def checkpointer(cluster: Cluster) -> str:
    """Its process; empty where the server does not answer."""
    try:
        return cluster.psql("select pid from pg_stat_activity where backend_type = 'checkpointer'").strip()
    except (ConsoleError, subprocess.SubprocessError):
        return ""


def test_a_server_crash_during_a_change_leaves_nothing_of_it_and_it_is_not_repeated(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = fresh_cluster()
    cluster.psql("create table changed(i int)")
    busy = "select from pg_stat_activity where query like 'insert into public.changed%' and state = 'active'"
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        directory = operator.begin(SLOW).directory
        operator.answer(operator.question("start"), "yes")
        operator.answer(operator.question("yes"), "yes")
        with session(cluster) as other:
            wait_until(lambda: other.execute(busy).rowcount == 1, 60, what="the change under way")
        cluster.kill()
        asked = operator.question("failed")
        assert "the connection broke" in asked.text
        cluster.start()
        operator.answer(asked, "abort")
        operator.walk(answers({"undo": "none"}))
    assert cluster.psql("select count(*) from public.changed").strip() == "0"
    kinds = [record.kind for record in read_run(Path(directory)).records]
    assert kinds.count("block.intent") == 1 and "block.mark" not in kinds


def test_another_server_of_a_run_stays_the_same_after_its_agent_was_killed(
    fresh_cluster: FreshCluster, cluster: Cluster, tmp_path: Path
) -> None:
    other = fresh_cluster()
    for one in (cluster, other):
        one.psql("create table changed(i int)")
    config = tmp_path / "config" / "dba-console" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[targets.other]\ndsn = "{other.dsn()}"\n')
    config.chmod(0o600)
    try:
        with agent(cluster.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            run = operator.begin(TWO_SERVERS).run
            operator.answer(operator.question("start"), "yes")
            asked = operator.question("yes")
            other.restart()
            operator.answer(asked, "yes")
            meant = operator.question("yes")
            assert meant.text.startswith("other: the server was started")
            operator.answer(meant, "yes")
            here = operator.question("yes")
            assert here.block.startswith("here")
        with agent(cluster.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            operator.until(lambda: operator.view is not None, "the interrupted run")
            operator.resume(run)
            assert operator.walk(WILLING).state == "done"
        assert cluster.psql("select i from public.changed").split() == ["2"]
        assert other.psql("select i from public.changed").split() == ["1"]
    finally:
        cluster.psql("drop table public.changed")
