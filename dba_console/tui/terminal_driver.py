"""Textual's Linux driver with one thing more: nothing is written to a terminal that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from dba_console.tui.console import ConsoleApp


class ConsoleDriver(LinuxDriver):
    """Writes until the guard says that the terminal hung up."""

    def write(self, data: str) -> None:
        guard = cast("ConsoleApp", self._app).guard
        if guard is None or not guard.hung_up:
            super().write(data)
