"""The journal of a run: the intent of every change is on disk before the change.

A record is durable when `append` returns. If the disk is stalled or full, `append` raises, and the change must not be
executed; the operator may then continue with the journal in memory, which every view of the run shows. It returns to
disk automatically when the disk accepts writes again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from dba_console.core.atomic_files import sync_directory, write_atomically
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import ConsoleError, SessionError
from dba_console.core.paths import private_dir
from dba_console.recording import run_records
from dba_console.recording.append_file import AppendFile
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.layout import FileLock
from dba_console.recording.plan import JournalRecord, Plan
from dba_console.recording.run_paths import DOCUMENT, JOURNAL, LOCK, PLAN, RESERVE, STEPS, make_memory_directory
from dba_console.recording.run_reader import StoredRun
from dba_console.recording.run_records import JournalLine, RunAbout, TextMask
from dba_console.recording.store import explain
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.event import Event

RESERVE_BYTES = 64 << 10
"""Disk space released when the disk is full: a few hundred records, enough to end a run cleanly."""
FULL = (errno.ENOSPC, errno.EDQUOT)

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def holding_run(directory: Path) -> Iterator[FileLock]:
    """Lock the run; unlock it if the body fails, otherwise the caller owns it.

    Raises SessionError if another process has the lock, OSError.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    taken = f"another agent has the run {directory.name} open"
    lock = FileLock(descriptor, taken, "`dba-console attach` shows it")
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def hold_reserve(directory: Path) -> bool:
    """Reserve RESERVE_BYTES on the disk for the end of the run. Return False if there is not enough space."""
    path = directory / RESERVE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    except OSError:
        return False
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)
    return True


def give_reserve(directory: Path) -> bool:
    """Release the reserve. Return False if there was none."""
    try:
        (directory / RESERVE).unlink()
    except OSError:
        return False
    return True


T = TypeVar("T")

DEADLINE_S = 5.0
"""A write that takes longer means a stalled disk; the recording is reported as lagging at the same age."""
DISK_RETRY_US = 10_000_000
"""Pause between two attempts to return a journal from memory to disk."""


class JournalError(SessionError):
    """A record is not durable: the change it announces must not be executed."""


class JournalStalled(JournalError):
    """The disk timed out. The record may still be written; a retry does not write it twice."""


class JournalFull(JournalError):
    """The disk is full or refuses writes. The record is not in the journal."""


class RunJournal:
    """The journal of a run; use `create` or `reopen`. Only one thread at a time may append; any thread may read."""

    def __init__(
        self, directory: Path, file: AppendFile, lock: FileLock, lines: list[JournalLine], secrets: Sequence[str],
        clock: Clock, deadline_s: float, lane: Lane,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.run = directory.name
        self.in_memory = False
        self.trouble = ""
        """Problem of the journal, shown in every view of the run; empty if there is none."""
        self._file, self._lock, self._lines = file, lock, lines
        self._mask = TextMask(secrets)
        self._clock, self._deadline_us, self._lane = clock, int(deadline_s * 1e6), lane
        self._unconfirmed: tuple[JournalLine, PendingCall[None]] | None = None
        self._reserve_used = False
        self._disk_copy: PendingCall[tuple[AppendFile, int]] | None = None
        self._last_disk_copy_us = 0
        self._mutex = threading.Lock()

    @classmethod
    def create(
        cls, directory: Path, about: RunAbout, *, text: str, plan: Plan, secrets: Sequence[str] = (),
        clock: Clock = SYSTEM, deadline_s: float = DEADLINE_S,
    ) -> RunJournal:  # fmt: skip
        """Create the run's directory with its document, its plan and the first record, all durable.

        Raises JournalStalled or JournalFull on disk problems, SessionError if the run already exists.
        """
        document, plan_data = text.encode(), msgspec.json.format(msgspec.json.encode(plan))
        about = msgspec.structs.replace(
            about, run=directory.name, runbook_sha256=hashlib.sha256(document).hexdigest(),
            plan_sha256=hashlib.sha256(plan_data).hexdigest(),
        )  # fmt: skip
        mask = TextMask(secrets)
        begun = JournalRecord(
            kind=run_records.BEGAN, text=f"{about.mode} of {about.runbook} {about.run} on {about.target}",
            who=about.who or None, fields=msgspec.to_builtins(about), wall_us=clock.wall_us(), mono_us=clock.mono_us(),
        )  # fmt: skip
        line = run_records.chain(run_records.masked(begun, mask), ChainHead.of(directory.name))

        def make() -> tuple[AppendFile, FileLock]:
            private_dir(directory.parent)
            if directory.exists():
                raise SessionError(f"the run {directory.name} already exists")
            private_dir(directory)
            private_dir(directory / STEPS)
            with holding_run(directory) as lock:
                write_atomically(str(directory), DOCUMENT, document)
                write_atomically(str(directory), PLAN, plan_data)
                if not hold_reserve(directory):
                    raise OSError(FULL[0], "No space left on device")
                file = AppendFile.create(directory / JOURNAL, line.raw + b"\n")
                for parent in (directory, directory.parent, directory.parent.parent):
                    sync_directory(parent)
            return file, lock

        lane = Lane("run-journal", clock)
        file, lock = _opened(lane, make, int(deadline_s * 1e6), directory)
        return cls(directory, file, lock, [line], secrets, clock, deadline_s, lane)

    @classmethod
    def reopen(
        cls, run: StoredRun, *, secrets: Sequence[str] = (), who: str | None = None, clock: Clock = SYSTEM,
        deadline_s: float = DEADLINE_S,
    ) -> RunJournal:  # fmt: skip
        """Reopen the journal of an interrupted run. Raises SessionError if it has ended, is damaged or is open
        elsewhere, else as `append`.
        """
        directory = run.directory
        run.require_resumable()
        lines, head = list[JournalLine](), ChainHead.of(directory.name)
        for raw in run.lines:
            lines.append(run_records.check(raw.rstrip(b"\n"), head))
            head = lines[-1].head
        journal_directory = make_memory_directory(directory.name) if run.in_memory else directory

        def open_again() -> tuple[AppendFile, FileLock]:
            with holding_run(directory) as lock:
                hold_reserve(directory)
                file = AppendFile.open(journal_directory / JOURNAL)
                if not file.whole():
                    file.append(b"\n")
            return file, lock

        lane = Lane("run-journal", clock)
        file, lock = _opened(lane, open_again, int(deadline_s * 1e6), directory)
        made = cls(directory, file, lock, lines, secrets, clock, deadline_s, lane)
        if run.in_memory:
            made._mark_in_memory("it was started while the disk of the session did not accept writes")
        fields = {"torn": run.torn} if run.torn else {}
        try:
            made.append(JournalRecord(kind=run_records.REOPENED, text=f"journal of {directory.name} reopened",
            who=who,
                               fields=fields))  # fmt: skip
        except SessionError:
            made.close()
            raise
        return made

    @property
    def head(self) -> str:
        """Return the hash of the newest durable record."""
        return self._lines[-1].hash

    @property
    def records(self) -> int:
        return len(self._lines)

    def append(self, record: JournalRecord, *, ends: bool = False) -> JournalRecord:
        """Make the record durable; return it as written: masked, with its times. On a full disk an intent may use the
        reserve only if it `ends` the run or reverts something.

        Raises JournalStalled if the disk times out, JournalFull if it is full or refuses writes.
        """
        with self._mutex:
            record = run_records.masked(self._timed(record), self._mask)
            if (confirmed := self._resolve_unconfirmed()) is not None and run_records.same(confirmed.record, record):
                return confirmed.record
            if self.in_memory:
                self._try_return_to_disk()
            line = run_records.chain(record, self._lines[-1].head)
            self._write(line, reserved=ends or record.kind != "block.intent")
            return line.record

    def event(self, tag: str) -> Event:
        """Return the newest durable record as an event of the session."""
        return run_records.event_of(self._lines[-1], self.run, tag)

    def fall_back(self) -> None:
        """Continue in memory-backed storage with a copy of the journal. Only after the operator confirmed it.

        Raises JournalFull if memory does not accept it either.
        """
        with self._mutex:
            if self.in_memory:
                return
            why = self.trouble or "the disk of the session does not accept writes"
            self._resolve_unconfirmed(wait=False)
            copy = b"".join(line.raw + b"\n" for line in self._lines)
            try:
                journal_directory = make_memory_directory(self.run)
                file = AppendFile.create(journal_directory / JOURNAL, copy)
            except (OSError, ConsoleError) as error:
                raise JournalFull(f"cannot continue the journal in memory either: {error}") from error
            # The old file stays on the disk; it is replaced when the journal returns.
            self._unconfirmed = None
            self._lane.abandon()
            self._file = file
            self._mark_in_memory(why)
            self._last_disk_copy_us = self._clock.mono_us()
            self._write(
                self._own(
                    run_records.FALLBACK, f"the journal continues in memory: {why}", {"place": str(journal_directory)}
                )
            )

    def keep_secret(self, secrets: Sequence[str]) -> None:
        """Set all values that must not appear in records from now on, after one more was entered."""
        with self._mutex:
            self._mask = TextMask(secrets)

    def try_return_to_disk(self) -> None:
        """Return the journal from memory to disk if the disk accepts writes again. Does not block; called regularly."""
        with self._mutex:
            if self.in_memory:
                self._try_return_to_disk()

    def close(self) -> None:
        """Close and unlock the run; a finished one releases its reserve and returns to disk if possible."""
        with self._mutex:
            if self.in_memory:
                self._try_return_to_disk(wait=True)
            ended = any(line.record.kind == run_records.ENDED for line in self._lines)

            def let_go() -> None:
                self._file.close()
                if ended:
                    give_reserve(self.directory)

            with contextlib.suppress(LaneTimeout, OSError):
                self._lane.call(let_go, self._deadline_us / 1e6)
            # Not in the lane: a late close would close a descriptor number that is already reused.
            self._lock.release()
            self._lane.close()

    def _timed(self, record: JournalRecord) -> JournalRecord:
        return msgspec.structs.replace(
            record,
            wall_us=record.wall_us or self._clock.wall_us(),
            mono_us=record.mono_us or self._clock.mono_us(),
        )

    def _own(self, kind: str, text: str, fields: dict[str, object]) -> JournalLine:
        record = run_records.masked(self._timed(JournalRecord(kind=kind, text=text, fields=fields)), self._mask)
        return run_records.chain(record, self._lines[-1].head)

    def _write(self, line: JournalLine, *, reserved: bool = True) -> None:
        if self._reserve_used and not self.in_memory and not reserved and not self._refill_reserve():
            raise self._full()
        try:
            self._try(line)
        except OSError as error:
            if error.errno not in FULL or self.in_memory or not reserved:
                raise self._refused(error) from error
            # The reserve is for results and reverts, not for new changes.
            self._reserve_used = True
            try:
                self._in_time(lambda: give_reserve(self.directory))
                self._try(line)
            except OSError as again:
                raise self._refused(again) from again
        if not self.in_memory and not self._reserve_used:
            self.trouble = ""

    def _try(self, line: JournalLine) -> None:
        """Raises OSError, JournalStalled."""
        file, data = self._file, line.raw + b"\n"
        try:
            pending = self._lane.start(lambda: file.append(data))
        except LaneTimeout:
            raise self._stalled() from None
        if not pending.ready(self._clock.mono_us() + self._deadline_us):
            self._unconfirmed = (line, pending)
            raise self._stalled()
        pending.result(self._clock.mono_us())
        self._lines.append(line)

    def _resolve_unconfirmed(self, wait: bool = True) -> JournalLine | None:
        """Return the line of a record that timed out, if it has been written meanwhile."""
        if self._unconfirmed is None:
            return None
        line, pending = self._unconfirmed
        if not pending.ready(self._clock.mono_us() + (self._deadline_us if wait else 0)):
            if wait:
                raise self._stalled()
            return None
        self._unconfirmed = None
        try:
            pending.result(self._clock.mono_us())
        except OSError:
            return None
        self._lines.append(line)
        return line

    def _refill_reserve(self) -> bool:
        """Return whether the disk has space again to end a run."""
        if self._in_time(lambda: hold_reserve(self.directory)):
            self._reserve_used = False
        return not self._reserve_used

    def _in_time(self, call: Callable[[], T]) -> T:
        try:
            return self._lane.call(call, self._deadline_us / 1e6)
        except LaneTimeout:
            raise self._stalled() from None

    def _stalled(self) -> JournalStalled:
        self.trouble = f"the disk of the session has not completed a write for {self._deadline_us / 1e6:.0f} s"
        return JournalStalled(f"not written: {self.trouble} ({self._file.path})")

    def _refused(self, error: OSError) -> JournalFull:
        if error.errno in FULL:
            return self._full()
        self.trouble = explain(error, self._file.path.parent)
        return JournalFull(f"not written: {self.trouble}")

    def _full(self) -> JournalFull:
        self.trouble = f"the disk of the session is full ({self._file.path.parent})"
        return JournalFull(f"not written: {self.trouble}", hint="free space, then try again")

    def _mark_in_memory(self, why: str) -> None:
        self.in_memory = True
        self.trouble = f"in memory, lost with a reboot: {why}"

    def _try_return_to_disk(self, wait: bool = False) -> None:
        """Try regularly to return to disk; nothing waits for an attempt that hangs."""
        now = self._clock.mono_us()
        if self._disk_copy is None and (wait or now - self._last_disk_copy_us >= DISK_RETRY_US):
            self._last_disk_copy_us = now
            copy, count = b"".join(line.raw + b"\n" for line in self._lines), len(self._lines)
            lane = Lane("run-journal-home", self._clock)

            def copy_home() -> tuple[AppendFile, int]:
                write_atomically(str(self.directory), JOURNAL, copy)
                return AppendFile.open(self.directory / JOURNAL), count

            self._disk_copy = lane.start(copy_home)
        homing = self._disk_copy
        if homing is None or not homing.ready(now + (self._deadline_us if wait else 0)):
            return
        self._disk_copy = None
        try:
            file, count = homing.result(now)
            self._switch_to_disk(file, count)
        except (OSError, LaneTimeout):
            return  # retried later; meanwhile the trouble is shown

    def _switch_to_disk(self, file: AppendFile, count: int) -> None:
        """Write the remaining lines, then the record of the return. Raises OSError, LaneTimeout."""
        record = self._own(run_records.RETURNED_TO_DISK, "the journal is back on the disk of the session", {})
        rest = b"".join(line.raw + b"\n" for line in [*self._lines[count:], record])
        lane = Lane("run-journal", self._clock)
        lane.call(lambda: file.append(rest), self._deadline_us / 1e6)
        self._lines.append(record)
        abroad, self._file, self._lane = self._file, file, lane
        self.in_memory, self.trouble, self._reserve_used = False, "", False
        abroad.close()
        shutil.rmtree(abroad.path.parent, ignore_errors=True)
        with contextlib.suppress(OSError):
            abroad.path.parent.parent.rmdir()  # it was the last run there


def _opened(
    lane: Lane, call: Callable[[], tuple[AppendFile, FileLock]], deadline_us: int, directory: Path
) -> tuple[AppendFile, FileLock]:
    """Return the file and its lock, opened by `call` in the lane. On JournalStalled or JournalFull nothing stays open,
    even if the disk answers later.
    """
    given_up = threading.Event()

    def opening() -> tuple[AppendFile, FileLock]:
        file, lock = call()
        if given_up.is_set():
            file.close()
            lock.release()
        return file, lock

    try:
        return lane.call(opening, deadline_us / 1e6)
    except LaneTimeout:
        given_up.set()
        raise JournalStalled(
            f"the disk of the session has not answered for {deadline_us / 1e6:.0f} s ({directory})",
            hint="nothing was started; see the disks panel",
        ) from None
    except OSError as error:
        lane.close()
        raise JournalFull(explain(error, directory)) from error
    except SessionError:
        lane.close()
        raise
