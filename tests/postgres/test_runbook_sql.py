"""The SQL of every runbook that is shipped, on every version of the server it says it is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dba_console.demo.cluster import Cluster
from dba_console.plans.plan import Plan
from dba_console.runbook.library import listed
from dba_console.runbook.values import statement

SAMPLES: dict[str, Any] = {
    "text": "base/1/1259", "int": 5, "number": 5.0, "duration": 60.0, "size": 1 << 20, "bool": True, "choice": "a",
    "identifier": "postgres", "relation": "pg_catalog.pg_class", "database": "postgres", "role": "postgres",
    "path": "/tmp", "secret": "x",
}  # fmt: skip
"""A value of each type of input; the text is a relation's path, the one form a statement takes apart."""
BY_NAME: dict[str, Any] = {"limit": "1GB"}
PLANS = [row.plan for row in listed() if row.plan is not None]


def looks(plan: Plan) -> Iterator[tuple[str, str]]:
    """Everything of it that only reads, with the place it stands at."""
    for _, block in plan.blocks():
        if block.language == "sql" and block.kind in ("check", "measure", "preview"):
            yield block.id, block.body
        tests = [block.settings.get("until"), block.settings.get("while"), block.when, block.done]
        for test in tests:
            language, text = (test["language"], test["text"]) if isinstance(test, dict) else ("", "")
            if test is not None and not isinstance(test, dict):
                language, text = test.language, test.text
            if language == "sql":
                yield f"{block.id} ({text[:30]})", text


def values_of(plan: Plan) -> dict[str, Any]:
    values = {one.name: BY_NAME.get(one.name, SAMPLES[one.type]) for one in plan.inputs}
    for _, block in plan.blocks():
        if block.kind == "input" and block.name:
            values[block.name] = BY_NAME.get(block.name, SAMPLES[block.settings["type"]])
    return values


@pytest.mark.parametrize("plan", PLANS, ids=[plan.id for plan in PLANS])
def test_what_a_runbook_reads_every_version_can_answer(server: Cluster, plan: Plan) -> None:
    low, high = plan.versions
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        major = connection.info.server_version // 10000
        if not (low or 0) <= major <= (high or major):
            pytest.skip(f"{plan.id} is not for version {major}")
        connection.execute("set default_transaction_read_only = on")
        for place, text in looks(plan):
            query, params = statement(text, values_of(plan))
            try:
                connection.execute(query.encode(), params)
            except psycopg.Error as error:
                pytest.fail(f"{plan.source}: {place}: {error}")
