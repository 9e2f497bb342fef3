"""The cleanup process: a shell that outlives its parent to clean up after it.

The parent holds one end of a pipe. If it closes without a message, the parent died without cleaning up (`kill -9`, a
crash), and the cleanup process stops servers and removes temporary directories. It has its own session, so ctrl-C and a
lost terminal do not reach it. It costs one sleeping shell.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from dba_console.demo.server_account import clean_environment

# $1: number of pid files that follow; the rest: directories to remove. Before a process is killed it is checked: the
# pid in a left-over pid file may belong to another program by now. SIGCONT: it may have been stopped.
_SCRIPT = r"""
trap '' HUP INT TERM
read -r word && [ "$word" = done ] && exit 0
ours() {
    [ -n "$pid" ] || return 1
    [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$1" ] || grep -qF -- "$1/" "/proc/$pid/cmdline" 2>/dev/null
}
stop() {
    pid=$(head -n 1 "$1" 2>/dev/null) directory=${1%/*} n=0
    ours "$directory" || return
    kill -CONT "$pid"; kill -QUIT "$pid"
    while ours "$directory" && [ $n -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
    ours "$directory" && kill -KILL "$pid"
}
left=$1
shift
while [ "$left" -gt 0 ]; do
    stop "$1" &
    shift
    left=$((left - 1))
done
wait
[ $# -eq 0 ] || rm -rf -- "$@"
"""


class CleanupProcess:
    """Runs until `release`. If this process dies first, the servers of `pid_files` are stopped, and `remove` is deleted
    with its content. A pid file is in its server's directory."""

    def __init__(self, pid_files: Sequence[Path], remove: Sequence[Path] = ()) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "dba-console-guard", str(len(pid_files)), *map(str, [*pid_files, *remove])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=clean_environment(),
        )

    def release(self) -> None:
        """End the cleanup process after a normal cleanup. May be called twice."""
        try:
            self._process.communicate(b"done\n", timeout=5)
        except (ValueError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
