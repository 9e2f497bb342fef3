"""Every subject is a folder with the same modules, and nothing lies in it that is not declared."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct

from dba_console.watch import subjects
from dba_console.watch.part import ServerPart
from dba_console.watch.subjects import PANEL_NAMES, Subject

FOLDERS = subjects.SUBJECTS


@pytest.mark.parametrize("subject", FOLDERS, ids=lambda subject: subject.panel)
def test_a_subject_declares_its_parts_panel_layout_and_rules(subject: Subject) -> None:
    declared = {"readings": "PARTS", "panel": "PANEL", "layout": "LAYOUT"}
    if subject.has_rules:
        declared["rules"] = "FAMILY"
    for module, name in declared.items():
        assert hasattr(import_module(f"{subject.package}.{module}"), name)
    assert subject.panel in subjects.panels() and subject.panel in subjects.layouts()


@pytest.mark.parametrize("subject", FOLDERS, ids=lambda subject: subject.panel)
def test_every_query_file_of_a_subject_belongs_to_a_part(subject: Subject) -> None:
    readings = import_module(f"{subject.package}.readings")
    queries = {query.name for part in readings.PARTS if isinstance(part, ServerPart) for query in part.queries}
    files = sorted(Path(str(readings.__file__)).parent.glob("*.sql"))
    assert {re.sub(r"_\d{6}$", "", path.stem) for path in files} == queries


def test_no_two_panels_have_the_same_key() -> None:
    keys = [layout.key for layout in subjects.layouts().values()]
    assert sorted(set(keys)) == sorted(keys)
    assert set(subjects.layouts()) <= set(PANEL_NAMES)


@pytest.mark.parametrize("part", subjects.parts(), ids=lambda part: part.name)
def test_a_field_called_like_a_name_says_what_it_names(part: Any) -> None:
    """A shared copy replaces names by the kind of their fields; a field without a kind is text."""
    assert list(undeclared(part.reading)) == []


NAMES = {"user", "database", "application", "client", "name", "host", "relation", "slot", "schema", "tablespace"}


def undeclared(struct: type[Struct]) -> list[str]:
    found = []
    for name, hint in get_type_hints(struct, include_extras=True).items():
        if get_origin(hint) is list and isinstance(row := get_args(hint)[0], type) and issubclass(row, Struct):
            found += undeclared(row)
        elif set(name.split("_")) & NAMES and str in parts_of(hint):
            found.append(f"{struct.__name__}.{name}")
    return found


def parts_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of an annotated type nothing, for it says what it is."""
    return () if get_origin(hint) is Annotated else get_args(hint) or (hint,)
