"""Safe start of our processes: nothing that other users can write runs with our rights.

An operator who starts the console as root may be in a directory that others can write, with another user's environment.
So our interpreters do not load modules from the current directory, and programs are not searched in directories whose
files others can replace.
"""

from __future__ import annotations

import os
import sys

from dba_console.core.paths import trust_problem

STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Directories always in the search path."""
_UNSAFE_PREFIXES = ("LD_", "PYTHON", "BASH_FUNC_")
_SAFE_VARIABLES = frozenset({"PYTHONFAULTHANDLER", "PYTHONUTF8"})
"""They do not load code."""


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this package: this interpreter, without the current directory (-P) and
    the user's own packages (-s)."""
    return [sys.executable, "-P", "-s", "-m", module]


def sanitize_environment() -> None:
    """Remove variables that could run others' code: once, before anything is started."""
    for name in [one for one in os.environ if one.startswith(_UNSAFE_PREFIXES) and one not in _SAFE_VARIABLES]:
        del os.environ[name]
    os.environ["PATH"] = trusted_search_path(os.environ.get("PATH", os.defpath))


def trusted_search_path(path: str) -> str:
    """Return the directories of a search path that only root and this user may write, then STANDARD_PATH."""
    kept = [one for one in path.split(":") if os.path.isdir(one) and os.path.isabs(one) and trust_problem(one) is None]
    return ":".join(dict.fromkeys([*kept, *STANDARD_PATH]))
