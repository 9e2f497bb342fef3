"""Started in a directory others may write, with another user's environment: none of their code runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.core.safe_environment import trusted_search_path
from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cli.console import Console
from tests.sql import query

MODULES = ("nt", "psycopg", "msgspec", "sitecustomize", "usercustomize", "json", "dba_console", "encodings", "sqlite3")
PROGRAMS = ("pg_dump", "pg_restore", "psql", "pg_config", "bash", "sh", "ionice", "lz4", "ssh", "iostat")
LIMIT_S = 120.0
RUNBOOK = """# Where

Which programs are found.

```toml {runbook}
id = "where"
needs = ["server", "psql"]
```

## Look

```sh {check}
psql -XAtc "select 1" && dba-console --version
```
"""


@pytest.fixture
def planted_directory(tmp_path: Path) -> Path:
    """A world-writable directory with modules and programs that record when they run."""
    directory = tmp_path / "shared"
    directory.mkdir()
    (tmp_path / "ran").touch()
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('module {name}\\n')\n")
    for part in ("dba_console", "dba_console/agent"):
        (directory / part).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (directory / part / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('package {part}\\n')\n")
    for name in PROGRAMS:
        program = directory / name
        program.write_text(f"#!/bin/sh\necho program {name} >>{tmp_path}/ran\n")
        program.chmod(0o755)
    directory.chmod(0o777)
    return directory


def planted_code_run(planted_directory: Path) -> list[str]:
    return (planted_directory.parent / "ran").read_text().splitlines()


def start_in(console: Console, planted_directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As the installed command starts it: its own directory first on the path of modules, the planted one current."""
    environ = console.environ()
    environ |= {"PATH": f"{planted_directory}:.:{environ['PATH']}", "PYTHONPATH": str(planted_directory)}
    program = [sys.executable, "-P", "-E", "-m", "dba_console", *arguments]
    return subprocess.run(
        program,
        cwd=planted_directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_the_trap_works_against_an_unprotected_program(planted_directory: Path) -> None:
    environ = {**os.environ, "PATH": f"{planted_directory}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-c", "import nt"], cwd=planted_directory, env=environ, check=True)
    subprocess.run(["/bin/bash", "-c", "psql"], cwd="/", env=environ, check=True)
    assert planted_code_run(planted_directory) == ["module nt", "program psql"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("record", "DSN", "--for", "2s"),
        ("show", "DSN"),
        ("doctor", "DSN"),
        ("dumps", "estimate", "DSN"),
        ("dumps", "sweep", "DSN", "-j", "1", "--to", "PLACE"),
        ("runbook", "rehearse", "RUNBOOK", "--yes", "--dsn", "DSN"),
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_no_planted_code_runs(
    arguments: tuple[str, ...], planted_directory: Path, cluster: Cluster, tmp_path: Path
) -> None:
    console = Console(tmp_path)
    book, place = tmp_path / "where.md", tmp_path / "dumps"
    book.write_text(RUNBOOK)
    place.mkdir()
    query(cluster, "create table if not exists public.to_dump as select 1 as n")
    given = {"DSN": cluster.dsn(), "RUNBOOK": str(book), "PLACE": str(place)}
    try:
        done = start_in(console, planted_directory, *(given.get(word, word) for word in arguments))
    finally:
        for agent in console.run("attach", "--list", "--json", timeout=LIMIT_S).objects():
            os.kill(agent["pid"], signal.SIGTERM)
            wait_until(lambda pid=agent["pid"]: not Path(f"/proc/{pid}/exe").exists(), LIMIT_S)  # type: ignore[misc]
        query(cluster, "drop table public.to_dump")
    assert done.returncode == 0, done
    assert planted_code_run(planted_directory) == []


def test_only_path_directories_that_others_cannot_write_are_kept(tmp_path: Path) -> None:
    mine, open_ = tmp_path / "mine", tmp_path / "open"
    for place, mode in ((mine, 0o755), (open_, 0o1777)):
        place.mkdir()
        place.chmod(mode)
    kept = trusted_search_path(f"{open_}:.::relative:{mine}:/usr/bin:/nowhere").split(":")
    assert kept[:2] == [str(mine), "/usr/bin"] and str(open_) not in kept and "/nowhere" not in kept
