"""The peer: pg_activity from PyPI in its own virtual environment, run in a terminal as its users do."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

VERSION = "3.6.2"
_VENV = Path(__file__).parent.parent / ".cache" / "peer"


def pg_activity() -> str:
    """Return the path of the program; install it on first use."""
    program = _VENV / "bin" / "pg_activity"
    _VENV.mkdir(parents=True, exist_ok=True)
    with (_VENV / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another bench may be installing it
        if program.exists():
            return str(program)
        subprocess.run([sys.executable, "-m", "venv", str(_VENV)], check=True)
        subprocess.run(
            [str(_VENV / "bin" / "pip"), "install", "-q", f"pg_activity=={VERSION}", "psycopg[binary]"], check=True
        )
    return str(program)
