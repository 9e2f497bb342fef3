"""`dba-console report postmortem`: a real run on a real server, reported while the agent records and afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from tests.background import wait_until
from tests.cli.console import BUSY_HOST, Console, own_console
from tests.clusters import FreshCluster
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

TWO_PARTS = """# Two parts

```toml {runbook}
id = "two-parts"
[inputs.place]
type = "path"
help = "a directory"
```

## Wait

```sh {run host confirm=ack title="wait for a file"}
echo "the first part"
touch "$RB_place/begun"
until [ -e "$RB_place/go" ]; do sleep 0.1; done
echo "the second part"
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
    assert re.search(r"^Steps: Say it \d.*s\.$", report, re.M) and "With word = hello." in report
    assert re.search(r"\| practice, say-it: say it: ok \(\d", report), report
    # What it printed is not an error. Script, output and screens are in the long form, and folded in the page.
    assert "said hello" not in report and len(report.splitlines()) < 170
    page = (tmp_path / "postmortem.html").read_text()
    arguments = ("last", "--run", "last", "--full", "--force", "--out", str(tmp_path))
    done = walked.run("report", "postmortem", *arguments, timeout=WAIT_S)
    assert done.code == 0, done.err
    report = (tmp_path / "postmortem.md").read_text()
    assert r'<br>echo "said \$RB_word" &gt;&amp;2' in report
    assert "say-it/run: said hello" in report and "say-it/run: said hello" in page
    # The decision, with the screen of that moment.
    assert "- Asked: " in report and "Connections" in report.split("## Decisions")[1]
    assert "The overview of " in page


def test_options_that_both_choose_the_span_are_refused(walked: Console) -> None:
    done = walked.run("report", "postmortem", str(SHIPPED), "--finding", "x", "--from", "+1s")
    assert done.code == 2 and "both choose the span" in done.err
    done = walked.run("report", "postmortem", str(SHIPPED), "--at", "+1s")
    assert done.code == 2 and "--at needs --finding" in done.err
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


def test_a_resumed_run_has_both_its_parts_and_does_not_move_the_times_of_a_later_crash(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = fresh_cluster()
    with own_console() as console:
        console.write_config(BUSY_HOST)
        book = console.home / "two-parts.md"
        book.write_text(TWO_PARTS)
        given = ("--input", f"place={tmp_path}", "--yes", "--dsn", cluster.dsn())
        with console.watching(cluster.dsn()) as agent, console.running("runbook", "run", str(book), *given):
            wait_until((tmp_path / "begun").exists, WAIT_S, what="the first part of the run")
            agent.process.kill()
            agent.process.wait(WAIT_S)
        with console.watching(cluster.dsn()) as agent:
            (tmp_path / "go").touch()
            resumed = console.run("runbook", "resume", "last", "--yes", timeout=WAIT_S)
            assert resumed.code == 0, resumed
            killed = time.time()
            cluster.kill()
            agent.raised("server-down")
            assert console.run("session", "note", "last", "starting it again").code == 0
            cluster.start()
            agent.until(lambda frame: frame.judged and not is_down(frame), "server-down cleared")
            agent.end()
        crash, run = (
            report_of(console, tmp_path / "crash"), report_of(console, tmp_path / "run", "--run", "last"),
        )  # fmt: skip
    times = {name: at for name, at, *_ in TIMES.findall(crash)}
    assert times["began"] >= f"{datetime.fromtimestamp(int(killed), UTC):%Y-%m-%d %H:%M:%S}", crash
    assert "| began |" in crash and "start of server-down, as its rule read it" in crash
    assert re.search(r"\| acknowledged \|.*first note by \S+ \(event \d+\): starting it again", crash), crash
    assert re.search(r"Other runs: two-parts by \S+ \(done\)", crash), crash
    # It began in the session of the agent that was killed, and ended in the next one.
    assert run.startswith("# Postmortem: two-parts on ")
    assert len(re.findall(r"^- Session ", run, re.M)) == 2, run
    lines = [line for line in run.splitlines() if "two-parts" in line]
    for what in ("started by", "was interrupted in step wait", "resumed by", "run done"):
        assert any(what in line for line in lines), (what, run)
    assert "; interrupted for " in run


TIMES = re.compile(r"^\| (began|detected|acknowledged|cleared|ended) \| ([^|]+?) \|", re.M)


def is_down(frame: Frame) -> bool:
    return any(row.rule == "server-down" for row in frame.findings)


def report_of(console: Console, out: Path, *arguments: str) -> str:
    done = console.run("report", "postmortem", "last", *arguments, "--out", str(out), timeout=WAIT_S)
    assert done.code == 0, done.err
    return (out / "postmortem.md").read_text()
