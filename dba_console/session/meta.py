"""What a session says of itself: written once at the start, never a secret in it."""

from __future__ import annotations

import re
import secrets

from msgspec import Struct

from dba_console.clock import SYSTEM, Clock
from dba_console.redact import redact

FORMAT = 1
"""Version of the session format. A reader refuses a newer one; fields and tables may be added without raising it."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class SessionMeta(Struct, frozen=True, kw_only=True):
    """One run of an agent on one target. A run never appends to another's session; it says which one it continues."""

    id: str
    target: str
    """Name people read; no connection string."""
    target_key: str
    host: str
    """Host the agent ran on: the name in `session.log`."""
    program_version: str
    boot_id: str = ""
    """The kernel's, so that monotonic times of two boots are never compared."""
    run: str = ""
    """`boot` of the samples: this run of the agent."""
    start_wall_us: int
    start_mono_us: int
    interval_us: int = 1_000_000
    continues: str | None = None
    """Id of the session of the same target that ended without being closed."""
    format: int = FORMAT


def new_meta(
    *,
    target: str,
    target_key: str,
    host: str,
    program_version: str,
    run: str = "",
    interval_us: int = 1_000_000,
    continues: str | None = None,
    clock: Clock = SYSTEM,
) -> SessionMeta:
    """The meta of a session that begins now."""
    return SessionMeta(
        id=secrets.token_hex(4),
        target=redact(target),
        target_key=target_key,
        host=host_word(host),
        program_version=program_version,
        boot_id=_boot_id(),
        run=run,
        start_wall_us=clock.wall_us(),
        start_mono_us=clock.mono_us(),
        interval_us=interval_us,
        continues=continues,
    )


def host_word(host: str) -> str:
    """The host as one word for names and log lines: cut at the first dot, nothing but letters, digits, `-` and `_`.

    >>> host_word("db2.example.org"), host_word("../x y"), host_word("")
    ('db2', 'x-y', 'localhost')
    """
    first = host.strip("./ ").split(".", 1)[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")[:63] or "localhost"


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
