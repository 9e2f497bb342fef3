"""Status of a keeper's command (running, ended, lost), read from its directory by any process, also after a restart."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from dba_console.core.atomic_files import write_atomically
from dba_console.keeper.proc import boot_id, is_alive, living_process

State = Literal["absent", "running", "ended", "lost"]
NOTE_TIMEOUT_S = 1.0
"""Time limit for writing stop.json; a disk that hangs must not keep the command running."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """running.json: the processes. Starts are in clock ticks since boot."""

    keeper_pid: int
    keeper_start: int | None
    boot_id: str
    child_pid: int | None = None
    """None: the keeper had not started the command yet when it wrote this."""
    child_start: int | None = None
    started_us: int = 0
    started_mono_us: int = 0
    tag: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """exit.json: how the command ended, and its resource usage with reaped children. Written once the log is
    complete."""

    code: int | None = None
    signal: int | None = None
    ended_us: int = 0
    wall_s: float = 0.0
    user_s: float = 0.0
    sys_s: float = 0.0
    max_rss_bytes: int = 0
    read_bytes: int | None = None
    write_bytes: int | None = None
    out_lines: int = 0
    out_bytes: int = 0
    """Size of the command's output, without stamps."""
    dropped_lines: int = 0
    dropped_bytes: int = 0
    """What is not in the log, including stamps: the middle of a long output, and what the disk did not accept."""
    timed_out: bool = False
    stopped_by: str | None = None
    left_open: bool = False
    """A process it started still held its output open; its later output was not read."""
    left: Sequence[Sequence[Any]] = ()
    """Processes of its group that still ran then: pid and name, 20 at most."""
    log_complete: bool = True
    """False: the end of the log could not be written; `unwritten_end` is the last part of it."""
    unwritten_end: str = ""
    error: str | None = None
    """Why it was not started; then code and signal are None."""
    note: str | None = None

    @property
    def ok(self) -> bool:
        return self.code == 0


@dataclass(frozen=True, slots=True)
class CommandStatus:
    """`lost`: the keeper is gone without a record. The command may still run, unattended; how it ended is unknown."""

    state: State
    running: RunningRecord | None = None
    exit: ExitRecord | None = None
    child_alive: bool | None = None
    """Whether a process of the command lives; None if unknown: it had not been recorded when the keeper was lost."""
    stopping_by: str | None = None

    @property
    def runs(self) -> bool:
        """The command runs, with its keeper or unattended."""
        return self.state == "running" or (self.state == "lost" and self.child_alive is True)


def read_status(directory: str | os.PathLike[str]) -> CommandStatus:
    """Return the current status. Raises OSError if the directory cannot be read."""
    ended = _read_exit(directory)
    running = _read(directory, "running.json", RunningRecord)
    if ended is not None:
        return CommandStatus("ended", running, ended, False)
    if running is None:
        return CommandStatus("absent")
    same_boot = running.boot_id == boot_id()
    if same_boot and is_alive(running.keeper_pid, running.keeper_start):
        return CommandStatus("running", running, None, _command_lives(running), _read_stop_note(directory))
    # The keeper may have written its record between the two reads.
    ended = _read_exit(directory)
    if ended is not None:
        return CommandStatus("ended", running, ended, False)
    if not same_boot:
        return CommandStatus("lost", running, None, False)
    return CommandStatus("lost", running, None, _command_lives(running))


def _command_lives(running: RunningRecord) -> bool | None:
    if running.child_pid is None:
        return None
    return living_process(running.child_pid, running.child_start) is not None


def wait(directory: str | os.PathLike[str], timeout_s: float | None = None) -> CommandStatus:
    """Return the status once the keeper has ended, of a command without one once its process has, or after
    `timeout_s`; without polling."""
    status = read_status(directory)
    if not status.runs or status.running is None:
        return status
    descriptor = _open_keeper(status.running) if status.state == "running" else _open_command(status.running)
    if descriptor is not None:
        try:
            select.select([descriptor], [], [], timeout_s)
        finally:
            os.close(descriptor)
    return read_status(directory)


def stop(directory: str | os.PathLike[str], by: str) -> bool:
    """Ask the keeper to stop the command (SIGTERM, after the grace time SIGKILL); without a keeper send SIGTERM to its
    processes. Return whether one was asked."""
    status = read_status(directory)
    if status.state == "lost" and status.running is not None:
        return status.runs and _stop_unattended(status.running)
    if status.state != "running" or status.running is None:
        return False
    descriptor = _open_keeper(status.running)
    if descriptor is None:
        return False
    try:
        _write_stop_note(directory, by)
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _write_stop_note(directory: str | os.PathLike[str], by: str) -> None:
    content = json.dumps({"by": by, "wall_us": time.time_ns() // 1000}).encode()

    def write() -> None:
        try:
            write_atomically(os.fspath(directory), "stop.json", content, synced=False)
        except OSError:
            pass  # then the record names only a signal

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(NOTE_TIMEOUT_S)


def _stop_unattended(running: RunningRecord) -> bool:
    """Send SIGTERM to the processes of a command whose keeper is gone; return whether there was one."""
    descriptor = _open_command(running)
    if descriptor is None or running.child_pid is None:
        return False
    try:
        os.killpg(running.child_pid, signal.SIGTERM)  # the process that is held open belongs to this group
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open_command(running: RunningRecord) -> int | None:
    """Return a pidfd of a living process of the command, None if there is none."""
    pid = living_process(running.child_pid, running.child_start)
    try:
        return None if pid is None else os.pidfd_open(pid)
    except OSError:
        return None


def _open_keeper(running: RunningRecord) -> int | None:
    """Return a pidfd of exactly the recorded keeper, None if it is gone."""
    try:
        descriptor = os.pidfd_open(running.keeper_pid)
    except OSError:
        return None
    if is_alive(running.keeper_pid, running.keeper_start):
        return descriptor
    os.close(descriptor)
    return None


def _read_exit(directory: str | os.PathLike[str]) -> ExitRecord | None:
    return _read(directory, "exit.json", ExitRecord)


def _read_stop_note(directory: str | os.PathLike[str]) -> str | None:
    record = _read_json(directory, "stop.json")
    return None if record is None else str(record.get("by"))


def _read(directory: str | os.PathLike[str], name: str, kind: type[T]) -> T | None:
    record = _read_json(directory, name)
    if record is None:
        return None
    # `kind` is Running or Exit, both dataclasses; T cannot say so without a protocol of typeshed's.
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{key: value for key, value in record.items() if key in known})
    except TypeError as error:
        raise OSError(f"{name} of {os.fspath(directory)} is incomplete: {error}") from error


def _read_json(directory: str | os.PathLike[str], name: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:  # damaged, not absent: the end is unknown
        raise OSError(f"{name} of {os.fspath(directory)} cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise OSError(f"{name} of {os.fspath(directory)} is not a record")
    return record
