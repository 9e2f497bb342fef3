"""What is mounted where, read from the kernel's table alone."""

from __future__ import annotations

from dba_console.watch.probes.host.file_systems import choose_mounts, mount_of_path, parse_mountinfo, visible_mounts

TABLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
28 27 254:16 / /var/lib/postgresql rw,noatime shared:2 master:3 - xfs /dev/mapper/vg-pg rw,attr2
29 28 254:32 / /var/lib/postgresql/wal\040disk rw - ext4 /dev/vdc rw
30 27 0:50 / /run rw,nosuid - tmpfs tmpfs rw,size=10k
31 27 254:16 /sub /srv/bind rw - xfs /dev/mapper/vg-pg rw
32 27 0:60 / /backup rw - nfs4 nas:/export rw,vers=4.2
33 27 0:61 / /snap/core/1 ro - squashfs /dev/loop1 ro
34 27 0:62 / /auto rw - autofs systemd-1 rw
"""


def paths(holding: frozenset[str] = frozenset()) -> list[str]:
    return [entry.path for entry in choose_mounts(parse_mountinfo(TABLE), holding)]


def test_real_file_systems_are_shown_once_and_pseudo_ones_are_not() -> None:
    assert paths() == ["/", "/backup", "/var/lib/postgresql", "/var/lib/postgresql/wal disk"]


def test_a_bind_mount_or_tmpfs_is_shown_if_server_files_are_on_it() -> None:
    assert "/srv/bind" in paths(frozenset(("/srv/bind",)))
    assert "/run" in paths(frozenset(("/run",)))


def test_optional_fields_do_not_shift_the_rest() -> None:
    entry = next(entry for entry in parse_mountinfo(TABLE) if entry.path == "/var/lib/postgresql")
    assert (entry.fstype, entry.source, entry.device) == ("xfs", "/dev/mapper/vg-pg", "254:16")


def test_options_of_the_file_system_are_reported_with_those_of_the_mount() -> None:
    root = next(entry for entry in parse_mountinfo(TABLE) if entry.path == "/")
    assert root.options == "rw,relatime,discard"


def test_the_deepest_mount_contains_a_path() -> None:
    entries = parse_mountinfo(TABLE)
    wal = mount_of_path(entries, "/var/lib/postgresql/wal disk/pg_wal")
    beside = mount_of_path(entries, "/var/lib/postgresql/wal disks")
    assert wal is not None
    assert wal.device == "254:32"
    assert beside is not None
    assert beside.path == "/var/lib/postgresql"


def test_of_two_mounts_on_one_point_the_later_one_is_used() -> None:
    table = TABLE + b"40 27 8:0 / /backup rw - ext4 /dev/sdz rw\n"
    entries = parse_mountinfo(table)
    held = mount_of_path(entries, "/backup/x")
    assert held is not None
    assert held.source == "/dev/sdz"
    assert [entry.source for entry in visible_mounts(entries) if entry.path == "/backup"] == ["/dev/sdz"]


def test_a_damaged_line_hides_no_other() -> None:
    assert len(parse_mountinfo(b"gibberish\n" + TABLE)) == len(parse_mountinfo(TABLE))
