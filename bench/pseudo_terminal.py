"""Our own pseudo-terminal, for what tmux would hide: the arrival of a byte, and a terminal that is not read."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time


def spawn(command: list[str]) -> tuple[int, int]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    return pid, terminal


def wait_for(terminal: int, text: bytes) -> None:
    seen = b""
    end = time.monotonic() + 30
    while text not in seen:
        if time.monotonic() > end:
            raise TimeoutError(f"{text!r} was not painted")
        if select.select([terminal], [], [], 1.0)[0]:
            seen = seen[-100_000:] + os.read(terminal, 65536)


def drain(terminal: int, quiet_s: float) -> None:
    """Read until nothing is painted for `quiet_s` seconds, at most 3 s."""
    end = time.monotonic() + 3
    while time.monotonic() < end and select.select([terminal], [], [], quiet_s)[0]:
        try:
            if not os.read(terminal, 65536):
                return
        except OSError:
            return
