"""An agent without a run has not loaded the modules that a run needs."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "dba_console.runbooks.compile",
    "dba_console.runbooks.run_state",
    "dba_console.runbooks.values",
    "dba_console.runbooks.walk",
    "dba_console.actions",
    "dba_console.keeper",
    "markdown_it",
    "psycopg.rows",
    "dba_console.clusters.node_polling",
    "dba_console.agent.cluster_service",
)


def loaded_with(statement: str) -> list[str]:
    """Which of MODULES an interpreter of its own has loaded after the statement."""
    code = f"import sys; {statement}; print(*[name for name in {MODULES!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


def test_an_agent_of_a_cluster_loads_neither_the_driver_nor_the_actions() -> None:
    loaded = loaded_with("import dba_console.agent.cluster_service")
    assert "dba_console.clusters.node_polling" in loaded
    assert {"dba_console.actions", "dba_console.runbooks.values", "psycopg.rows"}.isdisjoint(loaded)


def test_an_agent_loads_the_run_modules_with_its_first_run() -> None:
    assert (
        loaded_with(
            "import dba_console.agent.agent_process, dba_console.agent.__main__, dba_console.recording.recorder"
        )
        == []
    )
