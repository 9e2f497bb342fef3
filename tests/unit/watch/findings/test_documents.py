"""docs/findings.md says what the rules say; no rule is without words, and no figure without a place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from dba_console.core.declarations import declared_fields, field_notes
from dba_console.core.thresholds import ORDERED_PAIRS, Limits
from dba_console.watch.findings import rule as rule_module
from dba_console.watch.findings.__main__ import render_markdown
from dba_console.watch.findings.finding_groups import LINKS
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.rule_engine import FAMILIES, RULES, Family
from dba_console.watch.samples.sample import PARTS

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "findings.md"


def test_the_document_matches_the_rules() -> None:
    wrong = "print it anew: python -m dba_console.watch.findings > docs/findings.md"
    assert DOCUMENT.read_text() == render_markdown(), wrong


def test_no_two_rules_have_the_same_name() -> None:
    names = [rule.name for rule in RULES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_states_what_it_detects_and_is_evaluated_when_its_part_is_read(rule: Rule) -> None:
    text = render_markdown().split(f"### `{rule.name}`")[1].split("\n###")[0]
    message = [line for line in text.split("\n- ")[0].splitlines() if line]
    assert message, "the look of a rule has a docstring"
    assert rule.parts and set(rule.parts) <= PARTS.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_title_is_a_clause_with_an_initial_capital_and_no_full_stop(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z].{10,108}[a-zA-Z]", rule.title), rule.title


def test_every_threshold_of_a_rule_exists_and_belongs_to_a_family() -> None:
    limits = Limits()
    figures = {
        f"{family}.{field.name}"
        for family in (family.limits for family in FAMILIES)
        for field in msgspec.structs.fields(getattr(limits, family))
    }
    assert {name for rule in RULES for name in rule.settings} <= figures
    assert {field.name for field in msgspec.structs.fields(Limits)} - {"off"} == {family.limits for family in FAMILIES}


def test_the_runbooks_of_rules_are_those_named_by_their_signals() -> None:
    for module in {inspect.getmodule(rule.check) for rule in RULES} - {rule_module}:
        source = inspect.getsource(module) if module is not None else ""
        named = set(re.findall(r'runbook=(?:[A-Z]+|"([a-z-]+)")', source.split("\nRULES")[0])) - {""}
        reported = {rule.runbook for rule in RULES if inspect.getmodule(rule.check) is module} - {None}
        assert named <= reported, module


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.limits)
def test_every_threshold_is_documented(family: Family) -> None:
    kind = declared_fields(Limits)[family.limits].type
    assert declared_fields(kind).keys() == field_notes(kind).keys()


def test_causal_links_lead_from_rules_to_rules() -> None:
    names = {rule.name for rule in RULES}
    assert {name for link in LINKS for name in (link.effect, link.cause)} <= names


@pytest.mark.parametrize("family", ORDERED_PAIRS)
def test_defaults_are_in_the_required_order(family: str) -> None:
    figures = getattr(Limits(), family)
    for lower, upper in ORDERED_PAIRS[family]:
        assert getattr(figures, lower) <= getattr(figures, upper), (lower, upper)


def test_numbers_in_the_tables_are_valid_configuration_values() -> None:
    for row in re.findall(r"^\| `findings\.[a-z_.]+` \| `([^`]*)` \|", DOCUMENT.read_text(), re.M):
        assert msgspec.toml.decode(f"value = {row}".encode())["value"] is not None
