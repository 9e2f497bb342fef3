"""What operators said of findings, kept beside the agent's socket so that the next agent knows it too.

That directory is memory-backed, so writing there waits for no disk; it is gone with a reboot, which is news enough.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from dba_console.findings.quiet import Word

_DECODER = msgspec.json.Decoder(dict[str, dict[str, Word]])
SIZE_LIMIT = 1 << 20


def load_words(path: Path) -> dict[str, dict[str, Word]]:
    """What was said before; nothing where there is no such file or it cannot be read."""
    try:
        data = path.read_bytes()
        return _DECODER.decode(data) if len(data) <= SIZE_LIMIT else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def save_words(path: Path, words: dict[str, dict[str, Word]]) -> None:
    """Keep what was said, readable by its owner alone. A failure costs only that the next agent does not know it."""
    if not any(words.values()) and not path.exists():
        return
    new = path.with_suffix(".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(words))
        os.replace(new, path)
    except OSError:
        pass
