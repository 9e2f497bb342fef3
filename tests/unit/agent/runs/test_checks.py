"""What a run knows by looking: also that a statement is still the one that was confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.agent.runs.checks import ReadOnlyChecks
from dba_console.core.errors import Refused
from dba_console.recording.plan import Input, JournalRecord
from dba_console.runbooks.preview_rows import statement_shown
from dba_console.runbooks.run_state import RunState
from tests.unit.runbooks.scripted_agent import block, plan_of, step

CHANGE = block(
    "a/change", "change", body="alter role %(role)I connection limit %(limit)L password %(word)L",
    uses=("role", "limit", "word"),
)  # fmt: skip
INPUTS = (
    Input(name="role", type="role"),
    Input(name="limit", type="int"),
    Input(name="word", type="secret", secret=True),
)
PLAN = plan_of(step("a", CHANGE), inputs=INPUTS)


def looking(inputs: dict[str, Any]) -> tuple[ReadOnlyChecks, RunState]:
    state = RunState(PLAN, values={name: value for name, value in inputs.items() if name != "word"})
    return ReadOnlyChecks(state, inputs, frozenset({"word"}), None, None), state  # type: ignore[arg-type]


def test_a_statement_is_sent_only_as_it_was_confirmed() -> None:
    inputs = {"role": "shop_jobs", "limit": 20, "word": "hush"}
    looks, state = looking(inputs)
    statement = statement_shown(state, CHANGE, {})
    assert statement == "alter role \"shop_jobs\" connection limit 20 password '********'"
    intent = JournalRecord(kind="block.intent", text="", fields={"statement": statement})
    looks.require_shown(CHANGE, intent, None)
    inputs["limit"] = 2000
    with pytest.raises(Refused, match="not the one that was shown"):
        looks.require_shown(CHANGE, intent, None)
    with pytest.raises(Refused, match="not the one that was shown"):
        looks.require_shown(CHANGE, JournalRecord(kind="block.intent", text=""), None)
