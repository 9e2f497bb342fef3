"""Nothing is left behind: a tiny process that outlives its parent just long enough to clean up.

The parent holds one end of a pipe. When it closes without a word, the parent died without cleaning up (`kill -9`, a
crash), and the guard stops the server of a data directory and removes what was temporary. It runs in a session of its
own, so no ctrl-C and no lost terminal reaches it. It costs one sleeping shell.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from dba_console.demo.account import clean_environment

# $1: data directory, the rest: directories to remove. The process is looked at before it is killed: a process id in a
# left-over postmaster.pid may belong to somebody else by now. SIGCONT: it may have been stopped.
_SCRIPT = r"""
trap '' HUP INT TERM
read -r word && [ "$word" = done ] && exit 0
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
ours() { [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$1" ]; }
if ours "$1"; then
    kill -CONT "$pid"; kill -QUIT "$pid"
    n=0
    while ours "$1" && [ $n -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
    ours "$1" && kill -KILL "$pid"
fi
shift
[ $# -eq 0 ] || rm -rf -- "$@"
"""


class Guard:
    """Watches this process until `release`. If this process dies first, `remove` is deleted with all that is in it."""

    def __init__(self, data_directory: Path, remove: Sequence[Path] = ()) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "dba-console-guard", str(data_directory), *map(str, remove)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=clean_environment(),
        )

    def release(self) -> None:
        """All is cleaned up: the guard may go. Harmless when called twice."""
        try:
            self._process.communicate(b"done\n", timeout=5)
        except (ValueError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
