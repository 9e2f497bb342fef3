"""Print data on stdout: one JSON object per line, or aligned columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dba_console.cli.stdout import put
from dba_console.core.sanitize import escape_json
from dba_console.watch.drawing.text_elements import clean, fit, text_width


def print_json(value: Any) -> None:
    """Write one object on one line. NaN cannot appear: unknown is null. Terminal control characters are escaped."""
    put(escape_json(msgspec.json.encode(value).decode()))


def format_columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return rows in aligned columns, without trailing blanks; `right` are the columns of numbers.

    >>> print(format_columns(["id", "size"], [["a1", "9 kB"], ["b22", "10 kB"]], right=[1]))
    id    size
    a1    9 kB
    b22  10 kB
    """
    table = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(text_width(row[index]) for row in table) for index in range(len(head))]
    return "\n".join(
        "  ".join(fit(cell, widths[index], right=index in right) for index, cell in enumerate(row)).rstrip()
        for row in table
    )


# The note of a part as commands print it: sentence and hint separately.

_HINT_MARK = "\nhint: "


def split_note(note: str | None, otherwise: str) -> tuple[str, str | None]:
    """Return sentence and hint of a note, or `otherwise` without a note.

    >>> split_note("it is full\\nhint: wait", "?"), split_note(None, "no answer")
    (('it is full', 'wait'), ('no answer', None))
    """
    sentence, _, hint = (note or otherwise).partition(_HINT_MARK)
    return " ".join(sentence.split()), hint or None
