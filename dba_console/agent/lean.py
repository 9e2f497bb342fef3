"""Keeps out of an agent's process what it never uses; imported before anything else.

psycopg imports asyncio, asyncio imports ssl, and hashlib prefers OpenSSL: five megabytes for a process that speaks to a
unix socket and leaves TLS to libpq, which brings its own. Both have a way without: asyncio takes `ssl` as optional,
hashlib has sha256 built in. An agent runs for weeks on a host that is short of memory when it is needed most.
"""

from __future__ import annotations

import sys

UNUSED = ("_hashlib", "_ssl", "ssl")


def keep_out() -> None:
    """Make importing the UNUSED modules fail as if they were not installed. Only for a process that is an agent."""
    for name in UNUSED:
        # None in sys.modules is the import system's own word for "not to be imported" (importlib documentation).
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # typeshed does not know of it
