"""`dba-console runbook runs --compare`: real runs of a small runbook, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.cli.console import CompletedCommand, Console, own_console

WAIT_S = 180.0
DOCUMENT = """# Practice

```toml {runbook}
id = "practice"
[inputs.cluster]
type = "text"
help = "which cluster"
[inputs.to]
type = "text"
help = "which node"
```

## Move

```sh {run host confirm=ack title="stop the one"}
echo "$RB_cluster"
```

```sh {run host confirm=ack title="start the other"}
echo "$RB_to"
```

## Read

```toml {confirm ack}
text = "Read it"
```
"""


@pytest.fixture(scope="module")
def console_with_runs(cluster: Cluster) -> Iterator[Console]:
    """A console with two runs about one cluster, one about another between them, and a rehearsal."""
    with own_console() as console, console.watching(cluster.dsn()):
        book = console.home / "practice.md"
        book.write_text(DOCUMENT)

        def walk(verb: str, name: str, to: str) -> CompletedCommand:
            given = ("--input", f"cluster={name}", "--input", f"to={to}", "--yes", "--dsn", cluster.dsn())
            done = console.run("runbook", verb, str(book), *given, timeout=WAIT_S)
            assert done.code == 0, done
            return done

        walk("run", "shop", "db2")
        walk("run", "bank", "db9")
        # What earlier runs about this cluster took stands beside each step and act.
        last = walk("run", "shop", "db1").out
        assert re.search(r"step 1 Move: ok \(\S+, typical \S+: 1 run\)", last), last
        assert re.search(r"start the other  \S+, typical \S+", last), last
        walk("rehearse", "shop", "db2")
        yield console


def compare(console: Console, *arguments: str) -> CompletedCommand:
    return console.run("runbook", "runs", *arguments, "--compare", timeout=WAIT_S)


def test_runs_of_one_cluster_are_compared_without_rehearsals(console_with_runs: Console) -> None:
    [found] = compare(console_with_runs, "practice", "--json").objects()
    assert (found["runbook"], found["about"], found["mode"]) == ("practice", "cluster shop", "run")
    assert [one["inputs"]["to"] for one in found["runs"]] == ["db2", "db1"]
    rows = {(row["kind"], row["id"]): row for row in found["rows"]}
    move = rows["step", "move"]
    assert len(move["values"]) == 2 and all(value > 0 for value in move["values"])
    assert move["change"] == pytest.approx(move["values"][1] - move["values"][0])
    assert rows["block", "move/run"]["title"] == "stop the one" and ("block", "move/run-2") in rows
    [known] = [step for step in found["runs"][1]["steps"] if step["id"] == "move"]
    assert (known["usual_runs"], known["last_s"]) == (1, pytest.approx(move["values"][0]))


def test_the_table_shows_run_names_that_the_command_accepts(console_with_runs: Console) -> None:
    shown = compare(console_with_runs, "practice", "--count", "2")
    assert shown.code == 0, shown
    lines = shown.out.splitlines()
    assert lines[0] == "runs of practice, cluster shop"
    _, _, run, change = lines[2].split()
    assert change == "change"
    again = compare(console_with_runs, run)
    assert again.code == 0 and f" {run} " in again.out, "a run is compared with those before it"
    assert any(line.split()[:3] == ["to", "db2", "db1"] for line in lines)
    assert any(line.startswith("  start the other") for line in lines)


def test_a_rehearsal_is_compared_with_rehearsals(console_with_runs: Console) -> None:
    [found] = compare(console_with_runs, "last", "--json").objects()
    assert (found["mode"], len(found["runs"])) == ("rehearse", 1)


def test_a_runbook_without_a_run_is_named(console_with_runs: Console) -> None:
    none = compare(console_with_runs, "cache-drop")
    assert none.code == 6 and "cache-drop" in none.err
