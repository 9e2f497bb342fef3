"""What goes wrong in a run at night: people change their minds, disks hang, a password is an everyday word."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_reader import read_run
from dba_console.runbooks.run_view import Question
from tests.agent.agents import agent
from tests.agent.runs.scripted_console import Operator
from tests.agent.runs.small_runbooks import ONE_CHANGE, runbook_text
from tests.agent.runs.test_killed import RunOverAgents
from tests.background import session, wait_until
from tests.disks import frozen, loop_mounted

CHANGE_EACH = runbook_text(
    "each-row",
    """## Rows

```sql {preview as=all}
select i from generate_series(1, 400) i
```

```sql {change confirm=type:count each}
insert into public.troubled select %(i)s::int from pg_sleep(0.1)
```
""",
)
CHANGE_ONCE = runbook_text(
    "once",
    """## Once

```sh {run confirm=yes}
echo once >> "$RB_file"
```
""",
    head='[inputs.file]\ntype = "path"\n',
)
SECRETS = runbook_text(
    "secrets",
    """## Ask on the way

```toml {input as=later}
type = "secret"
help = "Another one"
```

## Print all of it

```sh {run confirm=yes as=out}
echo "first $RB_first"; echo "later $RB_later" >&2; echo "password ${PGPASSWORD:-none}"
```

```sh {check}
echo "seen $RB_later and $RB_first"
```

```sql {measure as=told}
select %(later)s as later, 'x' || %(first)s as first
```

```sql {preview as=rows}
select %(later)s as later
```

```toml {manual}
text = "Say it"
evidence = "what you see"
```
""",
    head='[inputs.first]\ntype = "secret"\n',
)


@pytest.fixture
def prepared_cluster(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql("create table troubled(i int)")
    yield cluster
    cluster.psql("drop table public.troubled")


def test_an_abort_takes_effect_between_two_rows(prepared_cluster: Cluster, tmp_path: Path) -> None:
    with agent(prepared_cluster.dsn(), tmp_path) as running, session(prepared_cluster) as other:
        operator = Operator.of(running)
        operator.begin(CHANGE_EACH)
        operator.answer(operator.question("start"), "yes")
        operator.answer(operator.question("type"), "400")
        wait_until(lambda: other.execute("select from public.troubled").rowcount, 60, what="the first row")
        operator.control("abort")
        view = operator.walk({"undo": "none", "failed": "abort"})
        assert view.state in ("aborted", "failed")
        assert 0 < other.execute("select from public.troubled").rowcount < 400


def files_containing(directory: Path, secrets: list[str]) -> list[str]:
    """Files below that hold one of these."""
    found = subprocess.run(
        ["grep", "-rlaF", *(word for secret in secrets for word in ("-e", secret)), str(directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.split()


def test_no_secret_of_a_run_is_in_any_file_or_on_any_screen(cluster: Cluster, tmp_path: Path) -> None:
    first, later, password = "ab7Kq-first-secret", "zz9Pl+later/secret", "pg5Word'quoted"
    secrets = [first, later, password]
    with agent(cluster.dsn(), tmp_path, extra={"PGPASSWORD": password}) as running:
        operator = Operator.of(running)
        operator.begin(SECRETS, {"first": first})
        seen: list[str] = []

        def confirm(asked: Question) -> str:
            seen.append(str(operator.view))
            return {"input": later, "manual": f"I saw {later}"}.get(asked.kind, asked.expects)

        view = operator.walk(confirm)
        shown = "\n".join([*seen, str(view), *(line.text for line in operator.lines)])
        shown += "\n".join(event.text for event in operator.events)
        assert view.state == "done", view
        assert [one for one in secrets if one in shown] == []
        running.end()
    assert files_containing(tmp_path, secrets) == []


class PasswordCluster:
    """A cluster whose connection string holds a password that is a word of the runbook; it is asked for nowhere."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def dsn(self) -> str:
        return self._cluster.dsn() + " password=count"

    def psql(self, sql: str) -> str:
        return self._cluster.psql(sql)


def test_a_password_that_is_a_word_of_the_runbook_does_not_change_the_runbook(cluster: Cluster, tmp_path: Path) -> None:
    cluster.psql("create table counted(what text)")
    try:
        run = RunOverAgents(PasswordCluster(cluster), tmp_path / "story")  # type: ignore[arg-type]
        assert not run.run_agent("after:step.ended:count-in-a-file")
        assert run.run_agent()
        run.assert_once()
    finally:
        cluster.psql("drop table public.counted")


@pytest.mark.root
def test_what_was_aborted_while_the_disk_hung_is_not_done_after_it_recovers(cluster: Cluster, tmp_path: Path) -> None:
    cluster.psql("create table changed(i int)")
    try:
        with loop_mounted(tmp_path / "image", tmp_path / "sessions") as place:
            place.chmod(0o700)
            with agent(cluster.dsn(), tmp_path) as running:
                operator = Operator.of(running)
                operator.begin(ONE_CHANGE)
                operator.answer(operator.question("start"), "yes")
                asked = operator.question("yes")
                with frozen(place):
                    operator.answer(asked, "yes")
                    operator.question("journal")
                    operator.control("abort")
                    # Answered on the connection the abort went by: it has been heard.
                    operator.answer(asked, "yes")
                    operator.refusal()
                assert operator.walk({"failed": "abort", "undo": "none"}).state in ("aborted", "failed")
        assert cluster.psql("select count(*) from public.changed").strip() == "0"
    finally:
        cluster.psql("drop table public.changed")


@pytest.mark.root
def test_a_command_whose_start_hung_does_not_run_at_the_same_time_as_the_next_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    with loop_mounted(tmp_path / "image", tmp_path / "sessions") as place:
        place.chmod(0o700)
        with agent(cluster.dsn(), tmp_path, program="tests.agent.runs.agent_with_short_start") as running:
            operator = Operator.of(running)
            directory = Path(operator.begin(CHANGE_ONCE, {"file": str(mark)}).directory)
            operator.answer(operator.question("start"), "yes")
            asked = operator.question("yes")
            with frozen(place):
                operator.answer(asked, "yes")
                operator.answer(operator.question("journal"), "in memory")
                operator.question("failed")
            wait_until(lambda: list((directory / "steps").iterdir()), 60, what="its directory, made after all")
            assert operator.walk({"failed": "retry", "*": "="}).state == "done"
            assert read_run(directory).damage is None
    assert mark.read_text() == "once\n"
