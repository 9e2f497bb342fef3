"""Tables of a panel: a list of columns, each with the field it shows and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing.phrases import integer, milliseconds, name_of, xids_text
from dba_console.watch.drawing.text_elements import Cell, Style, TableColumn
from dba_console.watch.panel import unit_of

NOT_APPLICABLE = Cell("–")

_FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": human_bytes,
    "bytes/s": lambda value: human_bytes(value, per_s=True),
    "s": human_duration,
    "1/s": partial(human_count, per_s=True),
    "%": human_pct,
    "ms": milliseconds,
    "transactions": xids_text,
    "multixacts": xids_text,
}
"""By the unit of the field."""


@dataclass(frozen=True, slots=True)
class Column(TableColumn):
    """A column that shows the field `id` of each row."""

    text: Callable[[Any], str] | None = None
    """Returns the text for a row, if it is more than its field; a blank is sorted last."""
    style: Callable[[Any], Style] | None = None
    """Returns the style for a row; without it an unknown number is dim."""
    applies: Callable[[Any], bool] | None = None
    """Returns whether the field means something for this row; else the cell is a dash."""
    value: Callable[[Any], Any] | None = None
    """Returns what a row is sorted by, if it is not its field."""
    optional: bool = False
    """A missing value is left blank, because most rows have none; else it is `?`."""

    def cell(self, row: Any) -> Cell:
        """Return the cell of a row."""
        if self.applies is not None and not self.applies(row):
            return NOT_APPLICABLE
        value = getattr(row, self.id) if self.value is None else self.value(row)
        if isinstance(value, list):
            value = ", ".join(value)
        style: Style = "stale" if self.right and value is None else ""
        text = self._text(row, value)
        return Cell(text, value if text else None, style if self.style is None else self.style(row))

    def _text(self, row: Any, value: Any) -> str:
        if value is None and self.optional:
            return ""
        if self.text is not None:
            return self.text(row)
        return _format(self.id, number=self.right)(value)


@cache
def _format(field: str, *, number: bool) -> Callable[[Any], str]:
    return _FORMATS.get(unit_of(field), integer if number else name_of)


def cells(columns: Sequence[Column], row: Any) -> tuple[Cell, ...]:
    """Return the cells of a row."""
    return tuple([column.cell(row) for column in columns])
