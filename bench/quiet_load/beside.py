"""Other work on the database host: builds, big files, programs that allocate and free memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time

from bench.quiet_load.place import QuietServer

_ALLOCATE = """
import sys, time
held = bytearray(b"x") * int(sys.argv[1])
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    for at in range(0, len(held), 4096):
        held[at] = 1
    time.sleep(0.5)
"""


def build(server: QuietServer, seconds: float) -> None:
    """Copy, read, compile and remove some thousand small files by short processes, like `make`."""
    with _directory(server) as tree:
        library = sysconfig.get_path("stdlib")
        some = "." if server.size > 0.1 else "./json ./email"
        copy = f'tar cf - -C "$0" --exclude=site-packages --exclude=__pycache__ {some} | tar xf - -C {tree}'
        server.host("sh", "-c", copy, library)
        server.host("sh", "-c", f"find {tree} -type f -print0 | head -z -n 1500 | xargs -0 -n 1 -P 2 wc -l")
        # The library has files that deliberately do not compile, for the tests of the compiler.
        server.host("sh", "-c", f'"$0" -m compileall -q -f -j 2 {tree} || true', sys.executable, timeout_s=600.0)


def big_file(server: QuietServer, seconds: float) -> None:
    """Write, read and remove a file of 2 GB: cache falls and free memory rises by as much, and nothing is wrong."""
    with _directory(server) as directory:
        path = f"{directory}/image"
        server.host("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={round(2048 * server.size)}", "conv=fsync")
        server.host("cat", path)


def _directory(server: QuietServer) -> tempfile.TemporaryDirectory[str]:
    """Return a directory of this activity alone: on a busy host the next one of its kind begins before it has ended."""
    return tempfile.TemporaryDirectory(prefix="beside-", dir=server.scratch)


def stopped_console(server: QuietServer, seconds: float) -> None:
    """Stop and continue the agent: a gap in the readings, from which nothing may be concluded."""
    if server.agent_pid is None:
        return
    os.kill(server.agent_pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(server.agent_pid, signal.SIGCONT)


def allocate_memory(server: QuietServer, seconds: float) -> None:
    """Allocate 3 GB of anonymous memory, use it and free it."""
    amount = round(3 * 2**30 * server.size)
    subprocess.run([sys.executable, "-c", _ALLOCATE, str(amount), str(seconds)], check=True)
