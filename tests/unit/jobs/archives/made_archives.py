"""Archives' tables of contents written by hand, byte by byte, and restores that never ran."""

from __future__ import annotations

import heapq
import io
import random
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_durations import PreviousRun
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.progress_forecast import ForecastState, ProgressForecast, forecast
from dba_console.jobs.archives.toc import DumpEntry, Phase

MB = 1 << 20
BEGIN_US = 1_800_000_000_000_000


def number(value: int, size: int = 4) -> bytes:
    return (b"\1" if value < 0 else b"\0") + abs(value).to_bytes(size, "little")


def text(value: str | None) -> bytes:
    if value is None:
        return number(-1)
    raw = value.encode()
    return number(len(raw)) + raw


def head(entries: int, *, minor: int = 16, form: int = 3, database: str | None = "shop") -> bytes:
    """Of an archive made on 2026-11-22 at 03:04:05; `form` 3 is what a directory's toc.dat says of itself."""
    method = b"\1" if minor >= 15 else number(-1)
    when = b"".join(number(part) for part in (5, 4, 3, 22, 10, 126, 0))
    versions = text("18.4 (Debian 18.4-1)") + text("18.4")
    return b"PGDMP" + bytes([1, minor, 0, 4, 8, form]) + method + when + text(database) + versions + number(entries)


def entry(
    dump_id: int,
    desc: str,
    tag: str,
    *,
    section: int = 4,
    needs: Sequence[int] = (),
    file: str = "",
    offset: int | None = None,
    minor: int = 16,
    form: int = 3,
    schema: str | None = "public",
    statement: str = "CREATE",
) -> bytes:
    parts = [number(dump_id), number(1 if file or offset is not None else 0), text("1259"), text(str(16384 + dump_id))]
    parts += [text(tag), text(desc), number(section), text(statement), text("DROP"), text(None), text(schema), text("")]
    parts += [text("heap")] if minor >= 14 else []
    parts += [number(114)] if minor >= 16 else []
    parts += [text("postgres"), text("false"), *(text(str(need)) for need in needs), text(None)]
    if form == 1:
        parts.append(bytes([1 if offset is None else 2]) + (offset or 0).to_bytes(8, "little"))
    else:
        parts.append(text(file))
    return b"".join(parts)


def archive(*entries: bytes, minor: int = 16, form: int = 3) -> io.BytesIO:
    return io.BytesIO(head(len(entries), minor=minor, form=form) + b"".join(entries))


def _made(dump_id: int, desc: str, phase: Phase, tag: str, size: int, table: int, *needs: int) -> DumpEntry:
    return DumpEntry(
        dump_id=dump_id,
        desc=desc,
        phase=phase,
        schema="public",
        tag=tag,
        weight=float(size),
        table=table,
        needs=needs,
    )


def plan_of_sizes(sizes: Sequence[int], *, keys: bool = True) -> DumpPlan:
    """A table of each size, with a primary key, two indexes and a foreign key to the table before it."""
    entries = []
    for nth, size in enumerate(sizes):
        table, key = 1000 + nth, 20_000 + nth
        entries.append(_made(table, "TABLE DATA", "data", f"t{nth}", size, table))
        entries.append(_made(key, "CONSTRAINT", "indexes", f"t{nth} pk{nth}", size, table, table))
        for of in (0, 1):
            entries.append(_made(40_000 + 2 * nth + of, "INDEX", "indexes", f"ix{nth}_{of}", size, table, table))
        if nth and keys:
            needs = (table, table - 1, key - 1)
            entries.append(_made(60_000 + nth, "FK CONSTRAINT", "constraints", f"t{nth} fk{nth}", size, table, *needs))
    return DumpPlan(entries=tuple(entries), format="directory")


class ObjectCosts(Struct, frozen=True):
    """The real cost of objects: seconds for each, and MB/s by kind."""

    each_s: float = 0.02
    data: float = 25.0
    key: float = 70.0
    index: float = 50.0
    fk: float = 110.0
    noise: float = 0.1

    def seconds(self, one: DumpEntry, rng: random.Random) -> float:
        rates = {"TABLE DATA": self.data, "CONSTRAINT": self.key, "INDEX": self.index, "FK CONSTRAINT": self.fk}
        whole = self.each_s + (one.weight or 0.0) / MB / rates[one.desc]
        return whole * rng.uniform(1 - self.noise, 1 + self.noise)


class ForecastRun(Struct):
    """The forecasts made during a simulated restore, and when it ended."""

    progress: ObjectProgress
    seconds: float
    forecasts: list[tuple[float, ProgressForecast]]

    def second_half(self) -> list[tuple[float, ProgressForecast]]:
        return [(at, predicted) for at, predicted in self.forecasts if at > self.seconds / 2]

    def errors(self) -> list[float]:
        """Return the error of each ETA of the second half, as a fraction of the duration."""
        predicted = [(at, one.eta_s) for at, one in self.second_half() if one.eta_s is not None]
        return [abs(at + eta - self.seconds) / self.seconds for at, eta in predicted]


class SimulatedRestore:
    """A restore simulated in the order of pg_restore -j, with a forecast at intervals."""

    def __init__(
        self, plan: DumpPlan, jobs: int, *, costs: ObjectCosts | None = None, seed: int = 1, dumps: bool = False
    ) -> None:
        self._program = "pg_dump" if dumps else "pg_restore"
        self._entries = {one.dump_id: one for one in plan.entries if not dumps or one.phase == "data"}
        rng, costs = random.Random(seed), costs or ObjectCosts()
        self._takes = {dump_id: costs.seconds(one, rng) for dump_id, one in self._entries.items()}
        self._jobs = jobs
        self._waiting = sorted(self._entries, key=lambda dump_id: (-(self._entries[dump_id].weight or 0.0), dump_id))
        self._busy: list[tuple[float, int]] = []
        self._done: set[int] = set()
        self.progress = ObjectProgress(plan, self._program, jobs)

    def run(self, *, every_s: float = 2.0, before: PreviousRun | None = None, shares: bool = True) -> ForecastRun:
        now, look, memory, looks = 0.0, every_s, ForecastState(), []
        while self._waiting or self._busy:
            for dump_id in self._startable():
                heapq.heappush(self._busy, (now + self._takes[dump_id], dump_id))
                self._add_line(now, dump_id, begins=True)
            while look < self._busy[0][0]:
                if shares:
                    self._observe(look)
                predicted = forecast(self.progress, at(look), jobs=self._jobs, state=memory, previous=before)
                looks.append((look, predicted))
                look += every_s
            now, dump_id = heapq.heappop(self._busy)
            self._done.add(dump_id)
            self._add_line(now, dump_id, begins=False)
        self.progress.program_ended(at(now), 0)
        return ForecastRun(self.progress, now, looks)

    def _startable(self) -> Iterator[int]:
        for dump_id in list(self._waiting):
            if len(self._busy) >= self._jobs:
                return
            one = self._entries[dump_id]
            if all(need in self._done for need in one.needs if need in self._entries) and not self._locked_out(one):
                self._waiting.remove(dump_id)
                yield dump_id

    def _locked_out(self, one: DumpEntry) -> bool:
        """A key or constraint works at its tables alone: its own, and the one it refers to."""
        others = [self._entries[dump_id] for _, dump_id in self._busy]
        return any(
            self._tables(one) & self._tables(other) and ("CONSTRAINT" in other.desc or "CONSTRAINT" in one.desc)
            for other in others
        )

    def _tables(self, one: DumpEntry) -> set[int | None]:
        return {one.table} | {need for need in one.needs if need in self._entries and need < 20_000}

    def _add_line(self, now: float, dump_id: int, *, begins: bool) -> None:
        one = self._entries[dump_id]
        if self._program == "pg_dump":
            message = f'dumping contents of table "public.{one.tag}"'
        elif self._jobs > 1:
            message = f"launching item {dump_id} {one.desc} {one.tag}"
        elif one.desc == "TABLE DATA":
            message = f'processing data for table "public.{one.tag}"'
        else:
            message = f'creating {one.desc} "public.{one.tag}"'
        if not begins:
            message = f"finished item {dump_id} {one.desc} {one.tag}"
        if begins or self._jobs > 1:
            self.progress.add_line(at(now), f"{self._program}: {message}")

    def _observe(self, now: float) -> None:
        for ends, dump_id in self._busy:
            one = self._entries[dump_id]
            if one.phase == "data" and one.weight is not None:
                begun = ends - self._takes[dump_id]
                done = one.weight * (now - begun) / self._takes[dump_id]
                self.progress.observe_running(dump_id, at(now), done=done, total=one.weight, unit="bytes")


def at(seconds: float) -> int:
    return BEGIN_US + round(seconds * 1e6)
