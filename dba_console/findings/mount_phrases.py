"""File systems in the words of a sentence: which one, and what of PostgreSQL lies there."""

from __future__ import annotations

from dba_console.findings.rule_context import RuleContext
from dba_console.samples.host import Mount, Mounts
from dba_console.sanitize import clean

_NAMES = {"data": "data", "wal": "WAL", "temp": "temporary files", "session": "recordings"}
_SERVER = ("data", "wal", "temp")


def mounts_of(s: RuleContext) -> list[Mount]:
    """File systems on which something of PostgreSQL or of the console lies; none where the server runs elsewhere."""
    mounts = s.facts.picture.now("host.mounts", Mounts)
    return [] if mounts is None else [mount for mount in mounts.mounts if mount.holds]


def holds_server(mount: Mount) -> bool:
    """Whether the server stops, or its queries fail, when this file system is full."""
    return any(held in _SERVER or held.startswith("tablespace:") for held in mount.holds)


def mount_text(mount: Mount) -> str:
    """The mount with what lies there: `/srv/pg (data, WAL)`."""
    held = [_NAMES.get(name, name.replace(":", " ", 1)) for name in mount.holds]
    if "data" in held and "temporary files" in held:
        held.remove("temporary files")  # they lie in the data directory unless somebody moved them
    return f"{clean(mount.path)} ({', '.join(clean(name) for name in held)})"


def share_used(mount: Mount) -> float | None:
    """Used share in percent, as df says it: of what an unprivileged writer could ever have."""
    if mount.used is None or mount.available is None or mount.used + mount.available <= 0:
        return None
    return 100.0 * mount.used / (mount.used + mount.available)
