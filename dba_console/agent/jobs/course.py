"""How far one dump or restore is: its plan, the ledger of its objects, and everything that is fed into it.

Its messages are heard where they can be read. Else objects are seen at work in its sessions and files, seen to be done
where a file is closed or the catalog has them, and where one thing is done after the other, all before the one at work
is done. No look passes over all objects.
"""

from __future__ import annotations

import posixpath
from collections import deque

from dba_console.agent.jobs.hearing import Hearing
from dba_console.agent.jobs.planned import Planned
from dba_console.agent.jobs.seen import Seen
from dba_console.agent.jobs.sight import Sight, World, sights
from dba_console.archives.entries import Plan
from dba_console.archives.items import Item
from dba_console.archives.ledger import Key, Ledger
from dba_console.archives.mistakes import last_of
from dba_console.harmless import clean
from dba_console.probes.jobs.log import Words
from dba_console.probes.jobs.output import Grown, Output
from dba_console.probes.jobs.programs import Program

DUMPS = frozenset({"pg_dump"})
RESTORES = frozenset({"pg_restore", "psql"})
LAST_DONE = 30
_FOREIGN = "its messages are not in English: neither its objects nor its errors are told by them"


class Course:
    """Used by one thread."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.ledger = self._ledger(None)
        self.planned = Planned(program)
        self.hearing = Hearing()
        self.sights: dict[int, Sight] = {}
        """Of the newest look, by dump id."""
        self.done_last: deque[int] = deque(maxlen=LAST_DONE)
        """Those seen to end last."""
        self.grown: Grown | None = None
        self._output = _output(program)
        self._reached = 0
        """Entries of the plan, in its order, that are known to be begun."""
        self._schema_done = False

    def see(self, seen: Seen) -> bool:
        """Take a look in; True where there is a plan since now."""
        self._program = seen.program
        if planned := self.planned.look(seen, heard=self.hearing.hears):
            self._replan()
        self.hearing.hear(seen.words, self.ledger, wait=self.planned.pending)
        self._see_sessions(seen)
        self._see_output(seen)
        self._see_catalog(seen)
        self.done_last.extend(
            item.entry.dump_id
            for item in self.ledger.changed()
            if item.state == "done" and item.entry.phase != "schema"
        )
        return planned

    def end(self, wall_us: int, exit: int | None, words: Words) -> None:
        """Its program is gone, with these last words."""
        self.hearing.hear(words, self.ledger, wait=False)
        self.ledger.ended(wall_us, exit)

    def size_bytes(self, seen: Seen) -> float | None:
        """Of its data, or of the script that is read: what runs are told apart by."""
        if self.planned.plan is not None:
            return self.ledger.sums("data").weight or None
        return float(sum(one.total for one in seen.flow.readings)) or None

    @property
    def errors(self) -> int | None:
        """How many it told; None where its messages cannot be read, or not understood."""
        count = self.ledger.error_count
        return count if self.hearing.can_be_read and (count or not self.hearing.foreign) else None

    @property
    def last_error(self) -> str | None:
        last = last_of(self.ledger.errors)
        return None if last is None else clean(last.text)

    @property
    def sources(self) -> tuple[str, ...]:
        """What was read for it."""
        found = [self.planned.source, self.hearing.source]
        if any(sight.unit is not None and not sight.measured for sight in self.sights.values()):
            found.append("pg_stat_progress_copy")
        if self.grown is not None and self.grown.exists:
            found.append("growth of its output")
        return tuple(one for one in found if one is not None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known of it and why."""
        told = [*self.planned.unknown, self.hearing.unknown]
        if self.hearing.foreign:
            told.append(_FOREIGN)
        if self.grown is not None:
            told.append(self.grown.note)
            if self.grown.behind:
                told.append(f"{self.grown.behind} files of its output are not counted yet")
        return tuple(one for one in told if one is not None)

    def _replan(self) -> None:
        """The plan is there, or weighs something now: nothing that matters was fed before."""
        self.ledger = self._ledger(self.planned.plan)
        self.sights, self._reached, self._schema_done = {}, 0, False

    def _ledger(self, plan: Plan | None) -> Ledger:
        ledger = Ledger(plan, self._program.kind, self._program.arguments.jobs)
        ledger.began_us = self._program.started_us  # and not when it was first seen
        return ledger

    def _see_sessions(self, seen: Seen) -> None:
        now_us = seen.question.wall_us
        world = World(seen.rows, seen.operations, seen.joined.worker, seen.flow.readings)
        found: dict[int, Sight] = {}
        for sight in sights(world, self.planned.index):
            key = _key(sight, planned=self.planned.plan is not None)
            if key is None:
                continue
            since_us = sight.started_us if sight.started_us is not None and sight.started_us <= now_us else None
            item = self.ledger.running(
                key, now_us, sight.done, sight.total, sight.unit, sight.pid, since_us=since_us, measured=sight.measured,
            )  # fmt: skip
            if item is not None and item.state == "running":
                found[item.entry.dump_id] = sight
        if not self.hearing.tells_ends:
            for dump_id in self.sights.keys() - found.keys():
                self._finished(dump_id, now_us)
        self.sights = found
        if self.planned.plan is not None:
            self._see_needs(found)
            self._see_order(found)

    def _see_needs(self, found: dict[int, Sight]) -> None:
        """What an index or key needs is there before it is begun."""
        if self.hearing.hears or self._program.kind not in RESTORES:
            return
        for sight in found.values():
            for need in () if sight.entry is None else sight.entry.needs:
                if need not in found:
                    self._finished(need, None)

    def _see_order(self, found: dict[int, Sight]) -> None:
        """What comes before the data is done once data is at work; with one job, all before the object at work is."""
        index = self.planned.index
        if index is None or self.hearing.hears or not found:
            return
        entries = index.plan.entries
        self._end_schema()
        if (self._program.arguments.jobs or 1) > 1:
            return
        at = max((index.order[dump_id] for dump_id in found if dump_id in index.order), default=0)
        late = entries[at].phase == "rest"
        while self._reached < at:
            entry = entries[self._reached]
            if entry.dump_id not in found and (late or entry.phase != "rest"):
                self._finished(entry.dump_id, None)
            self._reached += 1

    def _end_schema(self) -> None:
        """Whatever comes before the data is there once data is at work."""
        if self._schema_done or self._program.kind not in RESTORES or self.planned.plan is None:
            return
        self._schema_done = True
        for entry in self.planned.plan.entries:
            if entry.phase == "schema":
                self.ledger.finished(entry.dump_id)

    def _see_output(self, seen: Seen) -> None:
        """Files of a directory dump: one that is open is at work, one that was closed is done."""
        if self._output is None:
            return
        told = self._program.unknown or seen.flow.unknown
        names = None if told else {posixpath.basename(one.path) for one in seen.flow.writings}
        self.grown = grown = self._output.look(names, self._program.arguments.jobs or 1)
        if self.planned.plan is None or self._program.kind not in DUMPS:
            return
        now_us = seen.question.wall_us
        # One found in this very look is either done or just begun: the next look tells.
        begun = (file for file in grown.running if names is None or file.name in names)
        for file in (*begun, *grown.finished):
            item = self.ledger.items().get(file.dump_id)
            if item is not None and item.state == "waiting":
                self.ledger.running(file.dump_id, now_us, since_us=file.seen_us or now_us)
        if not self.hearing.tells_ends:
            for file in grown.finished:
                self._finished(file.dump_id, file.changed_us if file.seen_us is not None else None)

    def _see_catalog(self, seen: Seen) -> None:
        """What a restore has made: tables with rows, indexes and keys that are there."""
        if self._program.kind != "pg_restore" or self.planned.plan is None or self.hearing.hears:
            return
        for dump_id in self.planned.made(seen):
            self._end_schema()
            item = self.ledger.items().get(dump_id)
            for one in (dump_id, *(() if item is None else item.entry.needs)):
                if one not in self.sights:
                    self._finished(one, None)

    def _finished(self, dump_id: int, at_us: int | None) -> None:
        item: Item | None = self.ledger.items().get(dump_id)
        if item is not None and item.state in ("waiting", "running"):
            self.ledger.finished(dump_id, at_us)


def _key(sight: Sight, *, planned: bool) -> Key | None:
    """How the ledger calls it; None for what is not in the plan: a partition loaded through its root."""
    if sight.entry is not None:
        return sight.entry.dump_id
    named = sight.named
    return None if planned else (named.desc, named.schema, named.tag)


def _output(program: Program) -> Output | None:
    written = program.arguments.output
    path = None if written is None else program.path(written)
    return None if path is None or program.kind not in ("pg_dump", "pg_basebackup") else Output(path, program.root)
