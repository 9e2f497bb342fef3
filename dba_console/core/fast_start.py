"""Starting quickly and staying small: what agent and console do before they load anything else.

Upheld here: nothing is switched off that the process uses. Only a process that is an agent or a console calls this;
commands and tests load what they like.
"""

from __future__ import annotations

import gc
import sys

UNUSED_MODULES = ("_hashlib", "_ssl", "ssl")
"""asyncio takes ssl as optional, and hashlib has sha256 built in; neither process speaks TLS itself, libpq brings its
own. Five megabytes of OpenSSL less, on a host that is short of memory when this is needed most."""


def begin_fast_start() -> None:
    """Make importing UNUSED fail as if not installed, and do not collect garbage while modules are loaded."""
    for name in UNUSED_MODULES:
        # None in sys.modules is the import system's own word for "not to be imported" (importlib documentation).
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # typeshed does not know of it
    # Loading makes a hundred thousand objects that all stay: collecting among them is a fifth of the time.
    gc.disable()


def allow_ssl_import() -> None:
    """Let ssl be imported after all: before a cutover the certificates of servers that offer TLS are read."""
    for name in UNUSED_MODULES:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]


def finish_fast_start() -> None:
    """All is loaded: collect again, but never again among what was loaded. Harmless without `begin_fast_start`."""
    gc.freeze()
    gc.enable()
