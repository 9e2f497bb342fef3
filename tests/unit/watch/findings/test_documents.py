"""docs/findings.md says what the rules say; no rule is without words, and no figure without a place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from dba_console.core.declarations import declared_fields, field_notes
from dba_console.watch.findings import rule as rule_module
from dba_console.watch.findings.__main__ import render_markdown
from dba_console.watch.findings.configuration import find_order_conflict
from dba_console.watch.findings.finding_groups import LINKS
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.rule_engine import FAMILIES, RULES
from dba_console.watch.findings.thresholds import RuleThresholds, threshold_kind, threshold_name
from dba_console.watch.samples.sample import PARTS

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "findings.md"
KINDS = [kind for family in FAMILIES for kind in family.thresholds]


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


def test_every_threshold_belongs_to_one_family_and_has_a_name_of_its_own_there() -> None:
    kinds = [kind for family in FAMILIES for kind in family.thresholds]
    declared = [kind for kind in RuleThresholds.__subclasses__() if kind.family]
    assert {kind for kind in declared if kind.__module__.startswith("dba_console.")} == set(kinds)
    assert all(kind.family == family.name for family in FAMILIES for kind in family.thresholds)
    names = [f"{kind.family}.{field.name}" for kind in kinds for field in msgspec.structs.fields(kind)]
    assert sorted(set(names)) == sorted(names)
    assert {threshold_name(threshold) for rule in RULES for threshold in rule.settings} <= set(names)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_threshold_says_how_its_default_was_found(kind: type[RuleThresholds]) -> None:
    numbers = [field.name for field in msgspec.structs.fields(kind) if field.default_factory is msgspec.NODEFAULT]
    found = {threshold_kind(getattr(kind, name)) for name in numbers}
    assert found <= {"measured", "computed", "judgement"}


def test_the_runbooks_of_rules_are_those_named_by_their_signals() -> None:
    for module in {inspect.getmodule(rule.check) for rule in RULES} - {rule_module}:
        source = inspect.getsource(module) if module is not None else ""
        named = set(re.findall(r'runbook=(?:[A-Z]+|"([a-z-]+)")', source.split("\nRULES")[0])) - {""}
        reported = {rule.runbook for rule in RULES if inspect.getmodule(rule.check) is module} - {None}
        assert named <= reported, module


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_threshold_is_documented(kind: type[RuleThresholds]) -> None:
    assert declared_fields(kind).keys() == field_notes(kind).keys()


def test_causal_links_lead_from_rules_to_rules() -> None:
    names = {rule.name for rule in RULES}
    assert {name for link in LINKS for name in (link.effect, link.cause)} <= names


def test_defaults_are_in_the_required_order() -> None:
    assert find_order_conflict({}) is None


def test_numbers_in_the_tables_are_valid_configuration_values() -> None:
    for row in re.findall(r"^\| `findings\.[a-z_.]+` \| `([^`]*)` \|", DOCUMENT.read_text(), re.M):
        assert msgspec.toml.decode(f"value = {row}".encode())["value"] is not None
