"""Rows that are left out before the confirmation, in the agent: what was chosen is what is done, whoever answers and
whatever dies between the choice and the act.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.client import AgentConnectionLost
from dba_console.agent.protocol import RunControl
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.runbooks.run_report import report_lines
from dba_console.runbooks.run_view import RunTable, RunView
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.scripted_console import Operator, answers
from tests.agent.runs.small_runbooks import runbook_text
from tests.agent.runs.test_killed import SELF_KILLING_AGENT

PICK_ROWS = runbook_text(
    "picked",
    """## Pick

```sql {preview as=picked chosen=old}
select id, note, id < 4 as old from public.picked order by id
```

```sql {change each confirm=type:count undo=none}
delete from public.picked where id = %(id)s
```
""",
)
ANSWERS = answers({"start": "yes", "*": "="})


@pytest.fixture
def picked_table(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql(
        "create table picked(id int, note text); insert into picked select i, 'as it is' from generate_series(1, 5) i"
    )
    yield cluster
    cluster.psql("drop table public.picked")


def remaining_ids(cluster: Cluster) -> list[int]:
    return [int(one) for one in cluster.psql("select id from public.picked order by id").split()]


def asked_table(operator: Operator) -> RunTable:
    """The rows, once they are asked about."""
    operator.question("type")
    assert operator.view is not None and operator.view.table is not None
    return operator.view.table


def begin(running: RunningAgent) -> Operator:
    operator = Operator.of(running)
    operator.begin(PICK_ROWS)
    operator.answer(operator.question("start"), "yes")
    return operator


def choose(operator: Operator, *places: int) -> None:
    view = operator.view
    assert view is not None and view.table is not None
    table = view.table
    operator.client.send(RunControl(run=view.run, verb="choose", block=table.block, look=table.look, rows=places))


def chosen_table(operator: Operator, *places: int) -> RunTable:
    """The rows, once the agent asks with these chosen."""

    def there() -> bool:
        view = operator.view
        if view is None or view.table is None or view.question is None:
            return False
        return [place for place, one in enumerate(view.table.chosen) if one] == list(places)

    view: RunView = operator.until(there, f"a question about the rows {places}")
    assert view.table is not None
    return view.table


def stored_run_of(operator: Operator) -> StoredRun:
    assert operator.view is not None
    return read_run(Path(operator.view.directory))


def test_only_selected_rows_are_acted_on_and_the_story_names_the_operator(
    running: RunningAgent, picked_table: Cluster
) -> None:
    operator = begin(running)
    assert asked_table(operator).chosen == (True, True, True, False, False)
    assert operator.question("type").expects == "3"
    choose(operator, 0, 4)
    chosen_table(operator, 0, 4)
    assert operator.question("type").expects == "2"
    assert "2 of 5 rows" in operator.question("type").text
    assert operator.walk(ANSWERS).state == "done"
    assert remaining_ids(picked_table) == [2, 3, 4]
    stored = stored_run_of(operator)
    assert stored.plan is not None
    lines = "\n".join(report_lines(stored.plan, stored.records, when=str))
    assert "pick/preview: 5 rows, 3 chosen; not chosen: id 4, note as it is; id 5, note as it is" in lines
    assert "pick/preview: 2 of 5 rows chosen by" in lines and "not chosen: id 2, note as it is; id 3" in lines
    (record,) = (one for one in stored.records if one.kind == "rows.chosen")
    assert (record.fields["chosen"], record.fields["left_out"]) == ([0, 4], [1, 2, 3]) and record.who


def test_with_no_row_selected_nothing_is_done_and_the_run_continues(
    running: RunningAgent, picked_table: Cluster
) -> None:
    operator = begin(running)
    asked_table(operator)
    choose(operator)
    assert [option.key for option in operator.question("choose").options] == ["none"]
    assert operator.walk({"choose": "none"}).state == "done"
    assert remaining_ids(picked_table) == [1, 2, 3, 4, 5]
    assert "no row of pick/preview is chosen" in "".join(one.text for one in stored_run_of(operator).records)


def test_a_selection_sent_together_with_an_answer_does_not_touch_deselected_rows(
    running: RunningAgent, picked_table: Cluster
) -> None:
    operator = begin(running)
    asked_table(operator)
    before = operator.question("type")
    choose(operator, 0)
    operator.answer(before, "3")
    assert operator.refusal().text
    chosen_table(operator, 0)
    assert operator.question("type").expects == "1"
    assert remaining_ids(picked_table) == [1, 2, 3, 4, 5]


def test_a_watching_console_selects_nothing_until_it_has_taken_over(
    running: RunningAgent, picked_table: Cluster
) -> None:
    operator = begin(running)
    table = asked_table(operator)
    assert operator.view is not None
    other = Operator.of(running)
    other.watch(operator.view.run)
    choose(other, 4)
    assert "controls this run" in other.refusal().text
    other.control("take")
    other.until(lambda: other.yours, "the run taken over")
    assert other.view is not None and other.view.table == table
    choose(other, 4)
    chosen_table(other, 4)
    assert chosen_table(operator, 4).chosen == (False, False, False, False, True), "both see what is chosen"
    choose(operator, 0)
    assert "controls this run" in operator.refusal().text
    assert other.walk(ANSWERS).state == "done"
    assert remaining_ids(picked_table) == [1, 2, 3, 4]


@pytest.mark.parametrize("moment", ["after:rows.chosen", "after:block.answered"])
def test_a_selection_survives_an_agent_kill_and_new_rows_are_not_acted_on(
    picked_table: Cluster, tmp_path: Path, moment: str
) -> None:
    with agent(picked_table.dsn(), tmp_path, extra={DIES: moment}, program=SELF_KILLING_AGENT) as running:
        operator = begin(running)
        asked_table(operator)
        with pytest.raises(AgentConnectionLost):
            choose(operator, 0, 4)
            chosen_table(operator, 0, 4)
            operator.walk(ANSWERS)
    assert remaining_ids(picked_table) == [1, 2, 3, 4, 5]
    picked_table.psql("insert into public.picked values (0, 'new'), (6, 'new')")
    with agent(picked_table.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: operator.view is not None, "the interrupted run")
        operator.resume(view.run)
        assert asked_table(operator).chosen == (False, True, False, False, False, True, False)
        assert operator.question("type").expects == "2"
        assert operator.walk(ANSWERS).state == "done"
    assert remaining_ids(picked_table) == [0, 2, 3, 4, 6]
