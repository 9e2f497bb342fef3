"""Rules for the code: what a start may load, how long classes and functions may be, what a test may not do."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dba_console"
TESTS = ROOT / "tests"
HEAVY = {"textual", "rich", "psycopg", "typer", "asyncio", "msgspec", "sqlite3"}
SAME_NAME = {
    **dict.fromkeys(("Disks", "Locks", "Replication", "Sessions"), "what was read, and its panel"),
    "Span": "a piece of a line, and a time from one moment to another",
}
"""Classes that share a name, and why."""
LONGEST_CLASS, LONGEST_FUNCTION = 400, 60
"""Lines; what needs more does more than one thing."""


def loaded_by(statement: str) -> set[str]:
    """The top-level modules loaded by a statement in an interpreter of its own."""
    script = f"import sys\n{statement}\nprint('\\nloaded', *sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def sources(*tops: Path) -> Iterator[Path]:
    for top in tops:
        yield from sorted(top.rglob("*.py"))


def test_importing_the_package_loads_no_library() -> None:
    assert loaded_by("import dba_console") & HEAVY == set()


def test_the_version_option_loads_no_library() -> None:
    statement = "sys.argv = ['dba-console', '--version']\nfrom dba_console.__main__ import main\nassert main() == 0"
    assert loaded_by(statement) & HEAVY == set()


def test_help_loads_neither_the_screen_nor_the_driver() -> None:
    statement = "from dba_console.cli.app import run\nassert run(['--help']) == 0"
    assert loaded_by(statement) & {"textual", "rich", "psycopg"} == set()


@pytest.mark.parametrize(
    "module", ["agent.collector", "recording.recorder", "recording.recording", "watch.panels.overview"]
)
def test_the_modules_of_agent_and_show_load_no_screen(module: str) -> None:
    assert loaded_by(f"import dba_console.{module}") & {"textual", "rich", "typer", "asyncio"} == set()


@pytest.mark.parametrize("package", ["watch/panels", "watch/frames", "tui", "recording", "jobs/archives"])
def test_packages_independent_of_the_server_load_no_driver(package: str) -> None:
    name = "dba_console." + package.replace("/", ".")
    modules = [f"{name}.{path.stem}" for path in sorted((PACKAGE / package).glob("[a-z]*.py"))]
    assert loaded_by("import " + ", ".join(modules)) & {"psycopg"} == set()


def test_no_class_is_longer_than_400_lines_and_no_function_longer_than_60() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"
        for path in sources(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := 1 + (node.end_lineno or node.lineno) - node.lineno)
        > (LONGEST_CLASS if isinstance(node, ast.ClassDef) else LONGEST_FUNCTION)
    ]
    assert too_long == []


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sources(PACKAGE):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name for name, found in places.items() if len(found) > 1} == set(SAME_NAME)


def test_every_module_has_a_docstring() -> None:
    assert [path for path in sources(PACKAGE) if not has_docstring(path.read_text())] == []


def has_docstring(source: str) -> bool:
    return source.startswith('"""') or ast.get_docstring(ast.parse(source)) is not None


def test_every_query_file_starts_with_a_comment() -> None:
    queries = sorted(PACKAGE.rglob("*.sql"))
    assert queries
    assert [path.name for path in queries if not path.read_text().startswith("-- ")] == []


def test_no_test_sleeps() -> None:
    """A sleep is a guess about time: wait for the event, or hold the clock."""
    asleep = {str(path.relative_to(ROOT)): sleeps_in(path.read_text()) for path in sources(TESTS)}
    assert {path: lines for path, lines in asleep.items() if lines} == {}


def test_the_search_for_sleeps_finds_every_form() -> None:
    assert sleeps_in("import time\ntime.sleep(1)\nsleep(2)\n# sleep(3)\nasyncio.sleep(0)\n") == [2, 3, 5]


def sleeps_in(source: str) -> list[int]:
    """The lines that call anything named sleep."""
    if "sleep" not in source:
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if called(call) == "sleep"]


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
