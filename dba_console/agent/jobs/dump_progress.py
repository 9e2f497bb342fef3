"""How far one dump or restore is: its plan, the ledger of its objects, and everything that is fed into it.

Its messages are heard where they can be read. Else objects are seen at work in its sessions and files, seen to be done
where a file is closed or the catalog has them, and where one thing is done after the other, all before the one at work
is done. No look passes over all objects.
"""

from __future__ import annotations

import posixpath
from collections import deque

from dba_console.agent.jobs.message_feed import MessageFeed
from dba_console.agent.jobs.object_activity import JobActivity, ObjectActivity, find_active_objects
from dba_console.agent.jobs.object_list import ObjectList
from dba_console.agent.jobs.observed_program import ObservedProgram
from dba_console.archives.dump_plan import DumpPlan
from dba_console.archives.errors import final_error
from dba_console.archives.object_progress import ObjectKey, ObjectProgress
from dba_console.archives.objects import DumpObject
from dba_console.probes.jobs.dump_growth import DumpOutput, OutputGrowth
from dba_console.probes.jobs.running_programs import RunningProgram
from dba_console.probes.jobs.stderr_reader import NewMessages
from dba_console.sanitize import clean

DUMPS = frozenset({"pg_dump"})
RESTORES = frozenset({"pg_restore", "psql"})
LAST_DONE = 30
_NOT_ENGLISH = "its messages are not in English: neither its objects nor its errors are told by them"


class DumpProgress:
    """Used by one thread."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self.ledger = self._ledger(None)
        self.object_list = ObjectList(program)
        self.message_feed = MessageFeed()
        self.active_objects: dict[int, ObjectActivity] = {}
        """Of the newest look, by dump id."""
        self.done_last: deque[int] = deque(maxlen=LAST_DONE)
        """Those seen to end last."""
        self.growth: OutputGrowth | None = None
        self._output = _make_output(program)
        self._entries_started = 0
        """Entries of the plan, in its order, that are known to be begun."""
        self._schema_done = False

    def observe(self, seen: ObservedProgram) -> bool:
        """Take a look in; True where there is a plan since now."""
        self._program = seen.program
        if planned := self.object_list.update(seen, heard=self.message_feed.is_complete):
            self._replan()
        self.message_feed.feed(seen.words, self.ledger, wait=self.object_list.pending)
        self._observe_sessions(seen)
        self._observe_output_files(seen)
        self._observe_catalog(seen)
        self.done_last.extend(
            item.entry.dump_id
            for item in self.ledger.take_changed()
            if item.state == "done" and item.entry.phase != "schema"
        )
        return planned

    def end(self, wall_us: int, exit: int | None, words: NewMessages) -> None:
        """Its program is gone, with these last words."""
        self.message_feed.feed(words, self.ledger, wait=False)
        self.ledger.program_ended(wall_us, exit)

    def size_bytes(self, seen: ObservedProgram) -> float | None:
        """Of its data, or of the script that is read: what runs are told apart by."""
        if self.object_list.plan is not None:
            return self.ledger.sums("data").weight or None
        return float(sum(one.total for one in seen.flow.inputs)) or None

    @property
    def errors(self) -> int | None:
        """How many it told; None where its messages cannot be read, or not understood."""
        count = self.ledger.error_count
        return count if self.message_feed.can_be_read and (count or not self.message_feed.is_not_english) else None

    @property
    def last_error(self) -> str | None:
        last = final_error(self.ledger.errors)
        return None if last is None else clean(last.text)

    @property
    def sources(self) -> tuple[str, ...]:
        """What was read for it."""
        found = [self.object_list.source, self.message_feed.source]
        if any(sight.unit is not None and not sight.measured for sight in self.active_objects.values()):
            found.append("pg_stat_progress_copy")
        if self.growth is not None and self.growth.exists:
            found.append("growth of its output")
        return tuple(one for one in found if one is not None)

    @property
    def unknown_reasons(self) -> tuple[str, ...]:
        """What is not known of it and why."""
        told = [*self.object_list.unknown, self.message_feed.unknown]
        if self.message_feed.is_not_english:
            told.append(_NOT_ENGLISH)
        if self.growth is not None:
            told.append(self.growth.note)
            if self.growth.pending:
                told.append(f"{self.growth.pending} files of its output are not counted yet")
        return tuple(one for one in told if one is not None)

    def _replan(self) -> None:
        """The plan is there, or weighs something now: nothing that matters was fed before."""
        self.ledger = self._ledger(self.object_list.plan)
        self.active_objects, self._entries_started, self._schema_done = {}, 0, False

    def _ledger(self, plan: DumpPlan | None) -> ObjectProgress:
        ledger = ObjectProgress(plan, self._program.kind, self._program.arguments.jobs)
        ledger.began_us = self._program.started_us  # and not when it was first seen
        return ledger

    def _observe_sessions(self, seen: ObservedProgram) -> None:
        now_us = seen.question.wall_us
        world = JobActivity(seen.rows, seen.operations, seen.joined.worker, seen.flow.inputs)
        found: dict[int, ObjectActivity] = {}
        for sight in find_active_objects(world, self.object_list.index):
            key = _ledger_key(sight, planned=self.object_list.plan is not None)
            if key is None:
                continue
            since_us = sight.started_us if sight.started_us is not None and sight.started_us <= now_us else None
            item = self.ledger.observe_running(
                key, now_us, sight.done, sight.total, sight.unit, sight.pid, since_us=since_us, measured=sight.measured,
            )  # fmt: skip
            if item is not None and item.state == "running":
                found[item.entry.dump_id] = sight
        if not self.message_feed.reports_ends:
            for dump_id in self.active_objects.keys() - found.keys():
                self._mark_done(dump_id, now_us)
        self.active_objects = found
        if self.object_list.plan is not None:
            self._finish_dependencies(found)
            self._finish_earlier_entries(found)

    def _finish_dependencies(self, found: dict[int, ObjectActivity]) -> None:
        """What an index or key needs is there before it is begun."""
        if self.message_feed.is_complete or self._program.kind not in RESTORES:
            return
        for sight in found.values():
            for need in () if sight.entry is None else sight.entry.needs:
                if need not in found:
                    self._mark_done(need, None)

    def _finish_earlier_entries(self, found: dict[int, ObjectActivity]) -> None:
        """What comes before the data is done once data is at work; with one job, all before the object at work is."""
        index = self.object_list.index
        if index is None or self.message_feed.is_complete or not found:
            return
        entries = index.plan.entries
        self._end_schema()
        if (self._program.arguments.jobs or 1) > 1:
            return
        at = max((index.order[dump_id] for dump_id in found if dump_id in index.order), default=0)
        late = entries[at].phase == "rest"
        while self._entries_started < at:
            entry = entries[self._entries_started]
            if entry.dump_id not in found and (late or entry.phase != "rest"):
                self._mark_done(entry.dump_id, None)
            self._entries_started += 1

    def _end_schema(self) -> None:
        """Whatever comes before the data is there once data is at work."""
        if self._schema_done or self._program.kind not in RESTORES or self.object_list.plan is None:
            return
        self._schema_done = True
        for entry in self.object_list.plan.entries:
            if entry.phase == "schema":
                self.ledger.observe_finished(entry.dump_id)

    def _observe_output_files(self, seen: ObservedProgram) -> None:
        """Files of a directory dump: one that is open is at work, one that was closed is done."""
        if self._output is None:
            return
        told = self._program.unknown or seen.flow.unknown
        names = None if told else {posixpath.basename(one.path) for one in seen.flow.outputs}
        self.growth = grown = self._output.measure(names, self._program.arguments.jobs or 1)
        if self.object_list.plan is None or self._program.kind not in DUMPS:
            return
        now_us = seen.question.wall_us
        # One found in this very look is either done or just begun: the next look tells.
        begun = (file for file in grown.running if names is None or file.name in names)
        for file in (*begun, *grown.finished):
            item = self.ledger.objects().get(file.dump_id)
            if item is not None and item.state == "waiting":
                self.ledger.observe_running(file.dump_id, now_us, since_us=file.found_us or now_us)
        if not self.message_feed.reports_ends:
            for file in grown.finished:
                self._mark_done(file.dump_id, file.changed_us if file.found_us is not None else None)

    def _observe_catalog(self, seen: ObservedProgram) -> None:
        """What a restore has made: tables with rows, indexes and keys that are there."""
        if self._program.kind != "pg_restore" or self.object_list.plan is None or self.message_feed.is_complete:
            return
        for dump_id in self.object_list.created_objects(seen):
            self._end_schema()
            item = self.ledger.objects().get(dump_id)
            for one in (dump_id, *(() if item is None else item.entry.needs)):
                if one not in self.active_objects:
                    self._mark_done(one, None)

    def _mark_done(self, dump_id: int, at_us: int | None) -> None:
        item: DumpObject | None = self.ledger.objects().get(dump_id)
        if item is not None and item.state in ("waiting", "running"):
            self.ledger.observe_finished(dump_id, at_us)


def _ledger_key(sight: ObjectActivity, *, planned: bool) -> ObjectKey | None:
    """How the ledger calls it; None for what is not in the plan: a partition loaded through its root."""
    if sight.entry is not None:
        return sight.entry.dump_id
    named = sight.named
    return None if planned else (named.desc, named.schema, named.tag)


def _make_output(program: RunningProgram) -> DumpOutput | None:
    written = program.arguments.output
    path = None if written is None else program.absolute_path(written)
    return None if path is None or program.kind not in ("pg_dump", "pg_basebackup") else DumpOutput(path, program.root)
