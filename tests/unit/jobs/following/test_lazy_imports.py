"""An agent without a dump to observe has not loaded the modules for dumps, to save the memory of the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[4] / "dba_console" / "jobs"


def test_the_modules_that_follow_jobs_are_loaded_with_the_first_job() -> None:
    script = "import dba_console.agent.agent_process, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    at_start = {"job_detection", "object_durations"}
    late = [
        f"dba_console.jobs.{package}.{path.stem}"
        for package in ("archives", "following")
        for path in (PACKAGE / package).glob("[a-z]*.py")
        if path.stem not in at_start
    ]
    assert set(done.stdout.splitlines()).isdisjoint(late)
