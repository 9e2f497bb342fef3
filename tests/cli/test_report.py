"""`dba-console report postmortem`: a real run on a real server, reported while the agent records and afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from tests.cli.console import Console, own_console
from tests.unit.reports.incidents import SHIPPED

WAIT_S = 180.0
DOCUMENT = """# Practice

```toml {runbook}
id = "practice"
[inputs.word]
type = "text"
help = "a word"
```

## Say it

```sh {run host confirm=ack title="say it"}
echo "said $RB_word" >&2
```
"""


@pytest.fixture(scope="module")
def walked(cluster: Cluster) -> Iterator[Console]:
    """A console with one run; its agent still records."""
    with own_console() as console, console.watching(cluster.dsn()):
        book = console.home / "practice.md"
        book.write_text(DOCUMENT)
        given = ("--input", "word=hello", "--yes", "--dsn", cluster.dsn())
        done = console.run("runbook", "run", str(book), *given, timeout=WAIT_S)
        assert done.code == 0, done
        yield console


def test_a_run_is_reported_from_a_live_session(walked: Console, tmp_path: Path) -> None:
    done = walked.run("report", "postmortem", "last", "--run", "last", "--out", str(tmp_path), timeout=WAIT_S)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [str(tmp_path / "postmortem.md"), str(tmp_path / "postmortem.html")]
    report = (tmp_path / "postmortem.md").read_text()
    assert report.startswith("# Postmortem: practice on ") and "was still being recorded" in report
    assert re.search(r"### practice: Practice\n\nRun \S+-practice-\w{4} by \S+, .*: .*no deviations", report), report
    assert "| Say it | ok |" in report and "With word = hello." in report
    # What was executed, and what it printed on stderr.
    assert r'<br>echo "said \$RB_word" &gt;&amp;2' in report
    assert "say-it/run: said hello" in report
    # The decision, with the screen of that moment.
    assert "- Asked: " in report and "Connections" in report.split("## Decisions")[1]


def test_options_that_both_choose_the_span_are_refused(walked: Console) -> None:
    done = walked.run("report", "postmortem", str(SHIPPED), "--finding", "x", "--from", "+1s")
    assert done.code == 2 and "both choose the span" in done.err
    done = walked.run("report", "postmortem", str(SHIPPED), "--with", str(SHIPPED))
    assert done.code == 2 and "already named" in done.err


@pytest.mark.parametrize("arguments", [
    ("report", "summary", "--since", "99999999d"), ("replay", str(SHIPPED), "--show", "--at=-99999999d"),
    ("replay", str(SHIPPED), "--show", "--at", "+" + 400 * "9" + "d"),
])  # fmt: skip
def test_a_duration_of_centuries_is_refused_in_one_sentence(walked: Console, arguments: tuple[str, ...]) -> None:
    done = walked.run(*arguments)
    assert done.code == 2 and done.err.startswith("error: duration too long: ") and "36500d" in done.err


def test_a_report_of_two_sessions_names_the_clock_offset(walked: Console, tmp_path: Path) -> None:
    arguments = ("--finding", "reclaim-stall", "--with", "last", "--out", str(tmp_path))
    done = walked.run("report", "postmortem", str(SHIPPED), *arguments, timeout=WAIT_S)
    assert done.code == 0, done.err
    assert "clock offset not known" in (tmp_path / "postmortem.md").read_text()


def test_a_session_is_replayed_beside_another(walked: Console) -> None:
    twice = walked.run("replay", "last", "--with", "last")
    assert twice.code == 2 and "already named" in twice.err
    done = walked.run("replay", str(SHIPPED), "--with", "last", "--show", "connections", "--at", "+40s")
    assert done.code == 0 and "clock offset of" in done.err
    assert "237 of 247" not in done.err and "Connections" in done.out
