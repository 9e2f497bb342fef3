"""What shrink-file does not touch."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.actions.action import ActionContext
from dba_console.actions.shrink import candidate
from dba_console.actions.shrink.candidate import SUFFIX
from dba_console.demo.temporary_server import Cluster
from tests.actions.shrink_files import big_file, context_without_processes, refusal
from tests.requirements import require_tool
from tests.sql import query


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    return context_without_processes(tmp_path)


def test_a_missing_file_is_refused(context: ActionContext, tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone", context) == f"file {tmp_path}/gone does not exist"


def test_a_relative_path_is_refused(context: ActionContext) -> None:
    assert "is not an absolute path" in refusal(Path("oldest.dump"), context)


def test_a_symbolic_link_is_refused(context: ActionContext, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(big_file(tmp_path, 1))
    assert refusal(link, context) == f"{link} is a symbolic link"


def test_a_hard_link_is_refused(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    os.link(path, tmp_path / "kept")
    assert "has 2 names (hard links)" in refusal(path, context)


def test_a_directory_and_a_pipe_are_refused(context: ActionContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in refusal(tmp_path, context)
    assert "is not a regular file" in refusal(tmp_path / "pipe", context)


def test_a_file_next_to_an_unfinished_deletion_is_refused(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    big_file(tmp_path, 1, path.name + SUFFIX)
    assert "both" in refusal(path, context)


def test_an_open_file_is_refused_and_its_process_is_named(tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    script = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        reported = refusal(path, ActionContext())
        child.kill()
    assert f"{path} is open in " in reported
    assert f"(process {child.pid})" in reported


def test_an_open_file_is_refused_where_proc_does_not_show_it(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    with path.open("rb"):
        assert "the kernel reports that it is open" in refusal(path, context)


def test_a_mapped_file_is_refused_even_if_closed(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert "is in use" in refusal(path, context)
    mapped.close()
    assert refusal(path, context) == ""


def test_a_file_in_the_data_directory_of_a_running_server_is_refused(cluster: Cluster) -> None:
    path = big_file(cluster.data_directory, 1)
    try:
        assert "is in the data directory of the server" in refusal(path, ActionContext())
        assert "is in the data directory" in refusal(path, ActionContext(), stopped_cluster=True)
    finally:
        path.unlink()


def test_a_file_in_a_tablespace_of_a_running_server_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    place = cluster.data_directory.parent / "space"
    place.mkdir()
    if os.geteuid() == 0:
        owner = cluster.data_directory.stat()
        os.chown(place, owner.st_uid, owner.st_gid)
    query(cluster, f"create tablespace shrink_test location '{place}'")
    path = big_file(place, 1)
    try:
        assert "is in the tablespace" in refusal(path, ActionContext())
    finally:
        path.unlink()
        query(cluster, "drop tablespace shrink_test")
        place.rmdir()


def test_a_file_under_another_path_of_a_server_directory_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    path = big_file(cluster.data_directory / "pg_wal", 1)
    (tmp_path / "elsewhere").symlink_to(cluster.data_directory / "pg_wal")
    try:
        assert "is in pg_wal of the server" in refusal(tmp_path / "elsewhere" / path.name, ActionContext())
    finally:
        path.unlink()


def test_a_data_directory_is_found_through_any_links(cluster: Cluster) -> None:
    places = candidate.find_server_directories().known
    status = cluster.data_directory.stat()
    assert "the data directory of the server" in places[status.st_dev, status.st_ino]


def test_a_server_programs_working_directory_is_its_data_directory_only_if_it_contains_one(tmp_path: Path) -> None:
    """A server that is starting runs where it was started, which may be `/`, for a moment."""
    program = tmp_path / "postgres"
    shutil.copy(require_tool("cat"), program)
    path = big_file(tmp_path, 1)
    with subprocess.Popen([program], cwd=tmp_path, stdin=subprocess.PIPE):
        assert refusal(path, ActionContext()) == ""
        (tmp_path / "PG_VERSION").write_text("15\n")
        assert "is in the data directory of the server" in refusal(path, ActionContext())


def test_a_file_of_a_stopped_server_is_refused_unless_that_server_is_declared_dead(
    context: ActionContext, tmp_path: Path
) -> None:
    (tmp_path / "old" / "global").mkdir(parents=True)
    (tmp_path / "old" / "PG_VERSION").write_text("15\n")
    (tmp_path / "old" / "global" / "pg_control").touch()
    path = big_file(tmp_path / "old", 1)
    assert "whose server does not run here" in refusal(path, context)
    assert refusal(path, context, stopped_cluster=True) == ""


def test_a_file_in_a_tablespace_or_wal_directory_of_a_stopped_server_is_refused(
    context: ActionContext, tmp_path: Path
) -> None:
    space = tmp_path / "space" / "PG_15_202209061" / "5"
    space.mkdir(parents=True)
    (tmp_path / "wal" / "archive_status").mkdir(parents=True)
    assert f"the tablespace {tmp_path}/space" in refusal(big_file(space, 1, "16384"), context)
    segment = big_file(tmp_path / "wal", 1, "000000010000000000000001")
    assert f"the WAL directory {tmp_path}/wal" in refusal(segment, context)


def test_a_file_on_a_network_file_system_is_refused(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 1)
    mount = f"90 1 0:50 / {tmp_path} rw - nfs4 filer:/backup rw\n"
    with Path(context.proc, "self", "mountinfo").open("a") as file:
        file.write(mount)
    assert "is on nfs4" in refusal(path, context)
