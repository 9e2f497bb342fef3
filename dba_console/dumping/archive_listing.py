"""What an archive holds, and whether all of it that is named is there. Reads the table of contents, and looks."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from dba_console.archives.archive_file import open_archive
from dba_console.archives.critical_path import critical_path
from dba_console.archives.dump_plan import PHASES, DumpPlan
from dba_console.dumping.directory_files import check_directory, entry_name
from dba_console.sanitize import clean
from dba_console.units import human_bytes

MAX_TABLES = 20
"""Tables listed."""
_BUILT_IN = ("plpgsql",)


class ArchiveListing(Struct, frozen=True, kw_only=True):
    """An archive. Texts are harmless; None: the archive does not tell."""

    path: str
    format: str | None
    compression: str | None
    database: str | None
    server_version: str | None
    dump_version: str | None
    created: str | None
    entries: int
    phases: dict[str, int]
    """Objects of each."""
    data_bytes: int | None
    """Of the data in the archive."""
    tables: int
    biggest: tuple[tuple[str, float | None], ...]
    """Tables with the bytes of their data in it, biggest first."""
    extensions: tuple[str, ...]
    owners: tuple[str, ...]
    critical: tuple[str, ...]
    """The chain that decides how long a restore takes at least: a table, its indexes, its keys."""
    problems: tuple[str, ...]
    """What it names and does not have, and what it has and does not name."""


def read_listing(path: Path) -> ArchiveListing:
    """Raises ArchiveError where there is no archive, or none that can be read."""
    plan = open_archive(path)
    data = [entry for entry in plan.entries if entry.desc == "TABLE DATA"]
    known = [entry.weight for entry in plan.entries if entry.phase == "data" and entry.weight is not None]
    biggest = sorted(data, key=lambda entry: -(entry.weight or 0))[:MAX_TABLES]
    counts = Counter(entry.phase for entry in plan.entries)
    return ArchiveListing(
        path=str(path), format=plan.format, compression=plan.compression, database=plan.database,
        server_version=plan.server_version, dump_version=plan.dump_version, created=_created_text(plan),
        entries=len(plan.entries), phases={phase: counts[phase] for phase in PHASES if counts[phase]},
        data_bytes=int(sum(known)) if known else None, tables=len(data),
        biggest=tuple((entry_name(entry), entry.weight) for entry in biggest),
        extensions=_extensions(plan),
        owners=tuple(sorted({clean(one.owner) for one in plan.entries if one.owner})),
        critical=_critical_path_names(plan), problems=find_problems(path, plan),
    )  # fmt: skip


def _extensions(plan: DumpPlan) -> tuple[str, ...]:
    return tuple(clean(one.tag) for one in plan.entries if one.desc == "EXTENSION" and one.tag not in _BUILT_IN)


def find_problems(path: Path, plan: DumpPlan) -> tuple[str, ...]:
    """What the plan names and the archive does not have, and what is there of another dump. Raises
    ArchiveError, OSError."""
    if plan.format == "directory":
        return check_directory(path, plan).problems
    if plan.format == "custom":
        size = os.stat(path).st_size
        return tuple(
            f"{entry_name(entry)}: its data begin behind the end of the file"
            for entry in plan.entries
            if entry.offset is not None and entry.offset >= size
        )
    return ()


def _created_text(plan: DumpPlan) -> str | None:
    if plan.created_us is None:
        return None
    return datetime.fromtimestamp(plan.created_us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def _critical_path_names(plan: DumpPlan) -> tuple[str, ...]:
    return tuple(f"{entry.desc} {entry_name(entry)}" for entry in critical_path(plan))


def listing_lines(found: ArchiveListing) -> list[str]:
    """It as lines, without the table of its biggest tables."""
    lines = [
        f"{found.path}: {found.format or '?'}, compressed by {found.compression or '?'}",
        f"database {clean(found.database or '?')}, server {found.server_version or '?'}, "
        f"pg_dump {found.dump_version or '?'}, {found.created or 'no time told'}",
    ]
    if found.format == "plain":
        lines.append("a script has no table of contents: what it holds is not known without running it")
    else:
        phases = ", ".join(f"{name} {count}" for name, count in found.phases.items())
        lines.append(f"{found.entries} objects: {phases or 'none'}")
        lines.append(f"{found.tables} tables with data, {human_bytes(found.data_bytes)} in the archive")
    if found.extensions:
        lines.append(f"extensions: {', '.join(found.extensions)}")
    if found.owners:
        lines.append(f"owners: {', '.join(found.owners)}")
    if found.critical:
        lines.append("critical path, estimated by sizes: " + " → ".join(found.critical))
    return [*lines, *(f"problem: {problem}" for problem in found.problems)]
