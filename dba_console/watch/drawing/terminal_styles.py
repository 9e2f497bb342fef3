"""What each meaning of a span looks like: the one table of colours, for the screen and for pictures of it.

Only the terminal's own 16 colours on its own background are used at every depth, so text stays readable in the
operator's theme. Colour only repeats what the text says.
"""

from __future__ import annotations

from dba_console.watch.drawing.text_elements import Style

COLOURED: dict[Style, str] = {
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
"""Words of a style: `bold`, `dim`, `reverse`, or the name of one of the first eight colours."""
