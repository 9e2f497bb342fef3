"""Which servers run on a host, and what is known of each."""

from __future__ import annotations

from pathlib import Path

from dba_console.watch.probes.host.postmasters import Postmaster, find_postmasters, listening_sockets
from tests.unit.watch.probes.proc_trees import stat_line, write_tree

UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 9978049 /run/postgresql/.s.PGSQL.5432
0000000000000000: 00000003 00000000 00000000 0001 03 9978050 /run/postgresql/.s.PGSQL.5433
0000000000000000: 00000002 00000000 00010000 0001 01 9978051 /run/other.sock
"""
START_S = 1_700_000_500


def host(tmp_path: Path, *, cwd: bool = True) -> tuple[str, str]:
    """A postmaster (100) with a backend (101), and a shell; gives /proc and the data directory."""
    data = tmp_path / "pg data"
    data.mkdir()
    files: dict[str, str | bytes] = {
        "50/stat": stat_line(50, command="bash"),
        "100/stat": stat_line(100, start=50_000),
        "101/stat": stat_line(101, parent=100, start=50_100),
        "100/cmdline": f"/usr/bin/postgres\0-D\0{data}\0-c\0port=5432\0".encode(),
    }
    proc = Path(write_tree(tmp_path / "proc", files))
    if cwd:
        for pid in (100, 101):
            (proc / str(pid) / "cwd").symlink_to(data)
    return str(proc), str(data)


def lock(data: str, *, pid: int = 100, start_s: int = START_S) -> None:
    write_tree(Path(data), {"postmaster.pid": f"{pid}\n{data}\n{start_s}\n5432\n/run/postgresql\n*\n"})


def test_a_postmaster_is_found_with_the_data_of_its_lock_file(tmp_path: Path) -> None:
    proc, data = host(tmp_path)
    lock(data)
    assert find_postmasters(proc) == [Postmaster(100, 50_000, data, 5432, "/run/postgresql", START_S)]


def test_without_access_to_its_files_the_arguments_and_sockets_are_used(tmp_path: Path) -> None:
    proc, data = host(tmp_path, cwd=False)
    write_tree(Path(proc), {"net/unix": UNIX})
    [found] = find_postmasters(proc)
    assert (found.data_directory, found.port, found.socket_directory) == (data, 5432, "/run/postgresql")
    assert found.start_s is None


def test_only_listening_sockets_count(tmp_path: Path) -> None:
    assert listening_sockets(write_tree(tmp_path, {"net/unix": UNIX})) == [("/run/postgresql", 5432)]


def test_a_server_in_a_container_is_not_given_the_port_of_another_server(tmp_path: Path) -> None:
    proc, data = host(tmp_path)
    lock(data, pid=1)
    assert find_postmasters(proc) == [Postmaster(100, 50_000, data)]


def test_a_single_user_backend_is_not_a_server(tmp_path: Path) -> None:
    proc, data = host(tmp_path)
    lock(data, pid=-100)
    assert find_postmasters(proc) == []
