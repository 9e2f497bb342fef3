"""Runs of small runbooks in a real agent on a real server."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.cluster import Cluster
from dba_console.session.runread import read_run
from tests.agent.running import agent
from tests.agent.runs.operator import Operator, answers

SMALL = """# A small one

```toml {runbook}
id = "small"
needs = ["server"]
```

Why and when.

## Look

```sql {check}
select true as fine
```

```expr {check}
connections.used > 0
```

## Make a table

```sql {change confirm=type:target}
create table made_by_run(i int)
```

```sql {undo confirm=yes}
drop table made_by_run
```

## Run a command

```sh {run confirm=yes as=out}
echo hello; psql -XAtc "select 'from ' || current_database()"; echo err >&2
```

```sql {undo confirm=yes}
select 1
```

## Wait for it

```toml {wait}
until = "sql: select to_regclass('made_by_run') is not null"
every = "1s"
timeout = "60s"
```
"""


def test_a_run_is_walked_from_its_checks_to_its_end(cluster: Cluster, tmp_path: Path) -> None:
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        first = operator.begin(SMALL)
        view = operator.walk(answers({"start": "yes", "*": "="}))
        assert view.state == "done", view
        papers = read_run(Path(first.directory))
        operator.close()
    cluster.psql("drop table made_by_run")
    assert papers.damage is None and papers.ended is not None
    assert [line.text for line in operator.lines if line.stream == "o"] == ["hello", "from postgres"]
