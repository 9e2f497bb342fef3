"""What a demo leaves of itself: the processes that name its directory."""

from __future__ import annotations

from pathlib import Path


def mentioned_by(base: Path) -> list[str]:
    """The command lines of running processes that name a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if str(base).encode() in line:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found
