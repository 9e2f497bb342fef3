"""What is offered before all else: to put back what runs have left changed."""

from __future__ import annotations

from dba_console.agent.protocol import RunBegin
from dba_console.tui.owed import BOOK, OwedView, left
from dba_console.tui.runbook_actions import RunbookActions

OFFER_US = 60_000_000
"""After its first picture a console shows it by itself for so long: an agent that was just started has to look first.
Later it would come between the operator and a key."""


class OwedActions(RunbookActions):
    """Offered once in the life of a console; the finding stays."""

    _first_us: int | None = None
    _offered = False
    _wanted = False
    """The runbook is being read, to be begun."""

    def offer(self) -> bool:
        """Show it, where there is something and nothing else was begun. True where it did."""
        frame = self._navigator.frame() if not self._offered and self._navigator.link == "attached" else None
        if frame is None:
            return False
        self._first_us = frame.at_us if self._first_us is None else self._first_us
        self._offered = frame.at_us - self._first_us > OFFER_US
        if left(frame) is None:
            return False
        self._offered = True
        if self._stage.view is not self._stage.overview or self._stage.prompt is not None:
            return False
        self._shelf.want()
        self._stage.owed()
        return True

    def follow(self) -> bool:
        if self._wanted and self._navigator.books is not None:
            self._wanted = False
            self.do_put_back()
        return super().follow()

    def do_put_back(self) -> None:
        if not isinstance(self._stage.view, OwedView) or self._may_not_act():
            return
        if left(self._navigator.frame()) is None:
            self._navigator.notice = "nothing is left to be put back"
            return
        books = self._navigator.books
        book = None if books is None else books.find(BOOK)
        if books is None:
            self._wanted = True
            self._shelf.want()
            self._navigator.notice = "reading the runbook …"
        elif book is None:
            self._navigator.notice = f"there is no runbook {BOOK}{': ' + books.trouble if books.trouble else ''}"
        else:
            self.begin(RunBegin(text=book.text, source=book.source, mode="run"))
