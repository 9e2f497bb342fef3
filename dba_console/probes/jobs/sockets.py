"""Which socket is connected with which: TCP by the kernel's table, unix sockets by asking it (sock_diag(7)).

The kernel names sockets by inode numbers; whose they are is told by the descriptors of processes. It tells only of
sockets of our network namespace: the other end of one that leads into a container is not told.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Iterator

from dba_console.probes.host.kernel_files import read_file

_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG."""
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY."""
_REQUEST = 1
"""NLM_F_REQUEST: of this very socket, not a list of all."""
_ERROR = 2
"""NLMSG_ERROR."""
_SHOW_PEER = 4
"""UDIAG_SHOW_PEER."""
_PEER = 2
"""UNIX_DIAG_PEER."""
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_ASK = struct.Struct("=BBHIIIII")
_ANSWER = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
ANSWER_S = 1.0
"""For the kernel, which answers at once."""
_MAPPED = b"0000000000000000FFFF0000"
"""An IPv4 address within IPv6, as the table writes it on little-endian machines."""

_Endpoint = tuple[bytes, bytes]


def unix_peers(inodes: Iterable[int]) -> dict[int, int]:
    """Inode of a connected unix socket -> that of its other end; left out what is not one, or not told.

    Raises OSError where this kernel does not answer such questions.
    """
    asked = list(inodes)
    if not asked:
        return {}
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
        link.settimeout(ANSWER_S)
        for inode in asked:
            question = _ASK.pack(socket.AF_UNIX, 0, 0, _ANY_STATE, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
            link.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST, inode, 0) + question)
            peer = parse_peer(link.recv(8192))
            if peer is not None:
                found[inode] = peer
    return found


def parse_peer(answer: bytes) -> int | None:
    """The peer's inode in an answer, None where there is none. Raises OSError where the kernel cannot be asked."""
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -code != errno.ENOENT:
            raise OSError(-code, "sock_diag is refused")
        return None
    at = _HEADER.size + _ANSWER.size
    while at + _ATTRIBUTE.size <= min(length, len(answer)):
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        if size < _ATTRIBUTE.size:
            return None
        if name == _PEER:
            (peer,) = _NUMBER.unpack_from(answer, at + _ATTRIBUTE.size)
            return int(peer) or None
        at += (size + 3) & ~3
    return None


def tcp_ports(inodes: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """Local port of each established TCP connection among these sockets -> its inode."""
    wanted = set(inodes)
    found = {}
    for local, _, inode in _connections(proc) if wanted else ():
        if inode in wanted:
            found[int(local[1], 16)] = inode
    return found


def tcp_peers(inodes: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """Inode of an established TCP connection -> that of its other end, where that is on this host too."""
    wanted = set(inodes)
    if not wanted:
        return {}
    by_ends: dict[tuple[_Endpoint, _Endpoint], int] = {}
    mine: dict[int, tuple[_Endpoint, _Endpoint]] = {}
    for local, remote, inode in _connections(proc):
        by_ends[local, remote] = inode
        if inode in wanted:
            mine[inode] = local, remote
    return {
        inode: other
        for inode, (local, remote) in mine.items()
        if (other := by_ends.get((remote, local))) is not None and other != inode
    }


def _connections(proc: str) -> Iterator[tuple[_Endpoint, _Endpoint, int]]:
    for name in ("tcp", "tcp6"):
        try:
            yield from parse_connections(read_file(f"{proc}/net/{name}"))
        except OSError:
            continue


def parse_connections(table: bytes) -> Iterator[tuple[_Endpoint, _Endpoint, int]]:
    """Local end, remote end and inode of the established connections in /proc/net/tcp or tcp6 (proc_net(5)).

    >>> line = b" 0: 0100007F:1538 0100007F:CB20 01 00000000:00000000 00:00000000 00000000 112 0 7541 1 00 20 4 30 10"
    >>> list(parse_connections(b"sl ..." + chr(10).encode() + line))
    [((b'0100007F', b'1538'), (b'0100007F', b'CB20'), 7541)]
    """
    for line in table.splitlines()[1:]:
        words = line.split(None, 10)
        if len(words) > 9 and words[3] == b"01":
            yield _endpoint(words[1]), _endpoint(words[2]), int(words[9])


def _endpoint(word: bytes) -> _Endpoint:
    address, _, port = word.partition(b":")
    return address.removeprefix(_MAPPED) if len(address) == 32 else address, port
