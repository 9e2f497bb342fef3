"""A command as a user other than root, also where the tests run as root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.agent.agents import environment
from tests.requirements import lacking, require_tool


def demo_without_root(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`dba-console demo` to its end, its sessions below `place`.

    As root it runs in a user namespace without a mapping: nobody by every rule of the host, PostgreSQL's included, yet
    able to read what root installed.
    """
    return subprocess.run(
        [*_unprivileged(), sys.executable, "-m", "dba_console", "demo", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, **environment(directory)},
    )  # fmt: skip


def _unprivileged() -> list[str]:
    if os.geteuid() != 0:
        return []
    command = [require_tool("unshare"), "--user"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        lacking("this kernel lets nobody make a user namespace")
    return command
