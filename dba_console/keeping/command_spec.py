"""What a keeper is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One execution of one command."""

    argv: tuple[str, ...]
    directory: str
    """Absolute, exists, 0700, of this execution alone: what the keeper writes goes here."""
    tag: str
    host: str
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """Added to a small inherited environment (`launch.INHERITED`). May hold secrets."""
    cwd: str | None = None
    """None: the root directory."""
    timeout_s: float | None = None
    """From the start; then the command is ended as by `stop`. None: no limit."""
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL of the command's process group."""
    head_bytes: int = 4 << 20
    tail_bytes: int = 4 << 20
    """Of the output, stamps included, so much of its beginning and of its end is kept (`rolling`)."""
    masks: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that must not appear in the log in any form `masking` knows."""
    stdin: str | None = field(default=None, repr=False)
    """Text for the command's standard input, never on a disk. None: it reads nothing."""

    def to_json(self, environment: dict[str, str]) -> bytes:
        """What the keeper reads; `environment` is all the command gets."""
        order = asdict(self)
        order["env"] = environment
        return json.dumps(order).encode()
