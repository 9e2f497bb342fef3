"""Find the inputs and results that SQL, shell code and settings refer to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from dba_console.recording.plan import Confirmation
from dba_console.runbooks.values import PHRASE_REFERENCE, REFERENCE, WHOLE

SHELL = re.compile(r"\$(?:RB_(\w+)|\{RB_(\w+)[^}]*\})")
"""`$RB_name`, `${RB_name}`, `${RB_name:-…}`."""
_COUNTED = re.compile(r"\(\((.*?)(?:\)\)|\Z)", re.DOTALL)
"""Shell arithmetic, where a name without `$` means its value."""
_BARE = re.compile(r"(?<![\w${])RB_(\w+)")


def sql_references(text: str) -> list[str]:
    """Return the names of bound values and identifiers, without duplicates, in order."""
    return list(dict.fromkeys(match[1].partition(".")[0] for match in REFERENCE.finditer(text)))


def phrase_references(confirmation: Confirmation | None) -> list[str]:
    """Return the names of the inputs that must be typed."""
    return [] if confirmation is None else PHRASE_REFERENCE.findall(confirmation.text)


def shell_references(text: str, known: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the known and the unknown names that it reads: `RB_copy_exit` is `exit` of the result `copy`."""
    names: list[str] = []
    unknown: list[str] = []
    for variable in _shell_names(text):
        owner = next((name for name in known if variable == name or variable.startswith(f"{name}_")), None)
        (unknown if owner is None else names).append(owner or variable)
    return list(dict.fromkeys(names)), list(dict.fromkeys(unknown))


def _shell_names(text: str) -> Iterator[str]:
    for match in SHELL.finditer(text):
        yield match[1] or match[2]
    for counted in _COUNTED.finditer(text):
        for match in _BARE.finditer(counted[1]):
            yield match[1]


def settings_references(settings: Any) -> Iterator[str]:
    """Yield the names of references that are a whole value."""
    if isinstance(settings, str):
        if match := WHOLE.fullmatch(settings):
            yield match[1]
    elif isinstance(settings, dict):
        for value in settings.values():
            yield from settings_references(value)
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            yield from settings_references(value)
