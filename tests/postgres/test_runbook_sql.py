"""The SQL of every runbook that is shipped, on every version of the server it says it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.recording.plan import Plan
from dba_console.runbooks.library import listed
from dba_console.runbooks.values import REFERENCE, for_sql, statement
from tests.clusters import FreshCluster
from tests.sql import query
from tests.standbys import copied_standby

SAMPLES: dict[str, Any] = {
    "text": "base/1/1259", "int": 5, "number": 5.0, "duration": 60.0, "size": 1 << 20, "bool": True, "choice": "a",
    "identifier": "postgres", "relation": "pg_catalog.pg_class", "database": "postgres", "role": "postgres",
    "path": "/tmp", "secret": "x",
}  # fmt: skip
"""A value of each type of input; the text is a relation's path, the one form a statement takes apart."""
BY_NAME: dict[str, Any] = {"limit": "1GB", "forgotten": "10m", "archive": "/tmp"}
PARTS: dict[str, Any] = {
    "relation": "pg_catalog.pg_class",
    "file": "pg_catalog.pg_class",
    "at": "2026-11-24 03:00:00+00",
}
"""Parts of results that are names or times; the others are numbers."""
PLANS = [row.plan for row in listed() if row.plan is not None]


def read_only_sql(plan: Plan) -> Iterator[tuple[str, str, str | None]]:
    """Everything of it that only reads: the place it stands at, its text, and what says whether it applies at all."""
    for _, block in plan.blocks():
        applies = block.when.text if block.when is not None and block.when.language == "sql" else None
        if applies is not None:
            yield f"{block.id} when", applies, None
        if block.language == "sql" and block.kind in ("check", "measure", "preview"):
            yield block.id, block.body, applies
        if block.done is not None and block.done.language == "sql":
            yield f"{block.id} done", block.done.text, applies
        for name in ("until", "while"):
            test = block.settings.get(name, {})
            if test.get("language") == "sql":
                yield f"{block.id} {name}", test["text"], applies


def values_of(plan: Plan) -> dict[str, Any]:
    values = {one.name: BY_NAME.get(one.name, SAMPLES[one.type]) for one in plan.inputs}
    for _, block in plan.blocks():
        if block.kind == "input" and block.name:
            values[block.name] = BY_NAME.get(block.name, SAMPLES[block.settings["type"]])
        elif block.kind == "run" and block.name:
            values[block.name] = {"exit": 0, "first_line": "2", "last_line": "2"}
        elif block.kind == "measure" and block.name:
            values[block.name] = {part: PARTS.get(part, 5) for part in parts_of(plan, block.name)}
        elif block.kind == "preview" and block.name:
            values[block.name] = []
    return values


def parts_of(plan: Plan, name: str) -> set[str]:
    """The parts of that result which its SQL names."""
    texts = [*(block.body for _, block in plan.blocks()), *(text for _, text, _ in read_only_sql(plan))]
    named = {match[1].partition(".") for text in texts for match in REFERENCE.finditer(text)}
    return {part for result, _, part in named if result == name and part}


@pytest.mark.parametrize("plan", PLANS, ids=[plan.id for plan in PLANS])
def test_every_version_answers_what_a_runbook_reads(server: Cluster, plan: Plan) -> None:
    low, high = plan.versions
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        major = connection.info.server_version // 10000
        if not (low or 0) <= major <= (high or major):
            pytest.skip(f"{plan.id} is not for version {major}")
        connection.execute("set default_transaction_read_only = on")
        values = values_of(plan)
        for place, text, applies in read_only_sql(plan):
            if applies is None or answer(connection, plan, f"{place} when", applies, values):
                answer(connection, plan, place, text, values)


MONITORED = ("slot-retention", "connection-storm", "disk-filling")
"""Runbooks of which a role that only monitors can walk what looks."""
TIMED = "alter role \"Mon's\" set lock_timeout = '50ms'; alter role \"Mon's\" set statement_timeout = '9s'"


@pytest.mark.parametrize("major", [14, 18])
def test_a_monitoring_role_may_read_it_on_a_primary_and_on_a_standby(major: int, fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster({"wal_level": "logical"}, major=major)
    query(primary, 'create role "Mon\'s" login in role pg_monitor')
    query(primary, TIMED)
    query(primary, 'create database "Shop "" 1"')
    query(primary, 'create table "a""b" (i int) partition by range (i); create table p partition of "a""b" default')
    query(primary, "select pg_create_physical_replication_slot('old', true)")
    with copied_standby(primary) as standby:
        for cluster in (primary, standby):
            with psycopg.connect(cluster.dsn(user="Mon's"), autocommit=True) as connection:
                connection.execute("set search_path = pg_catalog, pg_temp; set default_transaction_read_only = on")
                for plan in (plan for plan in PLANS if plan.id in MONITORED):
                    values = {**values_of(plan), "role": "Mon's"}
                    for place, text, applies in read_only_sql(plan):
                        if applies is None or answer(connection, plan, f"{place} when", applies, values):
                            answer(connection, plan, place, text, values)


def test_the_verdict_of_each_check_has_its_own_name() -> None:
    for plan in PLANS:
        for step, block in plan.blocks():
            if block.kind == "check" and block.language == "sql":
                assert re.search(r"\bas \w+", block.body), f"{plan.id}: {step.id}"


def answer(connection: psycopg.Connection[Any], plan: Plan, place: str, text: str, values: dict[str, Any]) -> Any:
    """The first column of the first row; fails with the place where the server does not understand it."""
    query, params = statement(text, for_sql(values))
    try:
        row = connection.execute(query.encode(), params).fetchone()
    except psycopg.Error as error:
        pytest.fail(f"{plan.source}: {place}: {error}")
    return None if row is None else row[0]
