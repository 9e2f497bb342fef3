"""Rules for the code: what a start may load, how long classes and functions may be, what a test may not do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dba_console"
TESTS = ROOT / "tests"
HEAVY = {"textual", "rich", "psycopg", "psutil", "typer", "asyncio", "msgspec", "sqlite3"}
SAME_NAME = {
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
    "module", ["agent.collector", "recording.recorder", "recording.recording", "watch.drawing.overview"]
)
def test_the_modules_of_agent_and_show_load_no_screen(module: str) -> None:
    assert loaded_by(f"import dba_console.{module}") & {"textual", "rich", "typer", "asyncio"} == set()


@pytest.mark.parametrize("package", ["watch/drawing", "watch/frames", "tui", "recording", "jobs/archives"])
def test_packages_independent_of_the_server_load_no_driver(package: str) -> None:
    name = "dba_console." + package.replace("/", ".")
    modules = [f"{name}.{path.stem}" for path in sorted((PACKAGE / package).glob("[a-z]*.py"))]
    assert loaded_by("import " + ", ".join(modules)) & {"psycopg"} == set()


def test_the_console_reads_nothing_of_the_host() -> None:
    assert loaded_by("import dba_console.tui.app, dba_console.tui.console") & {"psutil"} == set()


def test_the_keeper_needs_only_the_standard_library() -> None:
    loaded = loaded_by("import dba_console.keeper.__main__") - loaded_by("pass")
    assert loaded <= {*sys.stdlib_module_names, "dba_console"}


def test_the_agent_loads_no_layout_of_a_panel() -> None:
    script = (
        "import sys, dba_console.agent.agent_process, dba_console.watch.findings.rule_engine\n"
        "from dba_console.watch import subjects\n"
        "assert subjects.panels() and subjects.families()\n"
        "print(*(name for name in sys.modules if name.startswith('dba_console.watch.') and "
        "('.panels' in name or name.endswith(('.layout', '.tables')))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


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


USER_RELATIONS = {
    "actions/create_database.py": "GRANT … FROM a role",
    "actions/deadline_connection.py": "COPY, which calls nothing of the owner; a parameter's name",
    "actions/parameter_sql.py": "a parameter's name",
    "actions/signal_backend.py": "EXTRACT (epoch FROM …)",
    "actions/vacuum.py": "VACUUM runs as the table's owner, who cannot reset that (vacuum_rel in vacuum.c)",
    "clusters/heartbeat_clients.py": "our own table: refused if its schema or it belongs to another role",
    "jobs/tools/create_foreign_keys.py": "a statement of the archive, which a restore executes anyway",
    "recording/recording.py": "a table of a session's SQLite file",
    "reports/share_leak_check.py": "a table of a session's SQLite file",
}
"""Modules that may compose the name of a relation into SQL, and why that calls no code of its owner with our rights."""
NAMED_RELATION = r"\b(?:from|join|into|update|copy|only|table)\s+(?:only\s+)?"


SQL_BEFORE_A_NAME = r"\b(?:FROM|JOIN|INTO|UPDATE|COPY|ONLY|TABLE) $"
"""In upper case: messages have these words too."""


def test_no_other_module_composes_the_name_of_a_users_relation_into_sql() -> None:
    """Even a plain table can call its owner's code when it is read (`count_copied_rows`)."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in sources(PACKAGE)
        if "demo" not in path.parts and names_relations(path.read_text())
    }
    assert found == set(USER_RELATIONS)


def test_the_search_for_named_relations_finds_every_form() -> None:
    forms = ('"select count(*) from only {}"', "f'SELECT * FROM {table}'", "'copy %I to stdout'", "Identifier(a, b)",
             "sql.Identifier(*names)", "b'lock table {}'")  # fmt: skip
    assert [one for one in forms if not names_relations(one)] == []
    assert not names_relations("f'changed from {before}'") and not names_relations("Identifier(role)")


def names_relations(source: str) -> bool:
    """Whether a module composes SQL with the name of a relation: by a placeholder, or by a qualified identifier."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and called(node) == "Identifier":
            if len(node.args) > 1 or any(isinstance(one, ast.Starred) for one in node.args):
                return True
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if re.search(NAMED_RELATION + r"(?:\{\}|%I|'\s*\|\|)", text, re.I):
                return True
        elif isinstance(node, ast.JoinedStr):
            for before, after in pairwise(node.values):
                text = str(before.value) if isinstance(before, ast.Constant) else ""
                if not isinstance(after, ast.Constant) and re.search(SQL_BEFORE_A_NAME, text):
                    return True
    return False


def test_no_shipped_runbook_reads_a_users_relation() -> None:
    """VACUUM, ANALYZE and REINDEX run as the table's owner, who cannot reset that; a SELECT does not."""
    word = (
        r"(?<!analyze )"
        + NAMED_RELATION
        + r"(?!pg_catalog\.|information_schema\.)(?:%I|%\([\w.]+\)[IR]|'\s*\|\||[a-z]\w*\.[a-z])"
    )
    found = {
        f"{path.name}: {match[0]}"
        for path in sorted((PACKAGE / "runbooks" / "documents").glob("*.md"))
        for block in re.findall(r"^```(?:sql|sh) \{(?!example).*?^```", path.read_text(), re.M | re.S)
        for match in re.finditer(word, block, re.I)
        if not match[0].startswith(("from h.", "from i."))  # is not distinct from
    }
    assert found == set()


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
