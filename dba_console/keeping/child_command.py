"""The command itself: started in a process group of its own, ended with all of that group, and what it cost."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import resource

_DEFAULT_SIGNALS = sorted(set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP})
"""Of signals that the keeper, Python or whoever started it ignores, a command knows nothing."""


class ChildCommand:
    """A running command. It stays a zombie until `reap`, so that neither its id nor its group is used again."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str | None, *, stdin: bool) -> None:
        """Raises OSError where it cannot be started. With `stdin` there is a pipe to it, else it reads nothing."""
        if cwd is not None:
            os.chdir(cwd)
        # The search for the program goes by the command's PATH, not by the keeper's.
        os.environ.clear()
        os.environ.update(env)
        out, err = os.pipe(), os.pipe()
        into = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                env,
                setpgroup=0,
                setsigmask=[],
                setsigdef=_DEFAULT_SIGNALS,
                file_actions=[(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate((into[0], out[1], err[1]))],
            )
        finally:
            for descriptor in (into[0], out[1], err[1]):
                os.close(descriptor)
            # A mount must not be busy for the keeper's sake.
            os.chdir("/")
        self.out, self.err, self.stdin = out[0], err[0], into[1]
        for descriptor in (self.out, self.err, self.stdin):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    def ended(self) -> bool:
        """Whether the command itself has ended, whatever it left behind in its group."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self) -> None:
        """SIGTERM to the group; also SIGCONT, for a stopped process takes no other signal but SIGKILL."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Gone, or all of it runs as somebody else (sudo): then only what it does with its closed pipes ends it.
            pass

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """The wait status and what it used, with its reaped children. Only once it has ended."""
        _, status, usage = os.wait4(self.pid, 0)
        return status, usage
