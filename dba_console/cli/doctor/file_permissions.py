"""Whether somebody else may write what the console reads, or where it writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dba_console.cli.doctor.check import DoctorCheck, missing, ok
from dba_console.path_trust import trust_problem

FILES = "files"


def check_files(config: Path, runbooks: Sequence[str], directories: Sequence[Path]) -> Iterator[DoctorCheck]:
    """The configuration, the runbooks' directories, and those of sessions, state and sockets."""
    refused = False
    for path, lost in (
        (config, "the configuration: commands refuse it"),
        *((Path(os.path.expanduser(one)), "its runbooks: they are not used") for one in runbooks),
        *((one, "what is to be written there") for one in directories),
    ):
        if (why := trust_problem(path)) is not None:
            refused = True
            yield missing(FILES, "others", f"{path}: {why.text}", lost=lost, fix=why.fix)
    if not refused:
        yield ok(FILES, "others", "nobody else may write the configuration, the runbooks or the recordings")
