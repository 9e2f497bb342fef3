"""Sessions and locks on the screen: panels whose rows are backends, of which some can be chosen to be acted on."""

from __future__ import annotations

from typing import Any

from dba_console.tui.keys import ScreenName
from dba_console.tui.panel_detail import DetailView

BACKEND_PANELS = frozenset({"sessions", "locks"})
"""Whose rows are keyed by pid and start of the backend."""


def parse_backend_key(key: str) -> dict[str, Any] | None:
    """The backend a row is about; None where it is none (a prepared transaction), or its start is not known.

    >>> parse_backend_key("812 2026-11-20T14:53:07.000000Z 100")
    {'pid': 812, 'backend_start': '2026-11-20T14:53:07.000000Z'}
    >>> parse_backend_key("0 None ") is None
    True
    """
    pid, _, rest = key.partition(" ")
    start = rest.partition(" ")[0]
    if not pid.isdigit() or pid == "0" or start in ("", "None"):
        return None
    return {"pid": int(pid), "backend_start": start}


class BackendsView(DetailView):
    """A table of backends. Rows are ticked by identity: a tick stays with its backend, wherever it is sorted to."""

    where: ScreenName = "backends"

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "row", "tick", "cancel", "terminate", "filter", "space", "time", "help", "quit")

    def do_tick(self) -> None:
        """Choose the selected row, or take the choice back; the row below is selected then."""
        grid = self.grid
        if grid is not None and grid.selected is not None and not grid.gone:
            grid.tick(grid.selected)
            grid.move(1)
        elif grid is not None and grid.selected is None:
            grid.move(1)  # the first row is selected; nothing is chosen that nobody saw selected

    def chosen_backends(self) -> tuple[list[dict[str, Any]], int]:
        """The backends to act on, the ticked rows or else the selected one, and how many ticked are gone."""
        grid = self.grid
        if grid is None:
            return [], 0
        keys = grid.ticked or ({grid.selected} if grid.selected is not None and not grid.gone else set())
        there = [row.key for row in grid.table.rows if row.key in keys]
        found = {
            (one["pid"], one["backend_start"]): one for key in there if (one := parse_backend_key(key)) is not None
        }
        return list(found.values()), len(keys) - len(there)

    def untick(self) -> None:
        """What was chosen is acted on now: the next choice begins anew."""
        if self.grid is not None:
            self.grid.untick()

    def back(self) -> bool:
        """Ticks are taken back before the panel is left: none stays behind unseen."""
        if super().back():
            return True
        if self.grid is None or not self.grid.ticked:
            return False
        self.grid.untick()
        return True
