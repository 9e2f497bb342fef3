"""Programs of the host that help in an incident. The console itself needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dba_console.cli.doctor.check import DoctorCheck, missing, ok

TOOLS = "tools"


class Tool(NamedTuple):
    """A program, what is lost without it, and the package it comes in (Debian, Red Hat)."""

    name: str
    lost: str
    debian: str
    redhat: str


_TOOLS = (
    Tool("tmux", "a terminal that outlives a dropped SSH session (the agent does so anyway)", "tmux", "tmux"),
    Tool("psql", "acting on what is seen: the console only reads", "postgresql-client", "postgresql"),
    Tool("pg_dump", "dumping from this host", "postgresql-client", "postgresql"),
    Tool("pg_restore", "restoring from this host", "postgresql-client", "postgresql"),
    Tool("pg_basebackup", "base backups taken from this host", "postgresql-client", "postgresql"),
    Tool("iostat", "a second opinion on the I/O panel", "sysstat", "sysstat"),
    Tool("vmstat", "a second opinion on the memory panel", "procps", "procps-ng"),
    Tool("lsof", "finding who holds a deleted file open", "lsof", "lsof"),
)


def check_tools(which: Callable[[str], str | None]) -> Iterator[DoctorCheck]:
    """One check per program; `which` gives its path or None, as shutil.which."""
    installer = "apt-get install" if which("apt-get") else "dnf install" if which("dnf") else None
    for tool in _TOOLS:
        path = which(tool.name)
        if path is not None:
            yield ok(TOOLS, tool.name, f"{tool.name}: {path}")
            continue
        package = tool.redhat if installer == "dnf install" else tool.debian
        fix = f"{installer} {package}" if installer else f"install {tool.name}"
        yield missing(TOOLS, tool.name, f"{tool.name} is not installed", lost=tool.lost, fix=fix)
