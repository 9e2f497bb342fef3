"""What the processes of this host show: their arguments and environments, read while others start and end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def contents(*files: str) -> Iterator[tuple[int, bytes]]:
    """Process id and content of the named files below /proc, of every process; those that ended are left out.

    Names come from one listing: a pattern of paths asks again for each and fails where one has just ended.
    """
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        for file in files:
            try:
                yield int(entry), Path("/proc", entry, file).read_bytes()
            except OSError:
                continue  # ended meanwhile, or another user's


def mentioned_by(base: Path) -> list[str]:
    """The command lines of running processes that name a directory."""
    lines = [line for _pid, line in contents("cmdline") if os.fsencode(base) in line]
    return [line.replace(b"\0", b" ").decode(errors="replace") for line in lines]


@contextmanager
def shown_by_processes(words: Iterable[str]) -> Iterator[set[str]]:
    """Which of the words stood in the arguments or the environment of a process while the block lasted."""
    found: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            for _pid, content in contents("cmdline", "environ"):
                found.update(word for word in words if word.encode() in content)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
