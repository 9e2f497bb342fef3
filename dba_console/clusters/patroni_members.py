"""Members of a Patroni cluster, from its REST API, which needs no login; otherwise from `patronictl list`.

Patroni documentation, "Patroni REST API": GET /cluster. One short request without TLS; if the API uses TLS or another
address than its configuration, patronictl is used, which takes seconds to start.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.clusters.node_host import Host
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean

PORT = "8008"
"""Default port of the API."""
CONNECT_S = 1.0
API_S = 3.0
ANSWER_S = 10.0
_LIMIT = 1 << 20
CONFIG = re.compile(r"\S+\.ya?ml\b")
"""Configuration file in the command line of Patroni."""
_ADDRESS = re.compile(r"connect_address[\"' ]*:[\"' ]*([^\"' ,}]+)")


class Member(Struct, frozen=True, kw_only=True):
    """A member of a Patroni cluster."""

    name: str
    host: str
    port: str


def members_by_api(hosts: Iterable[str], configured: str = "") -> tuple[Member, ...]:
    """Return the members from the first API that answers; `configured`: lines of a configuration file. Never raises."""
    addresses = [match[1].rpartition(":") for match in _ADDRESS.finditer(configured)]
    candidates = [(host, port) for host, _, port in addresses] + [(host, PORT) for host in hosts]
    for host, port in dict.fromkeys(candidates):
        if host.startswith(("/", "@")) or not port.isdigit():
            continue
        try:
            answer = from_json(_get(host, int(port)), dict[str, Any])
            return tuple(_member(str(row["name"]), str(row["host"]), str(row["port"])) for row in answer["members"])
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError, OverflowError):
            continue
    return ()


def configured_addresses(host: Host, config: str, owner: str) -> str:
    """Return the lines with addresses of Patroni's configuration; its passwords stay on the host."""
    try:
        return host.run(["grep", "-F", "connect_address", "--", config], user=owner).output
    except ConsoleError:
        return ""


def members_by_patronictl(host: Host, program: str, config: str, owner: str) -> tuple[Member, ...]:
    """Return the members from `patronictl list`. Never raises."""
    try:
        ended = host.run([program, "-c", config, "list", "-f", "json"], user=owner, timeout_s=ANSWER_S)
        rows = from_json(ended.output, list[dict[str, Any]])
        addresses = [(str(row["Member"]), str(row["Host"]).rpartition(":")) for row in rows]
    except (ConsoleError, msgspec.MsgspecError, KeyError, TypeError):
        return ()
    return tuple(_member(name, host or port, port if host else "5432") for name, (host, _, port) in addresses)


def _member(name: str, host: str, port: str) -> Member:
    return Member(name=clean(name), host=clean(host), port=clean(port))


def _get(host: str, port: int) -> bytes:
    """Return the body of the answer. Raises OSError."""
    with socket.create_connection((host, port), CONNECT_S) as connection:
        connection.sendall(f"GET /cluster HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        until = time.monotonic() + API_S  # a total limit, also for an API that sends a byte now and then
        while len(answer) < _LIMIT and time.monotonic() < until and (data := connection.recv(65536)):
            answer += data
    return answer.partition(b"\r\n\r\n")[2]
