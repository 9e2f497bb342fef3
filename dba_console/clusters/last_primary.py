"""Last known position of a cluster's primary, with which a failover compares its target; and state files of clusters.

Mode 0600; the content is never trusted.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.core import paths
from dba_console.core.atomic_files import read_small, write_atomically
from dba_console.core.decoding import from_json

FORMAT = 1
_LIMIT = 1 << 20
T = TypeVar("T")


class LastPrimary(Struct, frozen=True, kw_only=True):
    """The primary at its last answer to this host."""

    cluster: str
    node: str
    at_us: int
    """Wall time in microseconds since 1970, by this host's clock."""
    lsn: str
    timeline: int | None = None
    system_identifier: str | None = None
    version: int = FORMAT
    data_directory: str | None = None
    """None, and an empty value below: not known yet. Later records of the same server keep what is known."""
    settings: dict[str, str] = {}
    """Its values of the settings that must not be lower on a standby."""
    last_archived: str | None = None
    """The last file that its archiver has archived."""


def load_last_primary(cluster: str) -> LastPrimary | None:
    """Return the record; None: missing or unreadable."""
    stored = load_file(state_file(cluster, "", "seen"), LastPrimary)
    return stored if stored is not None and (stored.version, stored.cluster) == (FORMAT, cluster) else None


def save_last_primary(primary: LastPrimary) -> None:
    """Replace the record, unless the stored one has a newer timeline: an old primary may have been started again.

    Not synced, because it is written often. Raises OSError or ConsoleError.
    """
    previous = load_last_primary(primary.cluster)
    same = previous is not None and previous.system_identifier == primary.system_identifier
    if previous is not None and same and (previous.timeline or 0) > (primary.timeline or 0):
        return
    if previous is not None and same and previous.node == primary.node:
        primary = replace(
            primary,
            data_directory=primary.data_directory or previous.data_directory,
            settings=primary.settings or previous.settings,
            last_archived=primary.last_archived or previous.last_archived,
        )
    save_file(state_file(primary.cluster, "", "seen"), primary, synced=False)


def state_file(*key: str) -> Path:
    """Return a path in the state directory; names of clusters and nodes need not be valid file names."""
    digest = hashlib.sha256("\0".join(key).encode(errors="surrogateescape")).hexdigest()[:16]
    return paths.state_dir() / "clusters" / f"{digest}.json"


def load_file(path: Path, kind: type[T]) -> T | None:
    """Return the content of the file; None: missing or damaged."""
    try:
        return from_json(read_small(path, _LIMIT), kind)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def save_file(path: Path, record: Struct, *, synced: bool = True) -> None:
    """Write it atomically. Raises OSError or ConsoleError."""
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    write_atomically(str(path.parent), path.name, msgspec.json.encode(record), synced=synced)
