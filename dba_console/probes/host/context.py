"""What the agent knows of the server so far, as far as the host's probes need it.

Built anew by the agent for each tick and never changed: it crosses into the host's lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ELSEWHERE = "the server does not run on this host, so its kernel cannot be read from here: run the console there"


@dataclass(frozen=True)
class HostContext:
    """Where the watched server is on this host, or why that is not known.

    `paths` says what lies where as the server names it: data, wal, temp, archive, log, session, `tablespace:NAME`;
    relative ones are relative to the data directory. `active_pids` are the backends to read each second, others are
    read in turn. `watched` is False where the target is not this host: then nothing of this host is shown beside it,
    and `note` says why.
    """

    postmaster_pid: int | None = None
    data_directory: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    active_pids: frozenset[int] = frozenset()
    watched: bool = True
    note: str | None = None
