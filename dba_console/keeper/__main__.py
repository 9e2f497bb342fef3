"""The keeper process: supervises one long command, logs its output and records how it ended.

It has its own process session, so that neither a lost SSH connection nor the end of the agent ends it. It reads the
command's output, stamps each line with its time of arrival, and records the command's exit status and resource usage.
Its input is JSON on standard input (a memory file, since it contains secrets); it reports on standard output whether
the command was started. `dba_console.keeper.launch` starts it, `dba_console.keeper.command_status` reads its records.

If the keeper is killed, the command is not: it ends when it next prints (SIGPIPE), or runs to its end if it does not.
The status is then `lost` (`command_status`), and the run waits until no process of the command is left.

Only modules of the standard library that load quickly are imported: it may live for hours beside each command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from dba_console.core.atomic_files import RESERVED_BYTES, ReservedFile, write_atomically
from dba_console.keeper.command_loop import ChildCommand, CommandLoop
from dba_console.keeper.output_log import OutputLog, SegmentedLog
from dba_console.keeper.proc import boot_id, group_members, kernel_counts_io, process_name, start_ticks

if TYPE_CHECKING:
    from typing import Any

    from dba_console.core.stream_masking import Masker

    Order = dict[str, Any]

BLOCK_BYTES = 512
"""Bytes; the kernel's unit of ru_inblock and ru_oublock (getrusage(2)), whatever the device's."""
MAX_NAMED_LEFTOVERS = 20
"""Maximum number of remaining processes of a command's group in the record, which must fit into its reserved space."""
LOG_CLOSE_TIMEOUT_S = 10.0
"""Time limit after the command's end for writing the rest of the log to a full disk."""


def main() -> int:
    """Become the keeper of the command described on standard input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    if os.fork():
        # The caller waits for this process, and does not become the parent of one that lives for hours.
        os._exit(0)
    os.setsid()
    with open(0, "rb", closefd=False) as file:
        order: Order = json.loads(file.read())
    try:
        run_command(order)
    except Exception as error:  # an internal error of the keeper: recorded, since no other process sees it
        _write_traceback(order["directory"], error)
        return 1
    return 0


def run_command(order: Order) -> None:
    """Run the command to its end. A failed start is reported and recorded."""
    directory = order["directory"]
    try:
        exit_file = ReservedFile(directory, "exit.json")
        files = SegmentedLog(directory, order["head_bytes"], order["tail_bytes"])
        running = _running_record(order)
        # Written before the command starts: with only this file and no keeper, the command may have been started.
        write_atomically(directory, "running.json", _json(running))
    except OSError as error:
        _answer_caller(f"the keeper cannot write to {directory}: {error.strerror}")
        return
    try:
        command = ChildCommand(order["argv"], order["env"], order["cwd"], stdin=order["stdin"] is not None)
    except (OSError, ValueError) as error:
        why = _start_error(order, error)
        exit_file.finish(_json({"error": why, "ended_us": _wall_us()}))
        _answer_caller(why)
        return
    started_at = time.monotonic()
    running |= {"child_pid": command.pid, "child_start": start_ticks(command.pid), "started_us": _wall_us()}
    running["started_mono_us"] = time.monotonic_ns() // 1000
    write_error = None
    try:
        write_atomically(directory, "running.json", _json(running))
    except OSError as error:
        write_error = error
    maskers = _make_maskers(order["masks"])
    log = OutputLog(files)
    _answer_caller(None)
    _release_standard_streams()
    loop = CommandLoop(
        command,
        log,
        maskers,
        stdin=(order["stdin"] or "").encode("utf-8", "surrogateescape"),
        timeout_s=order["timeout_s"],
        grace_s=order["grace_s"],
    )
    order.clear()
    loop.run()
    complete = log.close(LOG_CLOSE_TIMEOUT_S)
    record = _exit_record(command, loop, directory, started_at)
    record |= {
        "dropped_lines": log.dropped_lines + files.rolled_lines,
        "dropped_bytes": log.dropped_bytes + files.rolled_bytes,
        "log_complete": complete,
    }
    if write_error is not None:
        record["note"] = f"the command's process could not be recorded: {write_error.strerror}"
    if log.unwritten_end:
        record["unwritten_end"] = log.unwritten_end.decode("utf-8", "replace")
    content = _json(record)
    if len(content) > RESERVED_BYTES:
        record.pop("unwritten_end", None)
        content = _json(record)
    exit_file.finish(content)


def _running_record(order: Order) -> dict[str, object]:
    return {
        "keeper_pid": os.getpid(),
        "keeper_start": start_ticks(os.getpid()),
        "boot_id": boot_id(),
        "child_pid": None,
        "child_start": None,
        "started_us": _wall_us(),
        "started_mono_us": time.monotonic_ns() // 1000,
        "tag": order["tag"],
        "host": order["host"],
    }


def _exit_record(command: ChildCommand, loop: CommandLoop, directory: str, started_at: float) -> dict[str, object]:
    ended_at = loop.ended_at or started_at
    left = group_members(command.pid)  # before it is reaped: until then its group id is not reused
    status, usage = command.reap()
    code = os.waitstatus_to_exitcode(status)
    streams = loop.streams.values()
    return {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "ended_us": loop.ended_us,
        "wall_s": round(ended_at - started_at, 6),
        "user_s": usage.ru_utime,
        "sys_s": usage.ru_stime,
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "read_bytes": usage.ru_inblock * BLOCK_BYTES if kernel_counts_io() else None,
        "write_bytes": usage.ru_oublock * BLOCK_BYTES if kernel_counts_io() else None,
        "out_lines": sum(stream.lines for stream in streams),
        "out_bytes": sum(stream.bytes for stream in streams),
        "timed_out": loop.timed_out,
        "stopped_by": _stopped_by(directory) if loop.stop_requested else None,
        "left_open": loop.left_open,
        "left": [[pid, process_name(pid)] for pid in left[:MAX_NAMED_LEFTOVERS]],
    }


def _stopped_by(directory: str) -> str:
    """Return who stopped it, as `command_status.stop` noted before it sent the signal."""
    try:
        with open(os.path.join(directory, "stop.json"), encoding="utf-8") as file:
            return str(json.load(file)["by"])
    except (OSError, ValueError, KeyError, TypeError):
        return "a signal to the keeper"


def _make_maskers(secrets: list[str]) -> tuple[Masker | None, Masker | None]:
    """Return one masker per output: a secret may be split between reads of one stream."""
    if not secrets:
        return None, None
    from dba_console.core.stream_masking import Masker

    return Masker(secrets), Masker(secrets)


def _start_error(order: Order, error: OSError | ValueError) -> str:
    program, where = order["argv"][0], order["cwd"]
    if where is not None and not os.path.isdir(where):
        return f"the command cannot start in {where}: no such directory"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{program} cannot be started: {reason}"


def _answer_caller(error: str | None) -> None:
    """Write one line to the caller, which may be gone."""
    try:
        os.write(1, _json({"ok": error is None, "pid": os.getpid(), "message": error or ""}) + b"\n")
    except OSError:
        pass


def _release_standard_streams() -> None:
    """Close the inherited streams: no pipe of another process is held open for hours."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _write_traceback(directory: str, error: Exception) -> None:
    import traceback

    try:
        path = os.path.join(directory, "keeper.err")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        pass
    _answer_caller(f"the keeper failed: {type(error).__name__}")


def _json(record: dict[str, object]) -> bytes:
    return json.dumps(record).encode()


def _wall_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
