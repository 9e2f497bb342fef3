"""Start agent and console fast and with little memory: skip unused modules, delay garbage collection.

Nothing is disabled that the process uses. Only an agent or a console calls this; commands and tests load what they
need.
"""

from __future__ import annotations

import gc
import sys

UNUSED_MODULES = ("_hashlib", "_ssl", "ssl")
"""asyncio imports ssl optionally, and hashlib has sha256 built in; neither process uses TLS itself, libpq has its own.
Saves five megabytes of OpenSSL, on a host that may be short of memory when the console is needed."""


def begin_fast_start() -> None:
    """Make imports of UNUSED_MODULES fail as if not installed, and disable garbage collection while modules load."""
    for name in UNUSED_MODULES:
        # None in sys.modules makes the import fail (importlib documentation).
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # missing in typeshed
    # Loading creates a hundred thousand permanent objects: collecting among them takes a fifth of the time.
    gc.disable()


def allow_ssl_import() -> None:
    """Allow importing ssl again: a cutover check reads the certificates of servers that offer TLS."""
    for name in UNUSED_MODULES:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]


def finish_fast_start() -> None:
    """Enable garbage collection again, except for what was loaded. Harmless without `begin_fast_start`."""
    gc.freeze()
    gc.enable()
