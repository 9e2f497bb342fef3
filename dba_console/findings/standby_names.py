"""Names of standbys that outlive their connections: another process id after a restart is still the same standby."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dba_console.samples import postgres
from dba_console.sanitize import clean

_TABLE_SYNC = re.compile(r"pg_\d+_sync_\d+_")
"""ReplicationSlotNameForTablesync() in tablesync.c: workers that copy one table and then end."""

StandbyName = tuple[str, str | None, int]
"""Application, address, and which of several that share both."""


def name_standbys(standbys: Iterable[postgres.Standby]) -> Iterator[tuple[StandbyName, postgres.Standby]]:
    """Standbys and subscribers that stream and replay, each under a name of its own that outlives its connection."""
    taken: dict[tuple[str, str | None], int] = {}
    for row in standbys:
        if row.state not in ("streaming", "catchup") or row.replay_lsn is None or _TABLE_SYNC.match(row.application):
            continue
        host = None if row.client is None else row.client.rpartition(":")[0] or row.client
        key = (row.application, host)
        taken[key] = taken.get(key, 0) + 1
        yield (*key, taken[key]), row


def logical_readers(slots: Iterable[postgres.Slot]) -> set[int]:
    """Processes that read logical slots: what follows them is a subscriber and no standby."""
    return {slot.active_pid for slot in slots if slot.kind == "logical" and slot.active_pid is not None}


def standby_subject(name: StandbyName) -> str:
    """The name as it stands in a sentence and in the id of a finding."""
    application, host, number = name
    text = clean(application) or "without a name"
    if application == "walreceiver" and host:
        text += f" at {clean(host)}"
    return text if number == 1 else f"{text} ({number})"
