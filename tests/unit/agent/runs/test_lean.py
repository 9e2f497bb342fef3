"""An agent without a run carries none of what a run needs."""

from __future__ import annotations

import subprocess
import sys

ROOMS = (
    "dba_console.runbook",
    "dba_console.actions",
    "dba_console.keeping",
    "markdown_it",
    "simpleeval",
    "psycopg.rows",
)


def test_an_agent_loads_the_rooms_of_runs_with_its_first_run() -> None:
    code = (
        "import sys, dba_console.agent.run, dba_console.agent.__main__, dba_console.session.recorder;"
        f"print([name for name in {ROOMS!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
