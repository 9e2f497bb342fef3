"""The command palette (ctrl+p): the registry's keys by their names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from dba_console.tui.keys import Key, keys_of
from dba_console.tui.panel_keys import panel_titles

if TYPE_CHECKING:
    from dba_console.tui.console import ConsoleApp


class KeyCommands(Provider):
    """Every key of the screen as a command."""

    def _commands(self) -> Iterator[tuple[str, str, Key]]:
        titles = panel_titles()
        for key in keys_of(cast("ConsoleApp", self.app).view.where):
            if key.action == "palette":
                continue
            title = f"Panel: {titles[key.shown]}" if key.group == "panels" and key.shown in titles else key.title
            yield f"{title}  ({key.shown})", key.help, key

    async def discover(self) -> Hits:
        for text, help_text, key in self._commands():
            yield DiscoveryHit(Content(text), partial(self._act, key), text=text, help=help_text or None)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, help_text, key in self._commands():
            if (score := matcher.match(f"{text} {help_text}")) > 0:
                yield Hit(score, Content(text), partial(self._act, key), text=text, help=help_text or None)

    def _act(self, key: Key) -> None:
        cast("ConsoleApp", self.app).act(key)
