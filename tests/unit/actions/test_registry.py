"""Every action says what it is and takes no setting it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.actions.__main__ import markdown
from dba_console.actions.registry import ACTIONS, find_action, parse_settings
from dba_console.core.errors import UsageError


@pytest.mark.parametrize("name", list(ACTIONS))
def test_an_action_has_its_registered_name_and_strict_settings(name: str) -> None:
    found = find_action(name)
    assert found.name == name and found.summary.endswith(".")
    assert found.Settings.__struct_config__.forbid_unknown_fields
    assert all(hasattr(found, method) for method in ("preview", "act", "settle", "undo"))
    assert isinstance(found.needs_server, bool) and isinstance(found.needs_root, bool)


@pytest.mark.parametrize("name", list(ACTIONS))
def test_an_unknown_setting_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} has no setting 'nonsense'"):
        parse_settings(name, {"nonsense": 1})


def test_a_typing_error_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as misspelt:
        parse_settings("vacuum", {"tabel": "orders"})
    assert misspelt.value.hint == "did you mean table?"
    with pytest.raises(UsageError) as unknown:
        find_action("signal-backends")
    assert unknown.value.hint == "did you mean signal-backend?"
    with pytest.raises(UsageError, match="action drop-slot: slot must be text, not a number"):
        parse_settings("drop-slot", {"slot": 7})


@pytest.mark.parametrize(
    "settings",
    [{}, {"settings": {"work_mem": "1MB"}, "parameter": "work_mem"}, {"settings": {"work_mem": "1MB"}, "reset": True}],
)
def test_parameters_are_given_as_a_table_or_as_one_name(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"set either settings or parameter|need parameter"):
        parse_settings("set-parameters", settings)


DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "actions.md"


def test_the_reference_matches_the_actions() -> None:
    wrong = "print it anew: python -m dba_console.actions > docs/actions.md"
    assert DOCUMENT.read_text() == markdown(), wrong


@pytest.mark.parametrize("name", list(ACTIONS))
def test_every_setting_is_documented(name: str) -> None:
    page = markdown().split(f"## `{name}`")[1].split("\n## ")[0]
    assert [line for line in page.splitlines() if line.endswith("|  |")] == []


def test_an_optional_setting_whose_reference_is_empty_counts_as_not_given() -> None:
    assert parse_settings("create-database", {"database": "shop", "like": None}).like is None
    with pytest.raises(UsageError, match="database must be text"):
        parse_settings("create-database", {"database": None})
