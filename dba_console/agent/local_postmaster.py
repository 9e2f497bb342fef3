"""Which postmaster of this host a target means, when nobody has answered yet: by socket directory and port. Pure.

Only what leaves no doubt counts: a server found this way is shown with this host's numbers beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dba_console.probes.host.postmasters import Postmaster
from dba_console.target import parse_conninfo

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_DIRECTORIES = ("/var/run/postgresql", "/run/postgresql", "/tmp")


def find_target_postmaster(
    found: Sequence[Postmaster], conninfo: str, environ: Mapping[str, str] = os.environ
) -> Postmaster | None:
    """The postmaster that libpq would reach through `conninfo`, None where that is not certain.

    >>> here = Postmaster(1, 1, "/data", 5432, "/tmp")
    >>> [find_target_postmaster([here], conninfo, {}) is here
    ...  for conninfo in ("host=/tmp", "host=db7", "service=x", "host=/tmp port=1")]
    [True, False, False, False]
    """
    values = parse_conninfo(conninfo)
    if "service" in values or ("host" not in values and environ.get("PGSERVICE")):
        return None
    host = values.get("hostaddr") or values.get("host") or environ.get("PGHOSTADDR") or environ.get("PGHOST") or ""
    port = values.get("port") or environ.get("PGPORT") or "5432"
    if "," in host or not port.isdigit():
        return None
    fitting = [one for one in found if one.port == int(port) and _is_reached_by(one, host)]
    return fitting[0] if len(fitting) == 1 else None


def _is_reached_by(postmaster: Postmaster, host: str) -> bool:
    if host in _LOOPBACK:
        return True
    directories = (host,) if host else _DEFAULT_DIRECTORIES
    here = postmaster.socket_directory
    return here is not None and any(os.path.realpath(here) == os.path.realpath(one) for one in directories)
