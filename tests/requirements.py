"""What a test needs from the machine, and what happens where it is missing: a skip with its reason.

With DBA_CONSOLE_REQUIRE_ALL=1, as continuous integration sets it, a missing thing is a failure instead: there a test
that did not run has not passed.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def everything_required() -> bool:
    return os.environ.get("DBA_CONSOLE_REQUIRE_ALL", "") not in ("", "0")


def lacking(reason: str) -> NoReturn:
    """End this test: skipped for `reason`, or failed where everything is required."""
    if everything_required():
        pytest.fail(f"required, but missing: {reason}", pytrace=False)
    pytest.skip(reason)


def require_tool(name: str) -> str:
    """The path of a program this test runs. Administrators' directories are searched too."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return shutil.which(name, path=path) or lacking(f"there is no {name} on this machine")


def require_root() -> None:
    if os.geteuid() != 0:
        lacking("needs root")
