"""The guard removes what is ours and nothing else; a leash ends what is on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.cleanup_process import CleanupProcess
from tests.background import wait_until


def close_pipe(guard: CleanupProcess) -> None:
    """Close the guard's pipe without a word, as the death of its parent does, and wait for it to finish."""
    assert guard._process.stdin is not None
    guard._process.stdin.close()
    guard._process.wait(30)


def test_an_abandoned_cleanup_process_removes_temporary_files(tmp_path: Path) -> None:
    temporary, kept = tmp_path / "a b", tmp_path / "kept"
    temporary.mkdir()
    kept.mkdir()
    close_pipe(CleanupProcess([temporary / "data" / "postmaster.pid"], [temporary]))
    assert not temporary.exists()
    assert kept.exists()


def test_a_released_cleanup_process_removes_nothing(tmp_path: Path) -> None:
    guard = CleanupProcess([tmp_path / "postmaster.pid"], [tmp_path])
    guard.release()
    guard.release()
    assert tmp_path.exists()


def test_a_cleanup_process_spares_a_process_that_reused_the_server_pid(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "postmaster.pid").write_text(f"{stranger.pid}\n{tmp_path}\n")
        close_pipe(CleanupProcess([tmp_path / "postmaster.pid"]))
        assert stranger.poll() is None


def test_a_cleanup_process_ends_the_process_in_its_data_directory(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=tmp_path) as server:
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n{tmp_path}\n")
        server.send_signal(signal.SIGSTOP)
        guard = CleanupProcess([tmp_path / "postmaster.pid"])
        assert guard._process.stdin is not None
        guard._process.stdin.close()
        assert server.wait(30) == -signal.SIGQUIT
        guard._process.wait(30)


def test_a_child_process_ends_with_its_parent() -> None:
    script = (
        "import sys; from dba_console.demo.child_processes import start_child;"
        "print(start_child(['cat'], stdin=-1).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        holder.kill()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"), what="the end of what was on the leash")


def test_a_process_that_ignores_signals_is_killed() -> None:
    deaf = start_child(
        ["sh", "-c", "trap '' TERM; echo deaf; while :; do read -r line || :; done"], output=subprocess.PIPE
    )
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == b"deaf\n"
    end_child(deaf, patience_s=0.1)
    assert deaf.returncode == -signal.SIGKILL
