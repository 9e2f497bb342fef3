"""Environment that would take the place of the host in a node's dsn."""

from __future__ import annotations

from dba_console.errors import Refused
from dba_console.probes.postgres.name_resolution import libpq_defaults
from dba_console.sanitize import clean
from dba_console.target import parse_conninfo


def refuse_host_override(name: str, dsn: str) -> None:
    """Raise Refused where PGHOSTADDR or a service would take the place of the host that the dsn of a node names.

    libpq connects to hostaddr, and takes it from there where the dsn has none: all nodes would be one server.
    """
    options = parse_conninfo(dsn)
    if "host" not in options or options.keys() & {"hostaddr", "service"}:
        return
    if other_address := libpq_defaults(None).get("hostaddr"):
        raise Refused(
            f"the environment (PGHOSTADDR, or a service) leads to {clean(other_address)} instead of the host of {name}",
            hint="unset it, and end an agent that was started with it",
        )
