"""`dba-console runbook list|show|lint|plan|new`: as commands, without any server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import Console
from tests.unit.runbooks.short_runbooks import fence, runbook_text

RUNBOOK = runbook_text(
    fence("expr {check}", "memory.free_bytes > least"),
    fence("sql {change confirm=type:target usual=5s}", "select pg_reload_conf() where %(token)s <> ''"),
    head='answers = ["lock-queue"]\n[inputs.least]\ntype = "size"\ndefault = "1GB"\n[inputs.token]\ntype = "secret"\n',
)
BAD_RUNBOOK = runbook_text(fence("sh {check}", "pg_isready || true"))


@pytest.fixture
def own_runbooks(console: Console) -> Path:
    """A configured directory with one runbook."""
    directory = console.home / "books"
    directory.mkdir()
    (directory / "book.md").write_text(RUNBOOK)
    console.write_config(f'[runbooks]\npath = ["{directory}"]\n')
    return directory


def test_the_list_shows_id_title_findings_and_source(console: Console, own_runbooks: Path) -> None:
    done = console.run("runbook", "list")
    assert done.code == 0
    row = next(line for line in done.out.splitlines() if line.startswith("book "))
    assert row.split("  ")[-1].strip() == str(own_runbooks) and "A title" in row and "lock-queue" in row
    listed = {one["id"]: one for one in console.run("runbook", "list", "--json").objects()}
    assert listed["book"]["answers"] == ["lock-queue"] and listed["book"]["problems"] == 0
    assert listed["lock-queue"]["from"] == "shipped"
    answering = console.run("runbook", "list", "--finding", "lock-queue:7", "--json").objects()
    assert {"book", "lock-queue"} <= {one["id"] for one in answering} < set(listed)


def test_a_custom_runbook_hides_the_shipped_one_and_that_is_reported(console: Console, own_runbooks: Path) -> None:
    (own_runbooks / "lock-queue.md").write_text(RUNBOOK.replace('id = "book"', 'id = "lock-queue"'))
    done = console.run("runbook", "list")
    assert f"{own_runbooks / 'lock-queue.md'} is used, not " in done.out
    shown = console.run("runbook", "show", "lock-queue")
    assert shown.code == 0 and "A title" in shown.out
    assert "is used, not " in shown.err


def test_a_missing_configured_directory_is_reported_and_the_others_work(console: Console) -> None:
    console.write_config('[runbooks]\npath = ["/nowhere/at/all"]\n')
    done = console.run("runbook", "list")
    assert done.code == 0 and "lock-queue" in done.out
    assert "cannot read the runbooks of /nowhere/at/all" in done.err


def test_show_prints_the_parsed_runbook_and_its_text(console: Console, own_runbooks: Path) -> None:
    done = console.run("runbook", "show", "book")
    assert done.code == 0
    assert "memory.free_bytes > least" in done.out and "confirm: type the target name" in done.out
    assert "2 blocks in 1 step, 1 change" in done.out
    assert console.run("runbook", "show", "book", "--text").out == RUNBOOK
    (plan,) = console.run("runbook", "show", "book", "--json").objects()
    assert [block["kind"] for block in plan["steps"][0]["blocks"]] == ["check", "change"]


def test_plan_shows_what_a_run_would_do_and_no_secret(console: Console, own_runbooks: Path) -> None:
    done = console.run("runbook", "plan", "book", "--input", "token=hush", "--input", "least=2GB")
    assert done.code == 0
    assert "least = 2.0 GB" in done.out and "nothing was run" in done.out and "hush" not in done.out
    (planned,) = console.run("runbook", "plan", "book", "--input", "token=hush", "--json").objects()
    assert planned["inputs"] == {"least": 1 << 30, "token": None}
    assert len(planned["hash"]) == 64 and "hush" not in str(planned)


SCRIPT = """\
set -euo pipefail
df -h /

du -sh -- "$RB_where" | tail -n 1
"""


def test_a_plan_is_verbatim_and_its_hash_covers_its_inputs(console: Console, own_runbooks: Path) -> None:
    statement = f"select '{'x' * 200}' = %(where)s as holds"
    body = f"## One\n\n```sh {{check}}\n{SCRIPT}```\n\n```sql {{check}}\n{statement}\n```\n"
    (own_runbooks / "words.md").write_text(
        '# W\n\n```toml {runbook}\nid = "words"\n[inputs.where]\ntype = "path"\n```\n\n' + body
    )
    one, other = (console.run("runbook", "plan", "words", "--input", f"where=/{end}") for end in "ab")
    assert one.code == 0, one
    reported = [line.strip() for line in one.out.splitlines()]
    begin = reported.index("set -euo pipefail")
    assert reported[begin : begin + 4] == SCRIPT.splitlines()
    assert statement.replace("%(where)s", "'/a'") in reported
    assert one.out.splitlines()[-1] != other.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "needs token"),
        (("--input", "token"), "has no value"),
        (("--input", "least=many", "--input", "token=x"), "'many' is not a size"),
        (("--input", "lest=1", "--input", "token=x"), "did you mean least?"),
    ],
)
def test_invalid_inputs_are_refused(
    console: Console, own_runbooks: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = console.run("runbook", "plan", "book", *arguments)
    assert done.code == 2 and expected in done.err and "Traceback" not in done.err


def test_lint_names_file_line_and_hint_and_exits_with_2(console: Console, own_runbooks: Path) -> None:
    bad = own_runbooks / "bad.md"
    bad.write_text(BAD_RUNBOOK.replace('id = "book"', 'id = "bad"'))
    done = console.run("runbook", "lint", str(bad))
    assert done.code == 2
    assert f"{bad}:10: the check hides its error: || true" in done.out and "hint: " in done.out
    (problem,) = console.run("runbook", "lint", "bad", "--json").objects()
    assert (problem["line"], problem["rule"]) == (10, "masked-error")
    assert console.run("runbook", "lint", "book").code == 0
    refused = console.run("runbook", "plan", "bad")
    assert refused.code == 2 and f"{bad}:10: " in refused.err


def test_every_shipped_runbook_passes(console: Console) -> None:
    done = console.run("runbook", "lint")
    assert done.code == 0, done.out


def test_a_new_runbook_can_be_planned_at_once_and_is_never_overwritten(console: Console) -> None:
    done = console.run("runbook", "new", "my-own", "--finding", "idle-in-transaction", "--directory", str(console.home))
    path = console.home / "my-own.md"
    assert done.code == 0 and done.out.strip() == str(path)
    assert console.run("runbook", "plan", str(path)).code == 0
    path.write_text("mine")
    again = console.run("runbook", "new", "my-own", "--directory", str(console.home))
    assert again.code == 2 and "already exists" in again.err
    assert path.read_text() == "mine"
    assert console.run("runbook", "new", "Not This").code == 2


def test_an_invalid_runbook_is_reported_in_one_sentence(console: Console) -> None:
    for name, message in (("lock-queu", "did you mean lock-queue?"), ("./x.md", "cannot read x.md")):
        done = console.run("runbook", "show", name)
        assert done.code == 2 and message in done.err and "Traceback" not in done.err
