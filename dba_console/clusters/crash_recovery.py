"""Crash recovery of a stopped server, alone: without clients, without WAL of other servers, without a new timeline.

pg_rewind needs a server that was shut down cleanly. Its single-user recovery is refused while standby.signal exists,
and without that file the server could start as a primary. So it is started as a standby that follows no server, can be
reached only by a socket in its data directory, and replays its WAL to the end; then it is shut down.
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import PurePosixPath

from dba_console.clusters.server_control import ALONE, CLEAN_STATES, ServerControl
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import CommandResult

_ALONE = {
    "listen_addresses": "", "unix_socket_directories": ".", "primary_conninfo": "", "primary_slot_name": "",
    "restore_command": "", "archive_mode": "off", "archive_cleanup_command": "", "recovery_end_command": "",
    "recovery_target": "", "recovery_target_lsn": "", "recovery_target_name": "", "recovery_target_time": "",
    "recovery_target_xid": "", "recovery_min_apply_delay": "0", "hot_standby": "on", "wal_keep_size": "2147483647",
}  # fmt: skip
"""Settings of the start. WAL is kept, because pg_rewind reads it from the last common checkpoint on. With hot standby
the server counts as ready when the end of its WAL is replayed (xlogrecovery.c, "entering archive recovery")."""
_LOG_TAIL = """LC_ALL=C; export LC_ALL; log=$1
next=$(tail -n 50 "$log" | sed -n 's/.*Future log output will appear in directory "\\(.*\\)"\\.$/\\1/p' | tail -n 1)
if [ -n "$next" ]; then
    case $next in /*) ;; *) next=$2/$next ;; esac
    log=$next/$(ls -t "$next" | head -n 1)
fi
echo "$log"; tail -n 50 "$log"
"""
"""Print the path of the newest log of a server started by pg_ctl, and its end. Arguments: log, data directory."""
_FATAL = re.compile(r"\b(?:FATAL|PANIC):")
SHOWN_LINES = 3


def recover_alone(server: ServerControl, timeline: int, timeout_s: float) -> None:
    """Complete the crash recovery of the stopped server on its timeline. Safe to repeat. Raises ConsoleError.

    It writes the data files of the server, and nothing else.
    """
    found = server.control_file()
    if found.state in CLEAN_STATES:
        return
    server.fence()
    target = "current" if found.timeline == timeline else str(timeline)
    directory, options = server.previous_start_options()
    before = server.host.read(f"{server.data_directory}/postmaster.opts", user=server.owner())
    options += ["-c", ALONE]
    for name, value in {**_ALONE, "recovery_target_timeline": target}.items():
        options += ["-c", f"{name}={value}"]
    argv = [server.program("pg_ctl"), "start", "-D", directory, "-w", "-t", str(math.ceil(timeout_s))]
    argv += ["-l", server.log_path, "-o", shlex.join(options)]
    ended = server.host.run(argv, user=server.owner(), timeout_s=timeout_s + 5)
    if not server.running():
        raise ConsoleError(f"the crash recovery of {server.name} fails: {start_failure(server, ended)}")
    stopping = [server.program("pg_ctl"), "stop", "-D", server.data_directory, "-w", "-m", "fast"]
    stopped = server.host.run(
        [*stopping, "-t", str(math.ceil(timeout_s))], user=server.owner(), timeout_s=timeout_s + 5
    )
    if before is not None and not server.running():
        server.host.write(f"{server.data_directory}/postmaster.opts", before, user=server.owner())
    if server.running() or (state := server.control_file().state) not in CLEAN_STATES:
        why = "it is still running" if server.running() else f"pg_control says {state}"
        printed = clean(redact(stopped.errors.strip() or ended.errors.strip()))
        raise ConsoleError(f"the crash recovery of {server.name} has not ended: {why} {printed}".strip())


def start_failure(server: ServerControl, ended: CommandResult) -> str:
    """Return why a server did not start: the last errors of its log with the path of the log, as far as known."""
    printed = [line.strip() for line in f"{ended.output}\n{ended.errors}".splitlines() if line.strip()]
    said = "; ".join(line for line in printed[-SHOWN_LINES:] if "Examine the log output" not in line)
    if server.log_command is not None:
        where = f"its log: `{server.log_command}`" if server.log_command else "see its server log"
        return clean(redact(f"{said or 'no output'}; {where}"))
    script = ["sh", "-c", _LOG_TAIL, "sh", server.log_path, server.data_directory]
    try:
        tail = server.host.run(script, user=server.owner(), repeatable=True)
    except ConsoleError:
        return clean(redact(f"{said or 'no output'}; its log is {server.log_path}"))
    printed_log = tail.output.splitlines() or [""]
    first, lines = printed_log[0], printed_log[1:]
    path = first if PurePosixPath(first).is_absolute() else server.log_path
    fatal = [number for number, line in enumerate(lines) if _FATAL.search(line)]
    # The line before it has the reason of a wrong setting, the one after it the hint.
    shown = lines[max(0, fatal[-1] - 1) : fatal[-1] + 2] if fatal else lines[-SHOWN_LINES:]
    return clean(redact("; ".join([f"its log is {path}", *(line.strip() for line in shown)])))
