"""Plans by hand: equal tables with a key and an index each, in the archive's order."""

from __future__ import annotations

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import DumpEntry, Phase

MB = 1 << 20


PARTS: tuple[tuple[str, Phase], ...] = (
    ("TABLE", "schema"), ("TABLE DATA", "data"), ("CONSTRAINT", "indexes"), ("INDEX", "indexes"),
)  # fmt: skip


def restore_plan(tables: int, *, weight: float = MB) -> DumpPlan:
    """Ids: of table n (from 1) 10 n is its definition, + 1 its data, + 2 its key, + 3 its index; table 1 is twice as
    large as the others."""
    entries = [
        _entry(number, desc, phase, n, 2 * weight if n == 1 else weight)
        for number, (desc, phase) in enumerate(PARTS)
        for n in range(1, tables + 1)
    ]
    return DumpPlan(entries=tuple(entries), format="directory")


def _entry(number: int, desc: str, phase: Phase, n: int, weight: float) -> DumpEntry:
    data = 10 * n + 1
    return DumpEntry(
        dump_id=10 * n + number,
        desc=desc,
        phase=phase,
        schema="public",
        tag={"CONSTRAINT": f"t{n} t{n}_pkey", "INDEX": f"t{n}_i"}.get(desc, f"t{n}"),
        file=f"{data}.dat" if phase == "data" else None,
        weight=0.0 if phase == "schema" else weight,
        table=None if phase == "schema" else data,
        needs=(data,) if phase == "indexes" else (),
    )
