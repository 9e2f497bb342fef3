"""The subjects of the console: the registry, one line each.

A subject is a package with the modules `readings` (what is read), `panel` (what follows from it), `layout` (how that is
drawn) and `rules` (what is concluded), and SQL files beside them. Its modules are loaded when they are first needed:
the agent loads no layout, a console no SQL, and neither of them rules before the first picture.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dba_console.watch.findings.rule import Family
    from dba_console.watch.layout import Layout
    from dba_console.watch.panel import Panel
    from dba_console.watch.part import PartKind


class Subject(NamedTuple):
    panel: str
    """The name of its panel, as in `show --json`."""
    package: str
    has_rules: bool = True


SUBJECTS = (
    Subject("connections", "dba_console.watch.connections"),
    Subject("io", "dba_console.watch.io"),
    Subject("memory", "dba_console.watch.memory"),
    Subject("safety", "dba_console.watch.safety"),
    Subject("progress", "dba_console.watch.progress"),
    Subject("locks", "dba_console.watch.locks"),
    Subject("replication", "dba_console.watch.replication"),
    Subject("disks", "dba_console.watch.disks"),
    Subject("sessions", "dba_console.watch.sessions", has_rules=False),
    Subject("events", "dba_console.watch.console"),
    Subject("cluster", "dba_console.clusters.subject"),
    Subject("server", "dba_console.watch.server"),
)
PANEL_NAMES = tuple(subject.panel for subject in SUBJECTS)
"""All panels, in the order of their keys: 1 to 9, 0, then letters."""

_ROOT = Path(__file__).resolve().parents[2]


def sql_directories() -> list[Path]:
    """Return where the queries of the subjects are."""
    return [_ROOT.joinpath(*package.split(".")) for package in _packages()]


@cache
def parts() -> tuple[PartKind, ...]:
    """Return the parts of all subjects."""
    return tuple(part for package in _packages() for part in _declared(package, "readings", "PARTS"))


@cache
def panels() -> dict[str, Panel]:
    """Return the panels of all subjects by name."""
    declared: list[Panel] = [_declared(package, "panel", "PANEL") for package in _packages()]
    return {panel.name: panel for panel in declared}


@cache
def layouts() -> dict[str, Layout]:
    """Return the layouts of all panels by name."""
    declared: list[Layout] = [_declared(package, "layout", "LAYOUT") for package in _packages()]
    return {layout.name: layout for layout in declared}


@cache
def families() -> dict[str, Family]:
    """Return the families of rules of all subjects by the name of their table in the configuration."""
    with_rules = [subject.package for subject in SUBJECTS if subject.has_rules]
    declared: list[Family] = [_declared(package, "rules", "FAMILY") for package in with_rules]
    return {family.name: family for family in declared}


def _packages() -> list[str]:
    return [subject.package for subject in SUBJECTS]


def _declared(package: str, module: str, name: str) -> Any:
    return getattr(import_module(f"{package}.{module}"), name)
