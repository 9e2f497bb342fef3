"""An agent started without the right password does not block a later console that has it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import ConsoleClient
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console
from tests.clusters import FreshCluster

LIMIT_S = 120.0
PASSWORD = "let-me-in"
RUNBOOK = """\
# Look

```toml {runbook}
id = "look"
needs = ["server"]
```

Why: to be let in.

## Look

```sql {check}
select true
```
"""
Given = tuple[dict[str, str], Mapping[str, str]]
"""Further keywords of the connection string, and variables."""


@pytest.fixture
def password_cluster(reused_cluster: FreshCluster) -> Cluster:
    """A server that asks for a password on its port."""
    cluster: Cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    cluster.psql(f"create role keeper superuser login password '{PASSWORD}'")
    return cluster


@pytest.fixture
def console() -> Iterator[Console]:
    """A console whose agents are ended with it."""
    with own_console() as made:
        yield made
        for agent in agents(made):
            os.kill(agent["pid"], signal.SIGTERM)
        wait_until(lambda: not agents(made), LIMIT_S, what="the agents' end")


def agents(console: Console) -> list[Any]:
    return console.run("attach", "--list", "--json", timeout=LIMIT_S).objects()


def dsn(cluster: Cluster, **more: str) -> str:
    return cluster.dsn(
        user="keeper", dbname="postgres", host="127.0.0.1", sslmode="disable", gssencmode="disable", **more
    )


def run_runbook(console: Console, cluster: Cluster, more: Mapping[str, str] = {}, **environ: str) -> CompletedCommand:
    """Run a read-only runbook."""
    book = console.home / "look.md"
    book.write_text(RUNBOOK)
    where = ("--dsn", dsn(cluster, **more))
    return console.run("runbook", "run", str(book), *where, "--confirm", "start=yes", timeout=LIMIT_S, **environ)


def refused_agent_pid(console: Console) -> int:
    """The pid of the agent, once the server has refused it."""

    def seen() -> int | None:
        with closing(AgentClient.connect(next(iter(console.runtime.glob("*.sock"))), role="show")) as client:
            return client.agent_description.pid if client.agent_description.refused else None

    return wait_until(seen, LIMIT_S, what="the refusal")


def write_passfile(console: Console) -> Given:
    path = console.home / "passfile"
    path.write_text(f"127.0.0.1:*:*:keeper:{PASSWORD}\n")
    path.chmod(0o600)
    return {}, {"PGPASSFILE": str(path)}


@pytest.mark.parametrize(
    "given",
    [lambda _: ({}, {"PGPASSWORD": PASSWORD}), write_passfile, lambda _: ({"password": PASSWORD}, {})],
    ids=["PGPASSWORD", "PGPASSFILE", "dsn"],
)
def test_a_password_given_later_is_used_at_once(
    password_cluster: Cluster, console: Console, given: Callable[[Console], Given]
) -> None:
    without = run_runbook(console, password_cluster)
    assert (without.code, "no password supplied" in without.err + without.out) == (3, True), without
    first = refused_agent_pid(console)
    more, environ = given(console)
    done = run_runbook(console, password_cluster, more, **environ)
    assert done.code == 0, done
    (second,) = agents(console)
    assert second["pid"] != first
    assert PASSWORD.encode() not in Path(f"/proc/{second['pid']}/cmdline").read_bytes()


def test_a_reading_command_connects_on_its_own_if_the_agent_was_never_admitted(
    password_cluster: Cluster, console: Console
) -> None:
    assert run_runbook(console, password_cluster).code == 3
    refused_agent_pid(console)
    shown = console.run("show", "connections", "--json", dsn(password_cluster), PGPASSWORD=PASSWORD)
    assert '"state":"connected"' in shown.out.replace(" ", ""), shown


def test_an_agent_that_was_admitted_is_not_replaced(password_cluster: Cluster, console: Console) -> None:
    assert run_runbook(console, password_cluster, PGPASSWORD=PASSWORD).code == 0
    (first,) = agents(console)
    assert run_runbook(console, password_cluster, PGPASSWORD="another").code == 0
    assert run_runbook(console, password_cluster, {"password": "another"}).code == 0
    assert [agent["pid"] for agent in agents(console)] == [first["pid"]]


def test_a_caller_with_the_same_credentials_replaces_nothing(password_cluster: Cluster, console: Console) -> None:
    assert run_runbook(console, password_cluster, PGPASSWORD="wrong").code == 3
    first = refused_agent_pid(console)
    again = run_runbook(console, password_cluster, PGPASSWORD="wrong")
    assert (again.code, "other credentials" in again.err) == (3, False), again
    assert [agent["pid"] for agent in agents(console)] == [first]


def test_an_agent_that_records_on_purpose_stays_and_a_hint_is_shown(
    password_cluster: Cluster, console: Console
) -> None:
    with console.watching(dsn(password_cluster)) as agent:
        pid = refused_agent_pid(console)
        done = run_runbook(console, password_cluster, PGPASSWORD=PASSWORD)
        assert done.code == 3
        assert f"hint: end it with `kill {pid}`" in done.err, done
        assert agent.process.poll() is None


def test_a_console_of_the_ending_agent_is_given_the_reason(password_cluster: Cluster, console: Console) -> None:
    assert run_runbook(console, password_cluster).code == 3
    refused_agent_pid(console)
    with closing(AgentClient.connect(next(iter(console.runtime.glob("*.sock"))))) as client:
        assert run_runbook(console, password_cluster, PGPASSWORD=PASSWORD).code == 0
        with pytest.raises(AgentConnectionLost, match="an agent with other credentials replaces it"):
            while client.receive(LIMIT_S) is not None:
                pass
    with closing(AgentClient.connect(next(iter(console.runtime.glob("*.sock"))))) as client:
        ConsoleClient(client).until(lambda frame: frame.target.state == "connected", what="the connection")


def test_a_run_is_resumed_where_the_password_must_be_given_again(password_cluster: Cluster, console: Console) -> None:
    book = console.home / "look.md"
    book.write_text(RUNBOOK)
    secret = dsn(password_cluster, password=PASSWORD)
    left = console.run("runbook", "run", str(book), "--dsn", secret, "--plain", stdin="", timeout=LIMIT_S)
    assert left.code == 130, left
    (agent,) = agents(console)
    os.kill(agent["pid"], signal.SIGKILL)
    without = console.run("runbook", "resume", "--confirm", "start=yes", timeout=LIMIT_S)
    assert (without.code, "--dsn" in without.out) == (3, True), without
    given = console.run("runbook", "resume", "--dsn", secret, "--confirm", "start=yes", timeout=LIMIT_S)
    assert given.code == 0, given
