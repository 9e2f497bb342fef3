"""In which order and beside what tests run when several workers share them (pytest-xdist, `--dist loadgroup`).

First the tests that run alone, while nothing of the others is set up, and the pure ones for the workers that would
have to wait for them; then the directories whose tests wait longest, so that the short ones fill the gaps at the end.
A group goes to one worker: a module of pure functions, to be imported once, and a module whose tests share a server or
an agent.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

LONGEST_FIRST = (
    "cluster", "runbooks", "incidents", "demo", "faults", "agent", "findings", "cli", "terminal", "attacks",
    "screenshots", "actions", "postgres", "keeper", "host",
)  # fmt: skip
PURE = ("unit", "panels", "walkthrough", "tui")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module of the product without an example need not be imported to look for one."""
    if collection_path.suffix != ".py" or config.rootpath / "dba_console" not in collection_path.parents:
        return None
    return b">>>" not in collection_path.read_bytes() or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (name := group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_place)


def group_of(item: pytest.Item) -> str | None:
    """The group a test goes to a worker with; None where it goes by itself, or names its group."""
    if item.get_closest_marker("alone"):
        return "alone"
    if item.get_closest_marker("xdist_group"):
        return None
    if not is_pure(item) and not (isinstance(item, pytest.Function) and shares_a_fixture(item)):
        return None
    return f"{directory_of(item)}/{item.path.stem}"


def shares_a_fixture(item: pytest.Function) -> bool:
    """Whether what is set up for this test serves others of its module, too."""
    found = item._fixtureinfo.name2fixturedefs.values()
    return any(one.scope in ("module", "class", "package") for many in found for one in many)


def directory_of(item: pytest.Item) -> str:
    """The directory below tests/; "" for a test of the top level and for a doctest of the product."""
    return _below_tests(item.path, item.config.rootpath)


def is_pure(item: pytest.Item) -> bool:
    """Whether the test needs nothing of the machine but files and a processor."""
    return directory_of(item) in PURE or isinstance(item, pytest.DoctestItem)


@cache
def _below_tests(path: Path, root: Path) -> str:
    parts = path.relative_to(root).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else ""


def _place(item: pytest.Item) -> tuple[int, int, Path]:
    if item.get_closest_marker("alone"):
        return 0, 0, item.path
    if is_pure(item):
        return 1, 0, Path()
    directory = directory_of(item)
    return 2, LONGEST_FIRST.index(directory) if directory in LONGEST_FIRST else len(LONGEST_FIRST), Path()
