"""What is shown, confirmed and written down of a change is what the server gets."""

from __future__ import annotations

from pathlib import Path

from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.runbooks.run_report import report_lines
from dba_console.runbooks.run_view import Question, RunView
from tests.agent.agents import agent
from tests.agent.runs.scripted_console import Operator
from tests.agent.runs.small_runbooks import runbook_text
from tests.clusters import FreshCluster

HEAD = """
[inputs.role]
type = "role"
[inputs.limit]
type = "int"
[inputs.word]
type = "secret"
"""
BODY = """## Limit it

```sql {change confirm=yes}
alter role %(role)I
    connection limit %(limit)L
```

## Give it a password

```sql {change confirm=yes}
alter role %(role)I password %(word)L
```

## Keep what was seen

```sql {preview as=seen}
select * from (values (1, 'it''s'), (2, E'a\\\\b')) as v(id, note)
```

```sql {change confirm=type:count each}
insert into public.kept values (%(id)s, %(note)s)
```
"""
ROLE, WORD = 'shop "jobs"', "word-of-the-test"
LIMIT = 'alter role "shop ""jobs"""\n    connection limit 20'
GIVEN = {"role": ROLE, "limit": "20", "word": WORD}


def exact_text_of(view: RunView, question: Question) -> str:
    return next(block.exact for block in view.blocks if block.id == question.block)


def sent_statements(stored: StoredRun) -> list[str]:
    return [record.fields["statement"] for record in stored.records if record.kind == "block.intent"]


def test_the_confirmed_and_recorded_statement_is_the_one_in_the_server_log(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = fresh_cluster({"log_statement": "all"})
    cluster.psql('create role "shop ""jobs"""')
    cluster.psql("create table public.kept(id int, note text)")
    shown: list[str] = []
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        operator.begin(runbook_text("sent", BODY, head=HEAD), GIVEN)
        operator.answer(operator.question("start"), "yes")
        for kind in ("yes", "yes", "type"):
            asked = operator.question(kind)
            assert operator.view is not None
            shown.append(exact_text_of(operator.view, asked))
            operator.answer(asked, asked.expects)
        view = operator.walk({})
        assert view.state == "done", view.ending
        stored = read_run(Path(view.directory))
        kept = [path.read_bytes() for path in Path(view.directory).rglob("*") if path.is_file()]
    log, reported = cluster.log_text(), "\n".join(report_lines(stored.plan, stored.records, when=str))  # type: ignore[arg-type]
    limit, word, first, second = sent_statements(stored)
    assert limit == shown[0] == LIMIT and f"statement: {LIMIT.replace(chr(10), chr(10) + chr(9))}" in log
    assert word == shown[1] == 'alter role "shop ""jobs""" password \'********\''
    assert word.replace("********", WORD) in log and not any(WORD.encode() in data for data in kept)
    assert first == "insert into public.kept values (1, 'it''s')"
    assert shown[2].startswith(f"-- row 1 of 2\n{first}\n-- row 2 of 2\n{second}")
    assert "insert into public.kept values ($1, $2)" in log and "$1 = '1', $2 = 'it''s'" in log
    assert cluster.psql("select note from public.kept order by id").splitlines() == ["it's", "a\\b"]
    for told_one in (*LIMIT.splitlines(), word, first, second, "row 2 of 2 (id 2, note a\\b): ok", "ok, ALTER ROLE"):
        assert told_one in reported, told_one


def test_a_rehearsal_shows_the_statement_with_its_values(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    cluster.psql('create role "shop ""jobs"""')
    cluster.psql("create table public.kept(id int, note text)")
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        operator.begin(runbook_text("sent", BODY, head=HEAD), GIVEN, rehearse=True)
        view = operator.walk({})
        reported = [record.text for record in read_run(Path(view.directory)).records]
    assert f"limit-it/change: would run: {LIMIT}" in reported
    assert any("insert into public.kept values (1, 'it''s')" in one for one in reported)
    assert not any(WORD in one for one in reported)
