"""Meanings to terminal styles: the one table of colours.

Upheld here: only the terminal's own sixteen colours on its own background are used, at every depth, so what is
readable in the operator's theme stays readable; colour repeats what the text already says, and without it (`mono`)
weight and reverse video remain.
"""

from __future__ import annotations

from rich.style import Style as RichStyle

from dba_console.panels.text_elements import Style
from dba_console.tui.terminal import Colours

_COLOURED: dict[Style, str] = {
    "": "",
    "dim": "dim",
    "title": "bold",
    "ok": "green",
    "warn": "bold yellow",
    "crit": "bold red",
    "stale": "magenta",
    "changed": "cyan",
    "bar": "blue",
    "key": "cyan",
    "head": "bold",
    "selected": "reverse",
}
_MONO: dict[Style, str] = {
    "": "",
    "dim": "dim",
    "title": "bold",
    "ok": "",
    "warn": "bold",
    "crit": "bold reverse",
    "stale": "dim",
    "changed": "underline",
    "bar": "",
    "key": "bold",
    "head": "bold",
    "selected": "reverse",
}

StyleTable = dict[str, RichStyle]


def style_table(colours: Colours) -> StyleTable:
    """The Rich style of every meaning a span can have."""
    table = _MONO if colours == "mono" else _COLOURED
    return {name: RichStyle.parse(text) if text else RichStyle.null() for name, text in table.items()}
