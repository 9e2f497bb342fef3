"""The peer: pg_activity from PyPI, in an environment of its own, run in a terminal as its users run it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

VERSION = "3.6.2"
_HOME = Path(__file__).parent.parent / ".cache" / "peer"


def pg_activity() -> str:
    """The program, installed on first use."""
    program = _HOME / "bin" / "pg_activity"
    _HOME.mkdir(parents=True, exist_ok=True)
    with (_HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another bench may install it at this moment
        if program.exists():
            return str(program)
        subprocess.run([sys.executable, "-m", "venv", str(_HOME)], check=True)
        subprocess.run(
            [str(_HOME / "bin" / "pip"), "install", "-q", f"pg_activity=={VERSION}", "psycopg[binary]"], check=True
        )
    return str(program)
