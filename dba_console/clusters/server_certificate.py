"""The TLS certificate of a server: read in one TLS handshake, without a login and without access to its files.

PostgreSQL documentation, "SSL Session Encryption": after SSLRequest the server answers S and the handshake begins. The
certificate is not verified: only its validity period is read.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from dba_console.core.fast_start import allow_ssl_import

_CONNECT_S = 3.0
_SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
"""Tags of DER (ITU-T X.690)."""


class Certificate(Struct, frozen=True, kw_only=True):
    """Validity period in microseconds since 1970; `error`: why it could not be read."""

    from_us: int = 0
    until_us: int = 0
    error: str = ""


def read_certificate(addresses: Sequence[tuple[str, str]]) -> Certificate:
    """Return the certificate of the first of these addresses, without sockets. Never raises."""
    for host, port in addresses:
        if host.startswith(("/", "@")):
            continue
        try:
            with socket.create_connection((host, int(port)), _CONNECT_S) as plain:
                plain.sendall(_SSL_REQUEST)
                if plain.recv(1) != b"S":
                    return Certificate(error=f"{host}:{port} does not offer TLS")
                allow_ssl_import()
                import ssl  # five megabytes: loaded only if a server offers TLS

                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                with context.wrap_socket(plain) as secured:
                    return parse_validity(secured.getpeercert(binary_form=True) or b"")
        except (OSError, ValueError, IndexError) as error:
            return Certificate(error=f"{host}:{port}: {error}")
    return Certificate(error="its dsn uses a Unix socket, which has no TLS")


def parse_validity(der: bytes) -> Certificate:
    """Read the two times of an X.509 certificate (RFC 5280, 4.1). Raises ValueError or IndexError."""
    certificate = _content(der, _SEQUENCE)
    fields = _fields(_content(certificate, _SEQUENCE))
    if fields[0][0] == _VERSION:
        del fields[0]
    # serialNumber, signature, issuer, validity
    begin, end = _fields(fields[3][1])[:2]
    return Certificate(from_us=_time_us(*begin), until_us=_time_us(*end))


def _fields(content: bytes) -> list[tuple[int, bytes]]:
    found = []
    while content:
        tag, start, size = content[0], *_length(content)
        found.append((tag, content[start : start + size]))
        content = content[start + size :]
    return found


def _content(der: bytes, tag: int) -> bytes:
    if der[0] != tag:
        raise ValueError("not an X.509 certificate")
    start, size = _length(der)
    return der[start : start + size]


def _length(der: bytes) -> tuple[int, int]:
    """Return where the content of the first element begins, and its size."""
    if der[1] < 0x80:
        return 2, der[1]
    count = der[1] & 0x7F
    return 2 + count, int.from_bytes(der[2 : 2 + count], "big")


def _time_us(tag: int, content: bytes) -> int:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two-digit year: 50 and above mean 19xx
        text = ("19" if text >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not an X.509 certificate")
    at = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(at.timestamp() * 1e6)
