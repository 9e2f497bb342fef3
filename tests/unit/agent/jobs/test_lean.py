"""An agent that watches no dump carries nothing of what looks at dumps: its memory is that of the host in trouble."""

from __future__ import annotations

import subprocess
import sys


def test_what_follows_jobs_is_loaded_with_the_first_job() -> None:
    script = "import dba_console.agent.agent_process, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rooms = ("dba_console.archives", "dba_console.probes.jobs", "dba_console.agent.jobs.job_observer")
    assert [name for name in done.stdout.splitlines() if name.startswith(rooms)] == []
