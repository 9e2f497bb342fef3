"""Golden texts: what a screen looks like, in files a person reviews.

`UPDATE_GOLDENS=1` writes them again; the commit then shows the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dba_console.watch.drawing.text_elements import Line, line_text

_DIRECTORY = Path(__file__).parent / "golden"


def text_of(lines: Iterable[Line]) -> str:
    """The lines as text, each ending in a newline, without trailing blanks."""
    return "".join(line_text(one) + "\n" for one in lines)


def assert_golden(name: str, text: str) -> None:
    """`text` is what the file `golden/NAME.txt` says, sign by sign."""
    path = _DIRECTORY / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden text {path.name}: run with UPDATE_GOLDENS=1 and review it"
    assert text == path.read_text(encoding="utf-8")
