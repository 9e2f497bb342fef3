"""The heartbeat process: two client threads with one connection each; the main thread writes the record.

`python -m dba_console.clusters.heartbeat_process DIRECTORY`, started by `heartbeat.start_heartbeat`, which passes the
connection string on standard input.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress

from dba_console.clusters.heartbeat import FILE, FIRST_WRITE_S
from dba_console.clusters.heartbeat_clients import CONNECT_S, REMOVE_S, BeatRecord, HeartbeatClient, HeartbeatWriter
from dba_console.core.atomic_files import write_all
from dba_console.core.clock import SYSTEM
from dba_console.keeper.proc import boot_id, start_ticks

FLUSH_S = 0.2
FIRST_FLUSH_S = 0.01
"""Interval until the first write, which the caller waits for."""


def main() -> int:
    """Run the heartbeat of the directory in the first argument."""
    if os.fork():
        os._exit(0)  # the caller waits for this process; the heartbeat is not its child
    os.chdir("/")
    directory = sys.argv[1]
    order = json.loads(sys.stdin.buffer.read())
    os.environ.update(order["environment"])
    path = os.path.join(directory, FILE)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _report_started("")  # another heartbeat was started at the same time
            return 0
        header = {
            "pid": os.getpid(), "ticks": start_ticks(os.getpid()), "boot": boot_id(), "wall_us": SYSTEM.wall_us(),
            "mono_us": SYSTEM.mono_us(),
        }  # fmt: skip
        # Ends a line truncated by a kill.
        write_all(descriptor, b"\n" + json.dumps(["start", header]).encode() + b"\n")
    except OSError as error:
        _report_started(f"the heartbeat cannot write to {path}: {error.strerror}")
        return 1
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM}
    )  # before threads start: `_write_until_stopped` waits for it
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    record, stop = BeatRecord(descriptor), threading.Event()
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    beaters = [HeartbeatWriter(order["conninfo"], name, record, stop), HeartbeatClient(order["conninfo"], record, stop)]
    threads = [threading.Thread(target=_run_guarded, args=(one, record, stop), daemon=True) for one in beaters]
    for thread in threads:
        thread.start()
    why = _write_until_stopped(record, stop, order["life_s"])
    record.end()
    stop.set()
    for thread in threads:
        thread.join(CONNECT_S + REMOVE_S + 1.0)
    record.put("end", why)
    record.flush()
    return 0


def _write_until_stopped(record: BeatRecord, stop: threading.Event, life_s: float) -> str:
    """Write the record until the end; return why it ended."""
    started_us, answered = SYSTEM.mono_us(), False
    while signal.sigtimedwait({signal.SIGTERM}, FLUSH_S if answered else FIRST_FLUSH_S) is None:
        has_written = record.first_write_ended.is_set()
        record.flush()
        age_s = (SYSTEM.mono_us() - started_us) / 1e6
        if not answered and (has_written or age_s > min(FIRST_WRITE_S, life_s)):
            answered = True
            _report_started("")
        if age_s > life_s:
            return f"its maximum lifetime of {life_s:g} s was reached"
        if record.removed():
            return "its record was removed"
        if stop.is_set():
            return "an internal error ended it"
    return "it was stopped"


def _run_guarded(beater: HeartbeatClient, record: BeatRecord, stop: threading.Event) -> None:
    try:
        beater.run()
    except Exception as error:  # an internal error must not look like an outage
        record.put("left", f"the heartbeat failed: {type(error).__name__}")
        stop.set()


def _report_started(error: str) -> None:
    """Send one line to the caller, then detach from its descriptors."""
    with suppress(OSError):
        os.write(1, json.dumps({"error": error}).encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
