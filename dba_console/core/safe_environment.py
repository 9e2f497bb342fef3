"""How our own processes start, and what programs are looked for in: nothing that others may write runs with our rights.

Whoever starts the console as root may stand in a directory that others may write, and bring an environment that was
made for another user. So no interpreter of ours looks for modules in the current directory, and no program is looked
for in a directory whose files somebody else may replace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from dba_console.core.paths import trust_problem

STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where programs are looked for in any case."""
_UNSAFE_PREFIXES = ("LD_", "PYTHON", "BASH_FUNC_")
_SAFE_VARIABLES = frozenset({"PYTHONFAULTHANDLER", "PYTHONUTF8"})
"""They load nothing."""


def python_command(module: str) -> list[str]:
    """The command that runs a module of this package: by this interpreter, without the current directory (-P) and
    the user's own packages (-s)."""
    return [sys.executable, "-P", "-s", "-m", module]


def sanitize_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take out of the environment by what others could have their code run: once, before anything is started."""
    for name in [one for one in environ if one.startswith(_UNSAFE_PREFIXES) and one not in _SAFE_VARIABLES]:
        del environ[name]
    environ["PATH"] = trusted_search_path(environ.get("PATH", os.defpath))


def trusted_search_path(path: str) -> str:
    """The directories of a search path that only root and this user may write, then the usual ones."""
    kept = [one for one in path.split(":") if os.path.isdir(one) and os.path.isabs(one) and trust_problem(one) is None]
    return ":".join(dict.fromkeys([*kept, *STANDARD_PATH]))
