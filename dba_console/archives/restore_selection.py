"""The part of an archive a pg_restore was asked for: by list, by section, data or definitions alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from dba_console.archives.dump_plan import DumpEntry, DumpPlan

_LINE = re.compile(r"^\s*(\d+);", re.MULTILINE)
_IN_DATA = frozenset({"TABLE DATA", "BLOBS", "SEQUENCE SET", "BLOB METADATA"})
_ANY_TIME = frozenset({"STATISTICS DATA", "COMMENT", "ACL", "SECURITY LABEL"})
"""What goes with the object it is of, in whichever section that is."""


def read_list(text: str) -> tuple[int, ...]:
    """The dump ids of a list as `pg_restore -l` writes and `-L` reads it, in its order.

    >>> read_list(";\\n; Selected TOC Entries:\\n11; 0 16385 TABLE DATA public t app\\n;12; 0 1 INDEX - i app")
    (11,)
    """
    return tuple(int(found) for found in _LINE.findall(text))


def select_entries(
    plan: DumpPlan,
    *,
    ids: Collection[int] | None = None,
    sections: Iterable[str] = (),
    data_only: bool = False,
    schema_only: bool = False,
) -> DumpPlan:
    """The plan with only what is asked for; `sections` are pre-data, data, post-data, none of them meaning all."""
    wanted = frozenset(sections)
    wanted_ids = frozenset(ids) if ids is not None else None

    def is_selected(entry: DumpEntry) -> bool:
        if wanted_ids is not None and entry.dump_id not in wanted_ids:
            return False
        section = _section(entry)
        if data_only or schema_only:
            return (section == "data") == data_only
        return not wanted or section in wanted or entry.desc in _ANY_TIME

    return replace(plan, entries=tuple(entry for entry in plan.entries if is_selected(entry)))


def _section(entry: DumpEntry) -> str:
    if entry.desc in _IN_DATA:
        return "data"
    return "pre-data" if entry.phase == "schema" else "post-data"
