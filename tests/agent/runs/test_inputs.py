"""Values that are asked for on the way: looked up on the server, and given again where they were mistyped."""

from __future__ import annotations

from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import RunningAgent
from tests.agent.runs.scripted_console import Operator
from tests.agent.runs.small_runbooks import runbook_text

HEAD = '[inputs.of]\ntype = "relation"\n'
BODY = """## Limit it

```toml {input as=role}
type = "role"
help = "the role"
```

```sql {check title="it may log in"}
select rolcanlogin and length(%(of)s) > 0 as holds from pg_roles where rolname = %(role)s
```

```sql {change confirm=yes}
alter role %(role)I connection limit 20
```

```sql {undo}
alter role %(role)I connection limit -1
```
"""


def test_an_unknown_server_name_is_reported_and_asked_for_again(running: RunningAgent, cluster: Cluster) -> None:
    cluster.psql("create role shop_jobs login")
    operator = Operator.of(running)
    try:
        operator.begin(runbook_text("inputs", BODY, head=HEAD), {"of": "public.Nowhere"})
        start = operator.question("start")
        assert start.text.startswith("Relation 'public.Nowhere' does not exist on this server.\n")
        operator.answer(start, "yes")
        asked = operator.question("input")
        operator.answer(asked, "shop_jo")
        assert "role 'shop_jo' does not exist on this server" in operator.refusal().text
        operator.answer(operator.question("input"), "shop_jo")
        failed = operator.question("failed")
        assert [one.key for one in failed.options] == ["retry", "input", "skip", "abort"]
        operator.answer(failed, "input")
        operator.answer(operator.question("input"), "shop_jobs")
        assert operator.walk({"yes": "yes"}).state == "done"
        assert cluster.psql("select rolconnlimit from pg_roles where rolname = 'shop_jobs'").strip() == "20"
    finally:
        cluster.psql("drop role shop_jobs")


def test_a_known_server_name_is_accepted_at_once(running: RunningAgent, cluster: Cluster) -> None:
    operator = Operator.of(running)
    operator.begin(runbook_text("inputs", BODY, head=HEAD), {"of": "pg_catalog.pg_class"})
    start = operator.question("start")
    assert start.text.startswith("Start ")
    operator.answer(start, "yes")
    operator.answer(operator.question("input"), "postgres")
    assert operator.question("yes").block == "limit-it/change"
