"""Runbooks walked from the command line, without a screen: a real server, a real agent, real exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from dba_console.keeper.proc import start_ticks
from tests.background import wait_until
from tests.cli.console import Console, Done, own_console

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
class Ground:
    """A console whose agent watches a server, and two runbooks: one that ends well, one that does not."""

    console: Console
    dsn: str
    target: str

    def book(self, holds: str = "true") -> str:
        name = "small" if holds == "true" else "sour"
        path = self.console.home / f"{name}.md"
        path.write_text(DOCUMENT.format(id=name, holds=holds))
        return str(path)

    def runbook(self, verb: str, *arguments: str, stdin: str | None = None, **environ: str) -> Done:
        return self.console.run("runbook", verb, *arguments, "--dsn", self.dsn, stdin=stdin, timeout=WAIT_S, **environ)

    def story(self, run: str = "last") -> Done:
        return self.console.run("runbook", "runs", run, timeout=WAIT_S)


@pytest.fixture(scope="module")
def ground(cluster: Cluster) -> Iterator[Ground]:
    with own_console() as console, console.watching(cluster.dsn()) as agent:
        yield Ground(console, cluster.dsn(), agent.target)


def test_a_run_with_all_inputs_given_succeeds_and_is_reported(ground: Ground) -> None:
    done = ground.runbook(
        "run", ground.book(), "--confirm", f"say-it={ground.target}", "--yes", "--input", "word=salve"
    )
    assert done.code == 0, done
    for said in ("A small one", f"on {ground.target}", "SMALL: salve", "SMALL ! on the side", "done"):
        assert said in done.out
    story = ground.story()
    assert story.code == 0
    assert "done" in story.out and "salve" not in story.err


def test_output_is_in_the_log_of_the_session(ground: Ground) -> None:
    done = ground.runbook("run", ground.book(), "--confirm", f"say-it={ground.target}", "--yes", "--input", "word=ave")
    assert done.code == 0, done
    log = next(ground.console.sessions.glob("*/session.log"))
    wait_until(lambda: " SMALL: ave\n" in log.read_text(), WAIT_S, what="the line in session.log")


def test_an_unconfirmed_change_is_not_done_and_the_exit_code_says_so(ground: Ground) -> None:
    done = ground.runbook("run", ground.book(), "--yes")
    assert done.code == 8, done
    assert f"--confirm say-it={ground.target}" in done.out
    assert "and nothing." not in done.out
    assert "aborted" in ground.story().out


def test_without_a_confirmation_nothing_is_started(ground: Ground) -> None:
    done = ground.runbook("run", ground.book())
    assert done.code == 8, done
    assert "--confirm start=yes" in done.out


def test_a_confirmation_for_another_server_is_not_accepted(ground: Ground) -> None:
    done = ground.runbook("run", ground.book(), "--confirm", "say-it=another", "--yes")
    assert done.code == 8, done
    assert "does not fit" in done.out and "and nothing." not in done.out


def test_a_check_that_fails_fails_the_run(ground: Ground) -> None:
    done = ground.runbook("run", ground.book("false"), "--confirm", f"say-it={ground.target}", "--yes")
    assert done.code == 7, done
    assert "failed" in done.out


def test_with_plain_lines_of_a_pipe_are_answers(ground: Ground) -> None:
    done = ground.runbook("run", ground.book(), "--plain", stdin=f"yes\n{ground.target}\ny\n")
    assert done.code == 0, done
    assert f"type `{ground.target}` >" in done.out


def test_json_prints_an_object_for_every_event(ground: Ground) -> None:
    done = ground.runbook("run", ground.book(), "--json", "--confirm", f"say-it={ground.target}", "--yes")
    assert done.code == 0, done
    events = done.objects()
    assert events[0]["event"] == "run" and events[-1]["event"] == "ended"
    assert {"question", "answer", "line", "step"} <= {one["event"] for one in events}
    assert all(one["at"].endswith("Z") for one in events)


def test_a_rehearsal_changes_nothing_and_asks_nothing(ground: Ground) -> None:
    done = ground.runbook("rehearse", ground.book(), "--yes")
    assert done.code == 0, done
    assert "SMALL: hello" not in done.out
    assert "does not guarantee" in done.out


def test_a_detached_run_waits_and_is_reattached(ground: Ground) -> None:
    left = ground.runbook("run", ground.book(), "--plain", stdin="yes\n")
    assert left.code == 130, left
    assert "continues" in left.out and "runbook resume" in left.out
    refused = ground.runbook("run", ground.book(), "--yes")
    assert refused.code != 0 and "is active" in refused.out + refused.err
    back = ground.runbook("resume", "last", "--plain", stdin=f"{ground.target}\ny\n")
    assert back.code == 0, back


def test_a_run_waiting_at_a_failure_is_ended_by_a_headless_client_that_reattaches(
    ground: Ground,
) -> None:
    left = ground.runbook("run", ground.book("false"), "--plain", stdin=f"yes\n{ground.target}\ny\n")
    assert left.code == 130, left
    back = ground.runbook("resume", "last", "--plain", "--confirm", "measure/check=abort", stdin="")
    assert back.code == 7, back
    last = back.out.splitlines()[-1]
    assert last == "run failed: measure/check: does not hold (no operator could be asked what to do)"


def test_an_interrupt_leaves_the_run_where_it_is(ground: Ground) -> None:
    command = ground.console.command("runbook", "run", ground.book(), "--plain", "--dsn", ground.dsn)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=ground.console.environ(), encoding="utf-8",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        seen = ""
        while "type `yes` >" not in seen:
            line = process.stdout.readline()
            assert line, seen
            seen += line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "continues" in rest
    ended = ground.runbook("resume", "last", "--plain", stdin="/abort changed my mind\n")
    assert ended.code == 7, ended


def test_a_secret_is_neither_an_argument_nor_found_anywhere_later(ground: Ground) -> None:
    given = ground.runbook("run", ground.book(), "--yes", "--input", "key=tr0ub4dor")
    assert given.code == 2 and "is secret" in given.err and "tr0ub4dor" not in given.err + given.out
    done = ground.runbook(
        "run", ground.book(), "--confirm", f"say-it={ground.target}", "--yes", DBA_CONSOLE_INPUT_KEY="tr0ub4dor"
    )
    assert done.code == 0, done
    assert "and ********." in done.out
    found = [path for path in ground.console.home.rglob("*") if path.is_file() and b"tr0ub4dor" in content(path)]
    assert found == []


def content(path: Path) -> bytes:
    """Nothing, where the agent that works on has moved it away."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nonesuch",), 2, "nonesuch"),
        (("BOOK", "--confirm", "sayit=x"), 2, "did you mean say-it?"),
        (("BOOK", "--input", "wrod=x"), 2, "word"),
    ],
)
def test_an_invalid_request_is_reported_before_anything_starts(
    ground: Ground, arguments: tuple[str, ...], code: int, said: str
) -> None:
    book = ground.book()
    done = ground.runbook("run", *(book if one == "BOOK" else one for one in arguments))
    assert done.code == code, done
    assert said in done.err and "Traceback" not in done.err


def test_the_runs_of_a_session_are_shown_and_verified(ground: Ground) -> None:
    assert ground.runbook("rehearse", ground.book(), "--yes").code == 0
    shown = ground.console.run("session", "show", "last", timeout=WAIT_S)
    assert "\nruns\n" in shown.out and "-small-" in shown.out
    checked = ground.console.run("session", "verify", "last", timeout=WAIT_S)
    assert checked.code == 0, checked
    assert "verified" in checked.out
    rows = ground.console.run("runbook", "runs", "--json", timeout=WAIT_S).objects()
    assert {row["about"]["runbook"] for row in rows} <= {"small", "sour"}
    again = ground.runbook("resume", "last")
    assert again.code == 6 and "has ended" in again.err


def test_the_story_is_shown_as_an_object_and_also_without_its_plan(ground: Ground) -> None:
    assert ground.runbook("rehearse", ground.book(), "--yes").code == 0
    whole = ground.console.run("runbook", "runs", "last", "--json", timeout=WAIT_S).objects()
    assert len(whole) == 1
    assert whole[0]["state"] == "done" and whole[0]["summary"]["runbook"] == "small"
    assert whole[0]["records"][0]["kind"] == "journal.began"
    (Path(whole[0]["path"]) / "plan.json").write_text("{}")
    bare = ground.story()
    assert bare.code == 0
    assert "plan.json is not the plan" in bare.out and "step look" in bare.out
    assert ground.console.run("session", "verify", "last", timeout=WAIT_S).code == 6
    shutil.rmtree(whole[0]["path"])


def test_a_run_whose_agent_was_killed_is_resumed(console: Console, cluster: Cluster) -> None:
    ground = Ground(console, cluster.dsn(), "")
    with console.watching(cluster.dsn()) as agent:
        assert ground.runbook("run", ground.book(), "--plain", stdin="yes\n").code == 130
        agent.process.kill()
        agent.process.wait(WAIT_S)
    rows = console.run("runbook", "runs", "--json", timeout=WAIT_S).objects()
    assert [row["state"] for row in rows] == ["interrupted"]
    with console.watching(cluster.dsn()):
        back = ground.runbook("resume", "last", "--confirm", f"say-it={agent.target}", "--yes")
        assert back.code == 0, back
        assert ground.runbook("resume", "last").code == 6
    assert "resumed by" in ground.story().out
    assert console.run("session", "verify", "last", timeout=WAIT_S).code == 0


def test_a_run_has_its_server_recorded_and_is_resumed_without_naming_it(console: Console, cluster: Cluster) -> None:
    ground = Ground(console, cluster.dsn(), "")
    with console.watching(cluster.dsn(password="not-looked-at")) as agent:
        assert ground.runbook("run", ground.book(), "--plain", stdin="yes\n").code == 130
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
    ground = Ground(console, cluster.dsn(), "")
    try:
        done = ground.runbook("rehearse", ground.book(), "--yes")
        assert done.code == 0, done
    finally:
        end_agents(console)


def end_agents(console: Console) -> None:
    """End what was started beside the commands."""
    for agent in console.run("attach", "--list", "--json", timeout=WAIT_S).objects():
        os.kill(agent["pid"], signal.SIGTERM)
        # Gone, or a zombie that nobody has reaped yet.
        wait_until(lambda pid=agent["pid"]: start_ticks(pid) is None, WAIT_S)  # type: ignore[misc]
