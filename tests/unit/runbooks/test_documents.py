"""docs/runbook-format.md and the JSON Schema say what documents are read by; what is shipped passes the lint."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.actions.registry import ACTIONS
from dba_console.cli.runbook.documents import template_document
from dba_console.core.declarations import declared_fields
from dba_console.runbooks.__main__ import format_schema, markdown
from dba_console.runbooks.block_kind_registry import KINDS
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.library import SHIPPED, check, entries
from dba_console.runbooks.lint import LINT_RULES
from dba_console.runbooks.schema import BlockAttributes
from dba_console.watch.findings.rule_engine import RULES as FINDINGS
from tests.unit.runbooks.short_runbooks import problem_lines_of

DOCS = Path(__file__).resolve().parents[3] / "docs"
RUNBOOKS = [entry.path for entry in entries()]


def test_the_page_matches_the_declarations() -> None:
    wrong = "print it anew: python -m dba_console.runbooks > docs/runbook-format.md"
    assert (DOCS / "runbook-format.md").read_text() == markdown(), wrong


def test_the_schema_can_be_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dba_console.runbooks", "--schema"], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout) == format_schema()


def test_the_schema_contains_every_kind_and_attribute() -> None:
    definitions = format_schema()["$defs"]
    assert set(KINDS) <= set(definitions)
    names = {name for kind in KINDS for name in definitions[kind]["properties"]["attributes"]["properties"]}
    assert names == set(declared_fields(BlockAttributes))


@pytest.mark.parametrize("name", list(LINT_RULES))
def test_every_lint_rule_says_what_it_refuses_and_why(name: str) -> None:
    assert len(inspect.getdoc(LINT_RULES[name]) or "") > 40


@pytest.mark.parametrize("page", ["writing-runbooks.md"])
def test_every_runbook_shown_in_the_documentation_passes_the_lint(page: str) -> None:
    shown = re.findall(r"^````markdown\n(.*?)^````$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    for text in shown:
        assert problem_lines_of(check_text(text, page, ACTIONS)) == []


@pytest.mark.parametrize("finding", [None, "idle-in-transaction"])
def test_a_new_runbook_passes_the_lint_unchanged(finding: str | None) -> None:
    checked = check_text(template_document("slot-cleanup", finding), "slot-cleanup.md", ACTIONS)
    assert problem_lines_of(checked) == []
    assert checked.answers == (() if finding is None else (finding,))


@pytest.mark.parametrize("path", RUNBOOKS, ids=[path.stem for path in RUNBOOKS])
def test_a_shipped_runbook_passes_the_lint(path: Path) -> None:
    checked = check(path, path.read_text(), ACTIONS)
    assert problem_lines_of(checked) == []
    assert checked.plan is not None and checked.plan.prose, "it says why, when not, and what it costs"


def test_every_runbook_named_by_a_finding_is_shipped() -> None:
    named = {rule.runbook for rule in FINDINGS if rule.runbook is not None}
    assert named <= {path.stem for path in RUNBOOKS}


def test_every_finding_that_names_a_runbook_is_listed_in_that_runbook() -> None:
    answers = {path.stem: check(path, path.read_text(), None).answers for path in RUNBOOKS}
    wrong = {rule.name: rule.runbook for rule in FINDINGS if rule.runbook and rule.name not in answers[rule.runbook]}
    assert wrong == {}


def test_the_shipped_runbooks_are_in_the_package() -> None:
    assert SHIPPED.is_dir()
    assert RUNBOOKS
