"""The kernel's words about sockets are understood, and what it does not say is not made up."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.jobs.following.session_matching import (
    SessionProcesses,
    parse_peer,
    tcp_peers,
    unix_peers,
)
from dba_console.watch.probes.host.kernel_files import parse_connections


def inode(connected: socket.socket) -> int:
    return os.fstat(connected.fileno()).st_ino


def test_the_kernel_gives_the_other_end_of_a_unix_socket() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert unix_peers([inode(one), inode(other)]) == {inode(one): inode(other), inode(other): inode(one)}
        other.close()
        assert unix_peers([inode(one)]) == {}


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_gives_the_other_end_of_a_connection_within_this_host(
    family: socket.AddressFamily, address: str
) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((address, 0))
        except OSError:
            pytest.skip(f"there is no {address} on this machine")
        listening.listen()
        with socket.create_connection(listening.getsockname()[:2]) as client, listening.accept()[0] as accepted:
            assert tcp_peers([inode(client)]) == {inode(client): inode(accepted)}
            assert tcp_peers([inode(accepted)]) == {inode(accepted): inode(client)}
            assert tcp_peers([inode(listening)]) == {}


def test_an_unknown_socket_has_no_other_end() -> None:
    assert unix_peers([2**32 - 2]) == {} and tcp_peers([2**32 - 2]) == {}
    assert unix_peers([]) == {} and tcp_peers([]) == {}


def test_an_ipv4_address_mapped_into_ipv6_is_that_address() -> None:
    mapped = b"0000000000000000FFFF00000100007F:1538"
    line = b" 0: %s 0100007F:CB20 01 0:0 0:0 0 112 0 7541 1" % mapped
    assert list(parse_connections(b"head\n" + line)) == [((b"0100007F", b"1538"), (b"0100007F", b"CB20"), 112, 7541)]


def test_only_established_connections_count() -> None:
    assert list(parse_connections(b"head\n 0: A:1 B:2 0A 0:0 0:0 0 112 0 7541 1\n cut short\n")) == []


@given(st.binary(max_size=80))
def test_no_answer_makes_it_read_beyond_its_end(tail: bytes) -> None:
    answer = struct.pack("=IHHII", 16 + len(tail), 20, 0, 1, 0) + tail
    assert parse_peer(answer) is None or len(tail) >= 24


def test_a_refusal_is_distinguished_from_an_absence() -> None:
    def error(code: int) -> bytes:
        return struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -code) + bytes(16)

    assert parse_peer(error(2)) is None
    with pytest.raises(OSError, match="refused"):
        parse_peer(error(13))


def test_an_inherited_socket_belongs_to_the_process_named_first() -> None:
    one, other = socket.socketpair()
    with one, other, cat(other) as backend, cat(one) as child:
        us, peers = os.getpid(), SessionProcesses()
        assert peers.read([backend.pid], [child.pid, us]) == {backend.pid: child.pid}
        assert peers.read([backend.pid], [us, child.pid]) == {backend.pid: us}
        assert peers.read([backend.pid], []) == {} and peers.notes
        for one_of_them in (backend, child):
            assert one_of_them.stdin is not None
            one_of_them.stdin.close()


def cat(inherits: socket.socket) -> subprocess.Popen[bytes]:
    """A process with few descriptors, unlike this one late in a run, and this socket among them."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[inherits.fileno()])
