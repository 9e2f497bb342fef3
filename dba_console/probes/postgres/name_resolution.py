"""Host names made addresses before libpq sees them.

libpq resolves names while it holds the interpreter: a name server that does not answer would stop every tick of the
agent for as long as the resolver waits. Here only the lane waits. libpq keeps the name for certificates and passfile.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat

from dba_console.probes.postgres.connect_errors import ConnectFailed

Resolve = Callable[[str], list[str]]


def addresses_of(name: str) -> list[str]:
    """Addresses of a host name in the resolver's order, which is libpq's. Raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve_hosts(given: Mapping[str, str], resolve: Resolve = addresses_of) -> dict[str, str]:
    """The options with an address for each host name, also for one of the environment or of a service.

    Raises ConnectFailed where not one host is left. Of several hosts one that does not resolve is passed over.

    >>> resolve_hosts({"host": "db1,/tmp", "port": "5433", "user": "u"}, lambda name: ["::1", "10.0.0.1"])["hostaddr"]
    '::1,10.0.0.1,'
    """
    places = {**libpq_defaults(given.get("service")), **given}
    host, port = places.get("host", ""), places.get("port", "")
    if places.get("hostaddr") or not any(_is_name(one) for one in host.split(",")):
        return dict(given)
    rows = list(_rows(host.split(","), port.split(","), resolve))
    if not rows:
        raise ConnectFailed("unknown_host", f'could not translate host name "{host}" to an address')
    hosts, addresses, ports = (",".join(column) for column in zip(*rows, strict=True))
    # libpq takes one port for all hosts; with a list there must be as many as hosts.
    return {**given, "host": hosts, "hostaddr": addresses, "port": ports if "," in port else port}


def _rows(hosts: list[str], ports: list[str], resolve: Resolve) -> Iterator[tuple[str, str, str]]:
    """Host, address and port of each way to go; the address of a path or of an address is empty."""
    for host, port in zip(hosts, ports if len(ports) > 1 else repeat(ports[0]), strict=False):
        try:
            found = resolve(host) if _is_name(host) else [""]
        except OSError:
            continue
        yield from ((host, address, port) for address in found)


def _is_name(host: str) -> bool:
    """False for a directory, an abstract socket, an address, and for nothing at all."""
    return bool(host) and host[0] not in "/@" and ":" not in host and not host.replace(".", "").isdigit()


def libpq_defaults(service: str | None) -> dict[str, str]:
    """What libpq takes where the connection string says nothing: environment and service file."""
    from psycopg import pq

    before = os.environ.get("PGSERVICE")
    try:
        if service:
            # Services are known by this variable alone; libpq has no other way to ask for one without connecting.
            os.environ["PGSERVICE"] = service
        options = pq.Conninfo.get_defaults()
    finally:
        if service:
            _restore("PGSERVICE", before)
    return {option.keyword.decode(): option.val.decode() for option in options if option.val}


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
