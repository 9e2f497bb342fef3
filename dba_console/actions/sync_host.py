"""What was written while fsync was off, brought to the disk: the server forgets such files, the kernel does not."""

from __future__ import annotations

import os
import threading

from dba_console.actions.action import ActionContext, Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed, StatementLost
from dba_console.actions.parameter_sql import read_setting

FLUSH_TIMEOUT_S = 1800.0
"""For the kernel to write what it holds: a host full of dirty pages and a slow disk."""
_POLL_S = 0.5
SYNC_HINT = "run `sync` on its host: only then what was written meanwhile is on the disk for certain"


def checkpoint_and_sync(connection: ServerConnection, context: ActionContext, control: Control) -> str:
    """A checkpoint, and then everything the kernel holds (PostgreSQL documentation, fsync); what came of it.

    Never fails: what could not be done is said with what a person does instead.
    """
    now = read_setting(connection, "fsync")
    if now is None or now["shown"] != "on":
        return "fsync is still off"
    try:
        connection.execute_change("CHECKPOINT", transaction=False, timeout_s=FLUSH_TIMEOUT_S)
    except (StatementFailed, StatementLost) as error:
        return f"no checkpoint could be made ({error.message}); make one, and then {SYNC_HINT}"
    if not context.server_is_local:
        return f"a checkpoint was made; {SYNC_HINT}"
    done = threading.Event()

    def flush() -> None:
        os.sync()
        done.set()

    threading.Thread(target=flush, name="flush", daemon=True).start()
    deadline_us = context.clock.mono_us() + int(FLUSH_TIMEOUT_S * 1e6)
    while not done.wait(_POLL_S) and context.clock.mono_us() < deadline_us:
        control.report_progress("the kernel writes what it holds to the disks (sync)")
        if control.stop_requested():
            return f"stopped while the kernel wrote; {SYNC_HINT}"
    return "what was written meanwhile is on the disk (checkpoint, sync)" if done.is_set() else SYNC_HINT
