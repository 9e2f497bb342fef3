"""Runbooks walked from the command line, without a screen: a real server, a real agent, real exit codes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.keeper.proc import start_ticks
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console

WAIT_S = 180.0

DOCUMENT = """# A small one

```toml {{runbook}}
id = "{id}"
needs = ["server"]
[inputs.word]
type = "text"
default = "hello"
help = "what is said"
[inputs.key]
type = "secret"
required = false
help = "what nobody may read"
```

Why and when.

## Look

```sql {{check}}
select true
```

## Say it

```sh {{run confirm=type:target as=said}}
echo "$RB_word"; echo "and ${{RB_key:-nothing}}."; echo "on the side" >&2
```

## Read it

```toml {{confirm ack}}
text = "Read what was said"
```

## Measure

```sql {{check}}
select {holds}
```
"""


@dataclass(frozen=True)
class RunbookSetup:
    """A console whose agent watches a server, and two runbooks: one that ends well, one that does not."""

    console: Console
    dsn: str
    target: str

    def write_runbook(self, holds: str = "true") -> str:
        name = "small" if holds == "true" else "sour"
        path = self.console.home / f"{name}.md"
        path.write_text(DOCUMENT.format(id=name, holds=holds))
        return str(path)

    def runbook(self, verb: str, *arguments: str, stdin: str | None = None, **environ: str) -> CompletedCommand:
        return self.console.run("runbook", verb, *arguments, "--dsn", self.dsn, stdin=stdin, timeout=WAIT_S, **environ)

    def show_run(self, run: str = "last") -> CompletedCommand:
        return self.console.run("runbook", "runs", run, timeout=WAIT_S)


@pytest.fixture(scope="module")
def runbooks(cluster: Cluster) -> Iterator[RunbookSetup]:
    with own_console() as console, console.watching(cluster.dsn()) as agent:
        yield RunbookSetup(console, cluster.dsn(), agent.target)


def test_a_run_with_all_inputs_given_succeeds_and_is_reported(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook(
        "run", runbooks.write_runbook(), "--confirm", f"say-it={runbooks.target}", "--yes", "--input", "word=salve"
    )
    assert done.code == 0, done
    for message in ("A small one", f"on {runbooks.target}", "SMALL: salve", "SMALL ! on the side", "done"):
        assert message in done.out
    story = runbooks.show_run()
    assert story.code == 0
    assert "done" in story.out and "salve" not in story.err
    log = next(runbooks.console.sessions.glob("*/session.log"))
    wait_until(lambda: " SMALL: salve\n" in log.read_text(), WAIT_S, what="the line in session.log")


def test_an_unconfirmed_change_is_not_done_and_the_exit_code_says_so(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("run", runbooks.write_runbook(), "--yes")
    assert done.code == 8, done
    assert f"--confirm say-it={runbooks.target}" in done.out
    assert "and nothing." not in done.out
    assert "aborted" in runbooks.show_run().out


def test_without_a_confirmation_nothing_is_started(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("run", runbooks.write_runbook())
    assert done.code == 8, done
    assert "--confirm start=yes" in done.out


def test_a_confirmation_for_another_server_is_not_accepted(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("run", runbooks.write_runbook(), "--confirm", "say-it=another", "--yes")
    assert done.code == 8, done
    assert "does not fit" in done.out and "and nothing." not in done.out


def test_a_check_that_fails_fails_the_run(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("run", runbooks.write_runbook("false"), "--confirm", f"say-it={runbooks.target}", "--yes")
    assert done.code == 7, done
    assert "failed" in done.out


def test_with_plain_lines_of_a_pipe_are_answers(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("run", runbooks.write_runbook(), "--plain", stdin=f"yes\n{runbooks.target}\ny\n")
    assert done.code == 0, done
    assert f"type `{runbooks.target}` >" in done.out


def test_json_prints_an_object_for_every_event(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook(
        "run", runbooks.write_runbook(), "--json", "--confirm", f"say-it={runbooks.target}", "--yes"
    )
    assert done.code == 0, done
    events = done.objects()
    assert events[0]["event"] == "run" and events[-1]["event"] == "ended"
    assert {"question", "answer", "line", "step"} <= {one["event"] for one in events}
    assert all(one["at"].endswith("Z") for one in events)


def test_a_rehearsal_changes_nothing_and_asks_nothing(runbooks: RunbookSetup) -> None:
    done = runbooks.runbook("rehearse", runbooks.write_runbook(), "--yes")
    assert done.code == 0, done
    assert "SMALL: hello" not in done.out
    assert "does not guarantee" in done.out


def test_a_detached_run_waits_and_is_reattached(runbooks: RunbookSetup) -> None:
    left = runbooks.runbook("run", runbooks.write_runbook(), "--plain", stdin="yes\n")
    assert left.code == 130, left
    assert "continues" in left.out and "runbook resume" in left.out
    refused = runbooks.runbook("run", runbooks.write_runbook(), "--yes")
    assert refused.code != 0 and "is active" in refused.out + refused.err
    back = runbooks.runbook("resume", "last", "--plain", stdin=f"{runbooks.target}\ny\n")
    assert back.code == 0, back


def test_a_run_waiting_at_a_failure_is_ended_by_a_headless_client_that_reattaches(
    runbooks: RunbookSetup,
) -> None:
    left = runbooks.runbook("run", runbooks.write_runbook("false"), "--plain", stdin=f"yes\n{runbooks.target}\ny\n")
    assert left.code == 130, left
    back = runbooks.runbook("resume", "last", "--plain", "--confirm", "measure/check=abort", stdin="")
    assert back.code == 7, back
    last = back.out.splitlines()[-1]
    assert last == "run failed: measure/check: does not hold (no operator could be asked what to do)"


def test_a_secret_is_neither_an_argument_nor_found_anywhere_later(runbooks: RunbookSetup) -> None:
    given = runbooks.runbook("run", runbooks.write_runbook(), "--yes", "--input", "key=tr0ub4dor")
    assert given.code == 2 and "is secret" in given.err and "tr0ub4dor" not in given.err + given.out
    done = runbooks.runbook(
        "run",
        runbooks.write_runbook(),
        "--confirm",
        f"say-it={runbooks.target}",
        "--yes",
        DBA_CONSOLE_INPUT_KEY="tr0ub4dor",
    )
    assert done.code == 0, done
    assert "and ********." in done.out
    found = [path for path in runbooks.console.home.rglob("*") if path.is_file() and b"tr0ub4dor" in content(path)]
    assert found == []


def content(path: Path) -> bytes:
    """Nothing, where the agent that works on has moved it away."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("nonesuch",), 2, "nonesuch"),
        (("BOOK", "--confirm", "sayit=x"), 2, "did you mean say-it?"),
        (("BOOK", "--input", "wrod=x"), 2, "word"),
    ],
)
def test_an_invalid_request_is_reported_before_anything_starts(
    runbooks: RunbookSetup, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    book = runbooks.write_runbook()
    done = runbooks.runbook("run", *(book if one == "BOOK" else one for one in arguments))
    assert done.code == code, done
    assert expected in done.err and "Traceback" not in done.err


def test_the_runs_of_a_session_are_shown_and_verified(runbooks: RunbookSetup) -> None:
    assert runbooks.runbook("rehearse", runbooks.write_runbook(), "--yes").code == 0
    shown = runbooks.console.run("session", "show", "last", timeout=WAIT_S)
    assert "\nruns\n" in shown.out and "-small-" in shown.out
    checked = runbooks.console.run("session", "verify", "last", timeout=WAIT_S)
    assert checked.code == 0, checked
    assert "verified" in checked.out
    rows = runbooks.console.run("runbook", "runs", "--json", timeout=WAIT_S).objects()
    assert {row["about"]["runbook"] for row in rows} <= {"small", "sour"}
    again = runbooks.runbook("resume", "last")
    assert again.code == 6 and "has ended" in again.err


def test_the_story_is_shown_as_an_object_and_also_without_its_plan(runbooks: RunbookSetup) -> None:
    assert runbooks.runbook("rehearse", runbooks.write_runbook(), "--yes").code == 0
    whole = runbooks.console.run("runbook", "runs", "last", "--json", timeout=WAIT_S).objects()
    assert len(whole) == 1
    assert whole[0]["state"] == "done" and whole[0]["summary"]["runbook"] == "small"
    assert whole[0]["records"][0]["kind"] == "journal.began"
    (Path(whole[0]["path"]) / "plan.json").write_text("{}")
    bare = runbooks.show_run()
    assert bare.code == 0
    assert "plan.json is not the plan" in bare.out and "step look" in bare.out
    assert runbooks.console.run("session", "verify", "last", timeout=WAIT_S).code == 6
    shutil.rmtree(whole[0]["path"])


def test_a_run_whose_agent_was_killed_is_resumed(console: Console, cluster: Cluster) -> None:
    runbooks = RunbookSetup(console, cluster.dsn(), "")
    with console.watching(cluster.dsn()) as agent:
        assert runbooks.runbook("run", runbooks.write_runbook(), "--plain", stdin="yes\n").code == 130
        agent.process.kill()
        agent.process.wait(WAIT_S)
    rows = console.run("runbook", "runs", "--json", timeout=WAIT_S).objects()
    assert [row["state"] for row in rows] == ["interrupted"]
    with console.watching(cluster.dsn()):
        back = runbooks.runbook("resume", "last", "--confirm", f"say-it={agent.target}", "--yes")
        assert back.code == 0, back
        assert runbooks.runbook("resume", "last").code == 6
    assert "resumed by" in runbooks.show_run().out
    assert console.run("session", "verify", "last", timeout=WAIT_S).code == 0


def test_a_run_has_its_server_recorded_and_is_resumed_without_naming_it(console: Console, cluster: Cluster) -> None:
    runbooks = RunbookSetup(console, cluster.dsn(), "")
    with console.watching(cluster.dsn(password="not-looked-at")) as agent:
        assert runbooks.runbook("run", runbooks.write_runbook(), "--plain", stdin="yes\n").code == 130
        agent.process.kill()
        agent.process.wait(WAIT_S)
    confirmed = ("--confirm", f"say-it={agent.target}", "--yes")
    elsewhere = console.run("runbook", "resume", "last", *confirmed, timeout=WAIT_S, PGSERVICE="another")
    assert (elsewhere.code, "name its connection with --dsn" in elsewhere.err) == (2, True), elsewhere
    try:
        back = console.run("runbook", "resume", "last", *confirmed, timeout=WAIT_S)
        assert back.code == 0, back
    finally:
        end_agents(console)
    for path in console.sessions.rglob("journal.jsonl"):
        assert "not-looked-at" not in path.read_text()


def test_if_no_agent_watches_the_run_starts_one(console: Console, cluster: Cluster) -> None:
    runbooks = RunbookSetup(console, cluster.dsn(), "")
    try:
        done = runbooks.runbook("rehearse", runbooks.write_runbook(), "--yes")
        assert done.code == 0, done
    finally:
        end_agents(console)


def end_agents(console: Console) -> None:
    """End what was started beside the commands."""
    for agent in console.run("attach", "--list", "--json", timeout=WAIT_S).objects():
        os.kill(agent["pid"], signal.SIGTERM)
        # Gone, or a zombie that nobody has reaped yet.
        wait_until(lambda pid=agent["pid"]: start_ticks(pid) is None, WAIT_S)  # type: ignore[misc]
