"""What was written while fsync was off, brought to the disk: the server forgets such files, the kernel does not."""

from __future__ import annotations

import os
import threading

from dba_console.actions.action import Control, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed
from dba_console.actions.parameter_sql import setting

LONGEST_S = 1800.0
"""For the kernel to write what it holds: a host full of dirty pages and a slow disk."""
_LOOK_S = 0.5
BY_HAND = "run `sync` on its host: only then what was written meanwhile is on the disk for certain"


def flush_host(link: ServerLink, world: World, control: Control) -> str:
    """A checkpoint, and then everything the kernel holds (PostgreSQL documentation, fsync); what came of it.

    Never fails: what could not be done is said with what a person does instead.
    """
    now = setting(link, "fsync")
    if now is None or now["shown"] != "on":
        return "fsync is still off"
    try:
        link.act("CHECKPOINT", transaction=False, timeout_s=LONGEST_S)
    except (StatementFailed, Lost) as error:
        return f"no checkpoint could be made ({error.message}); make one, and then {BY_HAND}"
    if not world.here:
        return f"a checkpoint was made; {BY_HAND}"
    done = threading.Event()

    def flush() -> None:
        os.sync()
        done.set()

    threading.Thread(target=flush, name="flush", daemon=True).start()
    until_us = world.clock.mono_us() + int(LONGEST_S * 1e6)
    while not done.wait(_LOOK_S) and world.clock.mono_us() < until_us:
        control.tell("the kernel writes what it holds to the disks (sync)")
        if control.stop_asked():
            return f"stopped while the kernel wrote; {BY_HAND}"
    return "what was written meanwhile is on the disk (checkpoint, sync)" if done.is_set() else BY_HAND
