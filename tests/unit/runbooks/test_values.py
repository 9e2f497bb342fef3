"""Inputs are read by their type, and reach SQL and commands without ever being part of a text."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.core.errors import UsageError
from dba_console.recording.plan import Input
from dba_console.runbooks.block_kind_registry import bind_inputs
from dba_console.runbooks.values import (
    TYPES,
    arguments,
    as_written,
    environment,
    fill_references,
    for_sql,
    literal,
    quoted,
    statement,
    typed,
    value_of,
)
from tests.unit.runbooks.short_runbooks import fence, plan_of, runbook_text

PLAN = plan_of(runbook_text(
    fence("toml {wait}", 'hold_for = "%(every)s"'),
    fence("sql {check}", "select %(who)s = %(word)s"),
    head='[inputs.every]\ntype = "duration"\ndefault = "30m"\n[inputs.who]\ntype = "role"\n'
    '[inputs.word]\ntype = "text"\nrequired = false\n',
))  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("text", " a b ", "a b"),
        ("int", "12", 12),
        ("number", "1.5", 1.5),
        ("duration", "1h30m", 5400.0),
        ("size", "10MB", 10 << 20),
        ("bool", "no", False),
        ("identifier", "Order", "Order"),
        ("relation", 's."a.b"', 's."a.b"'),
        ("database", "app", "app"),
        ("role", "app", "app"),
        ("path", "/var/x y", "/var/x y"),
        ("secret", " kept as it is ", " kept as it is "),
    ],
)
def test_a_value_is_parsed_by_its_type(kind: str, text: str, value: Any) -> None:
    assert value_of(Input(name="x", type=kind), text) == value


def test_every_type_can_be_parsed() -> None:
    for kind in TYPES:
        choices = ("/1",) if kind == "choice" else ()
        with pytest.raises(UsageError):
            value_of(Input(name="x", type=kind, choices=choices), "")


@pytest.mark.parametrize(
    ("one", "text", "expected"),
    [
        (Input(name="x", type="int"), "a", "x: 'a' is not a whole number"),
        (Input(name="x", type="number"), "nan", "is not a number"),
        (Input(name="x", type="duration"), "5 parsecs", "is not a duration"),
        (Input(name="x", type="path"), "etc/x", "is not an absolute path"),
        (Input(name="x", type="path"), "/a/../b", "is not an absolute path"),
        (Input(name="x", type="identifier"), "a" * 64, "is not an SQL identifier"),
        (Input(name="x", type="relation"), "a.b.c", "is not a table name"),
        (Input(name="x", type="choice", choices=("a", "b")), "c", "is not one of a, b"),
        (Input(name="x", type="int", minimum=1, maximum=3), "4", "must be at most 3"),
        (Input(name="x", type="int", minimum=1), "0", "must be at least 1"),
        (Input(name="x", type="text", pattern="[a-z]+"), "a1", "does not match"),
        (Input(name="x", type="text"), "a\0b", "or contains a zero byte"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(one: Input, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        value_of(one, text)


def test_an_invalid_secret_is_not_shown() -> None:
    with pytest.raises(UsageError) as refused:
        value_of(Input(name="x", type="secret", secret=True, pattern="[a-z]+"), "HUSH")
    assert "HUSH" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("duration", 60.0, "1m"), ("duration", 90.0, "90s"), ("duration", 0.25, "0.25s"), ("duration", 0.0, "0s"),
        ("size", 8 << 30, "8GB"), ("size", (1 << 20) + 1, "1048577B"), ("bool", False, "no"), ("bool", True, "yes"),
        ("int", 0, "0"),
    ],
)  # fmt: skip
def test_a_default_is_shown_as_it_would_be_written(kind: str, value: Any, text: str) -> None:
    one = Input(name="one", type=kind)
    assert as_written(one, value) == text
    assert value_of(one, text) == value


def test_inputs_have_the_given_value_or_their_default_or_are_unknown() -> None:
    assert typed(PLAN, {"who": "app"}) == {"every": 1800.0, "who": "app", "word": None}
    with pytest.raises(UsageError, match="book needs who"):
        typed(PLAN, {})
    with pytest.raises(UsageError, match="has no input 'woh'"):
        typed(PLAN, {"woh": "app"})


def test_a_wait_gets_its_duration_from_an_input_before_the_run() -> None:
    (wait, _) = (block for _, block in bind_inputs(PLAN, {"every": 60.0, "who": "a", "word": None}).blocks())
    assert wait.settings == {"hold_for_s": 60.0}


def test_a_phrase_to_be_typed_is_the_value_of_an_input() -> None:
    plan = plan_of(runbook_text(
        fence('toml {confirm type:"%(to)s"}'),
        fence("sql {change undo=none}", "delete from public.t"),
        fence('sql {change confirm=type:"lose %(wait)s on %(to)s" undo=none}', "delete from public.u"),
        head='[inputs.to]\ntype = "text"\n[inputs.wait]\ntype = "duration"\n',
    ))  # fmt: skip
    first, _, second = (
        block.confirm for _, block in bind_inputs(plan, typed(plan, {"to": "db2", "wait": "5m"})).blocks()
    )
    assert first is not None and second is not None
    assert (first.text, second.text) == ("db2", "lose 5m on db2")


@pytest.mark.parametrize("value", ["target", "count", "name", "db2\ndb3"])
def test_a_value_that_cannot_be_typed_as_a_phrase_is_refused_before_the_run(value: str) -> None:
    head = '[inputs.to]\ntype = "text"\n'
    plan = plan_of(
        runbook_text(fence('sql {change confirm=type:"%(to)s" undo=none}', "delete from public.t"), head=head)
    )
    with pytest.raises(UsageError, match="cannot be typed"):
        typed(plan, {"to": value})


def test_a_statement_binds_values_quotes_names_and_changes_no_other_character() -> None:
    text, params = statement(
        "select '100%', %(n)s from %(t)R where %(c)I like 'a%' and x % 2 = %(n)L",
        {"n": 5, "t": 's."a""b"', "c": 'x" or 1=1', "other": 1},
    )
    assert text == 'select \'100%%\', %(n)s from "s"."a""b" where "x"" or 1=1" like \'a%%\' and x %% 2 = 5'
    assert params == {"n": 5}


def test_a_statement_with_a_missing_value_is_refused() -> None:
    with pytest.raises(UsageError, match="x has no value"):
        statement("select %(x)s", {})


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, 5, None, "ä" * 32])
def test_an_invalid_name_is_not_quoted(name: Any) -> None:
    with pytest.raises(UsageError):
        quoted(name)


def test_a_literal_can_neither_end_early_nor_join_the_previous_character() -> None:
    assert literal("a'; drop table public.t; --") == "'a''; drop table public.t; --'"
    assert literal("a\\'b") == " E'a\\\\''b'"
    assert "x -" + literal(-1) == "x - -1"
    assert (literal(True), literal(None), literal(1.5)) == ("true", "NULL", "1.5")


def test_only_a_text_that_is_entirely_a_reference_is_replaced() -> None:
    rows = [{"pid": 1}]
    assert fill_references({"rows": "%(idle)s", "a": ["x %(idle)s", 3]}, {"idle": rows}) == {
        "rows": rows,
        "a": ["x %(idle)s", 3],
    }
    assert arguments(["rm", "%(path)s", "--", "-%(path)s"], {"path": "/a b; c"}) == ["rm", "/a b; c", "--", "-%(path)s"]
    with pytest.raises(UsageError, match="path has no value"):
        arguments(["%(path)s"], {"path": None})
    copy = {"copy": {"exit": 0, "first_line": None}}
    assert arguments(["%(copy.exit)s"], copy) == ["0"] and fill_references("%(copy.none)s", copy) is None
    with pytest.raises(UsageError):
        arguments(["%(copy.first_line)s"], copy)


def test_the_environment_contains_plain_numbers_and_the_parts_of_results() -> None:
    values = {"every": 1800.0, "size": 10 << 20, "yes": True, "none": None, "copy": {"exit": 0, "first_line": "a b"}}
    assert environment(values, values) == {
        "RB_every": "1800", "RB_size": "10485760", "RB_yes": "1", "RB_copy_exit": "0", "RB_copy_first_line": "a b",
    }  # fmt: skip


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=60))
def test_whatever_the_value_a_command_gets_it_as_one_word(text: str) -> None:
    assert list(environment(["x"], {"x": text}).values()) == [text]
    assert arguments(["a", "%(x)s"], {"x": text}) == ["a", text]


def test_a_shell_gets_the_value_and_executes_no_part_of_it() -> None:
    hostile = "$(echo no) `echo no` ; echo no \" ' * \n%"
    done = subprocess.run(
        ["bash", "-c", 'printf %s "$RB_x"'], env={"PATH": "/usr/bin:/bin", **environment(["x"], {"x": hostile})},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == hostile


def test_a_part_of_a_result_is_bound_in_sql_like_any_value() -> None:
    values = for_sql({"was": {"limit": -1, "who": "it's"}, "rows": [{"a": 1}]})
    text = "alter role %(was.who)I connection limit %(was.limit)L -- %(was.limit)s"
    assert statement(text, values) == (
        'alter role "it\'s" connection limit  -1 -- %(was.limit)s', {"was.limit": -1}
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"was.gone has no value"):
        statement("select %(was.gone)s", values)
