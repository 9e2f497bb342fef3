"""The journal of a run: no act without its intent on the disk first.

A record is durable when `append` returns. Where the disk takes too long or is full, that is raised, and nothing may be
done that was not written; the operator may then let the journal go on in memory, which is said in every view of the
run, and it comes home by itself when the disk takes it again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from dba_console.core.atomic_files import sync_directory, write_all
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import ConsoleError, SessionError
from dba_console.core.paths import private_dir
from dba_console.recording import run_records
from dba_console.recording.plan import JournalRecord, Plan
from dba_console.recording.run_paths import DOCUMENT, JOURNAL, LOCK, PLAN, RESERVE, STEPS, make_memory_directory
from dba_console.recording.run_reader import StoredRun
from dba_console.recording.run_records import JournalLine, RunAbout, TextMask
from dba_console.recording.store import explain
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.event import Event

# The file under a run's journal: a line is on the disk when `append` returns, or it is not there at all.

RESERVE_BYTES = 64 << 10
"""Given back when the disk is full: a few hundred records, enough to end a run in order."""
FULL = (errno.ENOSPC, errno.EDQUOT)

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class JournalFile:
    """Append-only. Every call may wait for the disk as long as the disk likes."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        """Bytes that are known to be whole lines on the disk."""
        self._spoiled = False

    @classmethod
    def create(cls, path: Path, data: bytes) -> JournalFile:
        """A file with these lines, durable under its name. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | _FLAGS, 0o600)
        made = cls(path, descriptor, 0)
        try:
            made.append(data)
        except OSError:
            made.close()
            raise
        return made

    @classmethod
    def open(cls, path: Path) -> JournalFile:
        """The file as it is, to go on behind its last byte. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
        return cls(path, descriptor, os.fstat(descriptor).st_size)

    def append(self, data: bytes) -> None:
        """Write and sync. Raises OSError, having taken back what was written of it."""
        if self._spoiled:
            self._take_back()
        self._spoiled = True
        try:
            if (written := os.write(self._descriptor, data)) < len(data):
                # A short write is what a disk does that has just become full; the next one says so.
                os.write(self._descriptor, data[written:])
            os.fdatasync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            if size != self._size + len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._take_back()
            raise
        self._size += len(data)
        self._spoiled = False

    def whole(self) -> bool:
        """Whether it ends with a line's end. Raises OSError."""
        return self._size == 0 or os.pread(self._descriptor, 1, self._size - 1) == b"\n"

    def _take_back(self) -> None:
        """Cut off half a line. Raises OSError where even that does not work: then nothing more is written."""
        os.ftruncate(self._descriptor, self._size)
        self._spoiled = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_run(directory: Path) -> int:
    """Hold the run: a descriptor whose lock the kernel lets go of when its holder dies.

    Raises SessionError where another holds it, OSError.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise SessionError(
            f"another agent has the run {directory.name} open", hint="`dba-console attach` shows it"
        ) from None
    return descriptor


@contextmanager
def holding_run(directory: Path) -> Iterator[int]:
    """The lock, let go of where what is done under it fails; else the caller's. Raises as `lock_run`."""
    lock = lock_run(directory)
    try:
        yield lock
    except BaseException:
        unlock_run(lock)
        raise


def unlock_run(lock: int) -> None:
    """Let go of a run."""
    try:
        os.close(lock)
    except OSError:
        pass  # the kernel has let go of it all the same


def write_durably(path: Path, data: bytes) -> None:
    """A file of its own, 0600, whole or not there. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def hold_reserve(directory: Path) -> bool:
    """Take RESERVE_BYTES of the disk for the end of the run. False where the disk does not give them."""
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
    """Give the reserve back. False where there was none."""
    try:
        (directory / RESERVE).unlink()
    except OSError:
        return False
    return True


T = TypeVar("T")

DEADLINE_S = 5.0
"""A disk that has not taken a line for so long is stalled: the recording is said to lag at the same age."""
DISK_RETRY_US = 10_000_000
"""Between two tries to bring a journal home from memory."""


class JournalError(SessionError):
    """A record could not be made durable: what it announces may not be done."""


class JournalStalled(JournalError):
    """The disk has not answered in time. The record may still reach it; written again, it is not written twice."""


class JournalFull(JournalError):
    """There is no room, or the disk refuses. The record is not in the journal."""


class RunJournal:
    """Use `create` or `reopen`. One thread at a time may append; any may ask."""

    def __init__(
        self, directory: Path, file: JournalFile, lock: int, lines: list[JournalLine], secrets: Sequence[str],
        clock: Clock, deadline_s: float, lane: Lane,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.run = directory.name
        self.in_memory = False
        self.trouble = ""
        """What is wrong with the journal, for everyone who looks at the run; empty where nothing is."""
        self._file, self._lock, self._lines = file, lock, lines
        self._mask = TextMask(secrets)
        self._clock, self._deadline_us, self._lane = clock, int(deadline_s * 1e6), lane
        self._unconfirmed: tuple[JournalLine, PendingCall[None]] | None = None
        self._reserve_used = False
        self._disk_copy: PendingCall[tuple[JournalFile, int]] | None = None
        self._last_disk_copy_us = 0
        self._mutex = threading.Lock()

    @classmethod
    def create(
        cls, directory: Path, about: RunAbout, *, text: str, plan: Plan, secrets: Sequence[str] = (),
        clock: Clock = SYSTEM, deadline_s: float = DEADLINE_S,
    ) -> RunJournal:  # fmt: skip
        """Make the run's directory with its document, its plan and the first record, all of it durable.

        Raises JournalStalled or JournalFull where the disk does not take it, SessionError where the place is taken.
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
        line = run_records.chain(run_records.masked(begun, mask), 1, run_records.first_hash(directory.name))

        def make() -> tuple[JournalFile, int]:
            private_dir(directory.parent)
            if directory.exists():
                raise SessionError(f"there is a run {directory.name} already")
            private_dir(directory)
            private_dir(directory / STEPS)
            with holding_run(directory) as lock:
                write_durably(directory / DOCUMENT, document)
                write_durably(directory / PLAN, plan_data)
                if not hold_reserve(directory):
                    raise OSError(FULL[0], "No space left on device")
                file = JournalFile.create(directory / JOURNAL, line.raw + b"\n")
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
        """Go on with a run that an agent left. Raises SessionError where it has ended, is damaged or is open
        elsewhere, else as `append` does.
        """
        directory = run.directory
        if run.damage is not None:
            raise SessionError(
                f"the run {directory.name} cannot go on: {run.damage}",
                hint="find out what was done (`dba-console session show` has the events), then begin a new run",
            )
        if run.ended is not None:
            raise SessionError(f"the run {directory.name} has ended: {run.ended.text}")
        lines, head = [], run_records.first_hash(directory.name)
        for seq, raw in enumerate(run.lines, start=1):
            lines.append(run_records.check(raw.rstrip(b"\n"), seq, head))
            head = lines[-1].hash
        journal_directory = make_memory_directory(directory.name) if run.in_memory else directory

        def open_again() -> tuple[JournalFile, int]:
            with holding_run(directory) as lock:
                hold_reserve(directory)
                file = JournalFile.open(journal_directory / JOURNAL)
                if not file.whole():
                    file.append(b"\n")
            return file, lock

        lane = Lane("run-journal", clock)
        file, lock = _opened(lane, open_again, int(deadline_s * 1e6), directory)
        made = cls(directory, file, lock, lines, secrets, clock, deadline_s, lane)
        if run.in_memory:
            made._mark_in_memory("it was begun while the disk of the session took nothing")
        fields = {"torn": run.torn} if run.torn else {}
        try:
            made.append(JournalRecord(kind=run_records.REOPENED, text=f"the journal of {directory.name} goes on",
            who=who,
                               fields=fields))  # fmt: skip
        except SessionError:
            made.close()
            raise
        return made

    @property
    def head(self) -> str:
        """Hash of the newest durable record."""
        return self._lines[-1].hash

    @property
    def records(self) -> int:
        return len(self._lines)

    def append(self, record: JournalRecord, *, ends: bool = False) -> JournalRecord:
        """Make the record durable; returns it as it was written: masked, with its times. Where the disk is full an
        intent may use the reserve only if it `ends` the run or reverts something.

        Raises JournalStalled when the disk has not answered in time, JournalFull when it has no room or refuses.
        """
        with self._mutex:
            record = run_records.masked(self._timed(record), self._mask)
            if (confirmed := self._resolve_unconfirmed()) is not None and run_records.same(confirmed.record, record):
                return confirmed.record
            if self.in_memory:
                self._try_return_to_disk()
            line = run_records.chain(record, len(self._lines) + 1, self.head)
            self._write(line, reserved=ends or record.kind != "block.intent")
            return line.record

    def event(self, tag: str) -> Event:
        """The newest durable record as an event of the session."""
        return run_records.event_of(self._lines[-1], self.run, tag)

    def fall_back(self) -> None:
        """Go on in memory-backed storage, with a copy of what is there. Only after the operator said so.

        Raises JournalFull where not even memory takes it.
        """
        with self._mutex:
            if self.in_memory:
                return
            why = self.trouble or "the disk of the session takes nothing"
            self._resolve_unconfirmed(wait=False)
            copy = b"".join(line.raw + b"\n" for line in self._lines)
            try:
                journal_directory = make_memory_directory(self.run)
                file = JournalFile.create(journal_directory / JOURNAL, copy)
            except (OSError, ConsoleError) as error:
                raise JournalFull(f"the journal cannot go on in memory either: {error}") from error
            # What the disk may still hold of it is left to the disk: its file is replaced when the journal comes home.
            self._unconfirmed = None
            self._lane.abandon()
            self._file = file
            self._mark_in_memory(why)
            self._last_disk_copy_us = self._clock.mono_us()
            self._write(
                self._own(
                    run_records.FALLBACK, f"the journal goes on in memory: {why}", {"place": str(journal_directory)}
                )
            )

    def keep_secret(self, secrets: Sequence[str]) -> None:
        """All values that may stand in no record from now on: one more was given on the way."""
        with self._mutex:
            self._mask = TextMask(secrets)

    def try_return_to_disk(self) -> None:
        """Bring a journal home from memory if the disk takes it again. Waits for nothing; asked now and then."""
        with self._mutex:
            if self.in_memory:
                self._try_return_to_disk()

    def close(self) -> None:
        """Let go of the run; a finished one gives its reserve back, and comes home if the disk lets it."""
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
            # Not in the lane: what comes back late would close a number that is somebody else's file by then.
            unlock_run(self._lock)
            self._lane.close()

    def _timed(self, record: JournalRecord) -> JournalRecord:
        return msgspec.structs.replace(
            record,
            wall_us=record.wall_us or self._clock.wall_us(),
            mono_us=record.mono_us or self._clock.mono_us(),
        )

    def _own(self, kind: str, text: str, fields: dict[str, object]) -> JournalLine:
        record = run_records.masked(self._timed(JournalRecord(kind=kind, text=text, fields=fields)), self._mask)
        return run_records.chain(record, len(self._lines) + 1, self.head)

    def _write(self, line: JournalLine, *, reserved: bool = True) -> None:
        if self._reserve_used and not self.in_memory and not reserved and not self._refill_reserve():
            raise self._full()
        try:
            self._try(line)
        except OSError as error:
            if error.errno not in FULL or self.in_memory or not reserved:
                raise self._refused(error) from error
            # What has been done must be told, and reverted: the reserve is for that, and for nothing new.
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
        """What became of the record the disk was slow with: the line if it has been written after all."""
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
        """Whether the disk has room again for what ends a run."""
        if self._in_time(lambda: hold_reserve(self.directory)):
            self._reserve_used = False
        return not self._reserve_used

    def _in_time(self, call: Callable[[], T]) -> T:
        try:
            return self._lane.call(call, self._deadline_us / 1e6)
        except LaneTimeout:
            raise self._stalled() from None

    def _stalled(self) -> JournalStalled:
        self.trouble = f"the disk of the session has taken nothing for {self._deadline_us / 1e6:.0f} s"
        return JournalStalled(f"not written: {self.trouble} ({self._file.path})")

    def _refused(self, error: OSError) -> JournalFull:
        if error.errno in FULL:
            return self._full()
        self.trouble = explain(error, self._file.path.parent)
        return JournalFull(f"not written: {self.trouble}")

    def _full(self) -> JournalFull:
        self.trouble = f"the disk of the session is full ({self._file.path.parent})"
        return JournalFull(f"not written: {self.trouble}", hint="free some of it, then try again")

    def _mark_in_memory(self, why: str) -> None:
        self.in_memory = True
        self.trouble = f"in memory, gone with a reboot: {why}"

    def _try_return_to_disk(self, wait: bool = False) -> None:
        """Try to come home now and then; a try that hangs is waited for by nobody."""
        now = self._clock.mono_us()
        if self._disk_copy is None and (wait or now - self._last_disk_copy_us >= DISK_RETRY_US):
            self._last_disk_copy_us = now
            copy, count = b"".join(line.raw + b"\n" for line in self._lines), len(self._lines)
            lane = Lane("run-journal-home", self._clock)

            def copy_home() -> tuple[JournalFile, int]:
                write_durably(self.directory / JOURNAL, copy)
                sync_directory(self.directory)
                return JournalFile.open(self.directory / JOURNAL), count

            self._disk_copy = lane.start(copy_home)
        homing = self._disk_copy
        if homing is None or not homing.ready(now + (self._deadline_us if wait else 0)):
            return
        self._disk_copy = None
        try:
            file, count = homing.result(now)
            self._switch_to_disk(file, count)
        except (OSError, LaneTimeout):
            return  # tried again later; that it is in memory is said all the while

    def _switch_to_disk(self, file: JournalFile, count: int) -> None:
        """The rest of the lines, then the word that it is home. Raises OSError, LaneTimeout."""
        record = self._own(run_records.RETURNED_TO_DISK, "the journal is on the disk of the session again", {})
        rest = b"".join(line.raw + b"\n" for line in [*self._lines[count:], record])
        lane = Lane("run-journal", self._clock)
        lane.call(lambda: file.append(rest), self._deadline_us / 1e6)
        self._lines.append(record)
        abroad, self._file, self._lane = self._file, file, lane
        self.in_memory, self.trouble, self._reserve_used = False, "", False
        abroad.close()
        shutil.rmtree(abroad.path.parent, ignore_errors=True)
        with contextlib.suppress(OSError):
            abroad.path.parent.parent.rmdir()  # the last run that was there


def _opened(
    lane: Lane, call: Callable[[], tuple[JournalFile, int]], deadline_us: int, directory: Path
) -> tuple[JournalFile, int]:
    """The file and its lock, by `call` in the lane. Raises JournalStalled, JournalFull; nothing is held open then, also
    where the disk comes back later.
    """
    given_up = threading.Event()

    def opening() -> tuple[JournalFile, int]:
        file, lock = call()
        if given_up.is_set():
            file.close()
            unlock_run(lock)
        return file, lock

    try:
        return lane.call(opening, deadline_us / 1e6)
    except LaneTimeout:
        given_up.set()
        raise JournalStalled(
            f"the disk of the session has not answered for {deadline_us / 1e6:.0f} s ({directory})",
            hint="nothing was begun; see the disks panel",
        ) from None
    except OSError as error:
        lane.close()
        raise JournalFull(explain(error, directory)) from error
    except SessionError:
        lane.close()
        raise
