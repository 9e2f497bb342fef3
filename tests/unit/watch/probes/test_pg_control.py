"""The control file is believed only where its checksum holds and its layout is known."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dba_console.watch.probes.host.data_directory import (
    DamagedControl,
    crc32c,
    parse_control,
    parse_lock_file,
    read_control_file,
)
from tests.unit.watch.probes.proc_trees import write_tree

IDENTIFIER = 7710285197596298920


def control_file(version: int, *, crc_at: int = 288) -> bytes:
    """A control file as a 64-bit little-endian server writes it: the fields read here, the rest zero."""
    data = bytearray(8192)
    struct.pack_into("<QIIi", data, 0, IDENTIFIER, version, 202209061, 6)
    struct.pack_into("<I", data, 48, 3)
    struct.pack_into("<Q", data, 64, (1 << 32) + 724)
    struct.pack_into("<I", data, 84, 716)
    struct.pack_into("<II", data, 136, 0x3000060, 1)
    struct.pack_into("<i", data, 180, 250)
    struct.pack_into("<I", data, 252, 1)
    struct.pack_into("<I", data, crc_at, crc32c(bytes(data[:crc_at])))
    return bytes(data)


@pytest.mark.parametrize(("version", "crc_at"), [(1201, 288), (1300, 288), (1700, 288), (1800, 292)])
def test_a_known_control_file_version_is_read(version: int, crc_at: int) -> None:
    control = parse_control(control_file(version, crc_at=crc_at))
    assert control.system_identifier == str(IDENTIFIER)
    assert (control.state, control.timeline, control.max_connections) == ("in production", 3, 250)
    assert (control.next_xid, control.oldest_xid) == ((1 << 32) + 724, 716)
    assert control.data_checksums is True
    assert control.min_recovery_lsn == "1/3000060"


def test_an_unknown_version_gives_its_identifier_and_nothing_else() -> None:
    control = parse_control(control_file(1905))
    assert (control.system_identifier, control.version_number) == (str(IDENTIFIER), 1905)
    assert (control.state, control.timeline, control.data_checksums, control.next_xid) == (None,) * 4


@pytest.mark.parametrize("at", [8, 20, 64, 180, 252, 287, 288])
def test_one_changed_bit_is_detected(at: int) -> None:
    data = bytearray(control_file(1300))
    data[at] ^= 0x40
    try:
        changed = parse_control(bytes(data))
    except DamagedControl:
        return
    assert changed.state is None, "a changed version number makes the layout unknown, and nothing of it is told"


def test_another_byte_order_is_not_misread() -> None:
    data = bytearray(control_file(1300))
    data[8:12] = data[8:12][::-1]
    with pytest.raises(DamagedControl):
        parse_control(bytes(data))


@pytest.mark.parametrize("size", [0, 15, 200, 290])
def test_a_truncated_file_is_damaged(size: int) -> None:
    with pytest.raises(DamagedControl):
        parse_control(control_file(1300)[:size])


def test_a_data_directory_identifies_its_server_while_it_is_down(tmp_path: Path) -> None:
    lock = f"812\n{tmp_path}\n1795190666\n6515\n/run/postgresql\n*\n"
    files: dict[str, str | bytes] = {
        "PG_VERSION": "15\n",
        "postmaster.pid": lock,
        "global/pg_control": control_file(1300),
    }
    reading, status, note = read_control_file(write_tree(tmp_path, files), "/pg")
    assert (status, note) == ("ok", None)
    assert (reading.major, reading.port, reading.postmaster_pid) == (15, 6515, 812)
    assert reading.data_directory == "/pg"


def test_a_stopped_server_has_no_pid_but_its_identity(tmp_path: Path) -> None:
    reading, _, _ = read_control_file(write_tree(tmp_path, {"global/pg_control": control_file(1300)}), "/pg")
    assert reading.postmaster_pid is reading.port is reading.major is None
    assert reading.system_identifier == str(IDENTIFIER)


def test_an_unsupported_version_is_reported(tmp_path: Path) -> None:
    reading, status, note = read_control_file(write_tree(tmp_path, {"global/pg_control": control_file(1905)}), "/pg")
    assert status == "unsupported"
    assert note is not None
    assert "1905" in note
    assert reading.system_identifier == str(IDENTIFIER)


def test_a_damaged_control_file_is_an_error_and_not_zeros(tmp_path: Path) -> None:
    damaged = b"\1" * 16 + control_file(1300)[16:]
    reading, status, note = read_control_file(write_tree(tmp_path, {"global/pg_control": damaged}), "/pg")
    assert status == "error"
    assert note is not None
    assert reading.system_identifier is None


def test_a_half_written_lock_file_is_read_as_far_as_possible() -> None:
    lock = parse_lock_file("812\n/pg/data\n")
    assert lock is not None
    assert (lock.pid, lock.data_directory, lock.port) == (812, "/pg/data", None)
    assert parse_lock_file("") is None
