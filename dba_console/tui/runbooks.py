"""Runbooks on the screen: the list of them with the runs there are, and one of them to be read before it is begun."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dba_console.frames.model import Finding
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Style, Table, clean, fit_line, line
from dba_console.panels.tables import arranged
from dba_console.panels.text import rule
from dba_console.panels.wrapping import wrap_lines
from dba_console.plans.plan import Plan
from dba_console.tui.detail import DetailView
from dba_console.tui.keys import Where
from dba_console.tui.pages import Page
from dba_console.tui.runs import KnownRun, Runs
from dba_console.tui.shelf import Book, BooksArrived
from dba_console.tui.view import Scene
from dba_console.units import UNKNOWN
from dba_console.walkthrough.page import runbook_lines
from dba_console.walkthrough.text import texts

_RUN = "run "
"""What the key of a run's row begins with; a runbook's is `book `."""
_BOOK = "book "

_RUN_COLUMNS = (
    Column("run", "run", 36),
    Column("state", "state", 30),
    Column("title", "what", 40, grow=True),
)
_BOOK_COLUMNS = (
    Column("id", "runbook", 20, sort_key="R"),
    Column("title", "what it is for", 44, grow=True),
    Column("answers", "answers", 24, spare=2),
    Column("source", "from", 30, spare=1),
)


class RunbooksView(DetailView):
    """Runs first, then runbooks. Known without any frame: it works where no server answers."""

    where: Where = "runbooks"

    def __init__(self, books: Callable[[], BooksArrived | None], runs: Runs) -> None:
        super().__init__("runbooks")
        self._books = books
        self._runs = runs
        self._laid: object = None
        self._turned = False

    @property
    def hints(self) -> tuple[str, ...]:
        turn = ("table_next",) if len(self._grids) > 1 else ()
        return ("back", "choose", *turn, "filter", "help", "quit")

    @property
    def chosen_run(self) -> str | None:
        """The run the selected row is about."""
        key = self._key()
        return key.removeprefix(_RUN) if key.startswith(_RUN) else None

    @property
    def chosen_book(self) -> str | None:
        """The runbook the selected row is about."""
        key = self._key()
        return key.removeprefix(_BOOK) if key.startswith(_BOOK) else None

    @property
    def pressed(self) -> str | None:
        """The selected row: a press on it opens it."""
        return self._key() or None

    def _key(self) -> str:
        return "" if self.grid is None or self.grid.gone else self.grid.selected or ""

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        books = self._books()
        state = (books, self._runs.changed, width)
        if state != self._laid:
            self._laid, self._width = state, width
            self._head = [fit_line(rule(line(Span("Runbooks", "title")), width), width), *_trouble(books, width)]
            self._update(_lists(books, self._runs.all, width))
            self._begin_with_what_is_open()
        grid = self.grid
        if grid is not None and grid.rows and (grid.selected is None or grid.gone):
            grid.select(0)  # nothing is done to a row here: another one in its place does no harm
        return self._drawn(width, height)

    def _begin_with_what_is_open(self) -> None:
        """The keys act on runs while one is open, else on runbooks, until the operator turns to the other."""
        if not self._turned:
            open_run = any(not known.ended for known in self._runs.all)
            self._current = "runs" if open_run else "books"

    def click(self, row: int, column: int) -> str | None:
        self._turned = True
        return super().click(row, column)

    def do_table_next(self) -> None:
        self._turned = True
        super().do_table_next()

    def do_table_previous(self) -> None:
        self._turned = True
        super().do_table_previous()

    def back(self) -> bool:
        if self.grid is not None:
            self.grid.unselect()
        return super().back()


def _trouble(books: BooksArrived | None, width: int) -> list[Line]:
    if books is None:
        return [line(Span(" reading the runbooks …", "dim"))]
    return wrap_lines([line(Span(f" {clean(books.trouble)}", "warn"))], width) if books.trouble else []


def _lists(books: BooksArrived | None, runs: list[KnownRun], width: int) -> Detail:
    tables = []
    if runs:
        tables.append(Table("runs", _RUN_COLUMNS, tuple(map(_run_row, runs)), None, "Runs"))
    rows = tuple(map(_book_row, books.books if books is not None else ()))
    tables.append(Table("books", _BOOK_COLUMNS, rows, None, "Runbooks", "no runbook was found"))
    return Detail("Runbooks", (), tuple(arranged(table, width) for table in tables))


def _run_row(known: KnownRun) -> Row:
    told = known.told
    words = "waits for you" if known.asks_me else "waits for an answer" if told.asks else told.state
    wanted = known.asks_me or told.state == "interrupted"
    cells = (Cell(clean(told.run)), Cell(words, words, "warn" if wanted else ""), Cell(clean(told.title)))
    driver = "" if known.view is None or not known.view.driver else f", driven by {clean(known.view.driver)}"
    return Row(_RUN + told.run, cells, (line(f"{clean(told.title)}: {words}{driver}"),))


def _book_row(book: Book) -> Row:
    answers = "" if book.plan is None else ", ".join(book.plan.answers)
    style: Style = "" if book.plan is not None else "warn"
    title = clean(book.title) if book.plan is not None else f"does not compile: {clean(next(iter(book.problems), ''))}"
    cells = (
        Cell(clean(book.id), book.id), Cell(title, book.title, style), Cell(clean(answers)),
        Cell(clean(book.origin or book.source)),
    )  # fmt: skip
    return Row(_BOOK + book.id, cells, (line(f"{title}"), line(Span(clean(book.source), "dim"))))


class RunbookPage(Page):
    """One runbook: why, when not, inputs, plan. Holds what was given for its inputs until it is begun."""

    where: Where = "runbook"

    def __init__(self, book_id: str, books: Callable[[], BooksArrived | None], finding: Finding | None = None) -> None:
        super().__init__()
        self.book_id = book_id
        self._finding = finding
        self.given: dict[str, str] = {}
        self._books = books

    @property
    def book(self) -> Book | None:
        """The runbook, None where it has not been read, or is not there."""
        books = self._books()
        return None if books is None else books.find(self.book_id)

    @property
    def found(self) -> Mapping[str, str]:
        """What the finding it is to answer says of its inputs: offered, and used only once somebody has taken it."""
        plan = None if self.book is None else self.book.plan
        return {} if plan is None or self._finding is None else said_by(self._finding.evidence, plan)

    @property
    def hints(self) -> tuple[str, ...]:
        plan = None if self.book is None else self.book.plan
        if plan is None:
            return ("back", "help", "quit")
        return ("back", *(("inputs",) if plan.inputs else ()), "begin", "rehearse", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        book = self.book
        title = clean(self.book_id if book is None else book.title)
        head = fit_line(rule(line(Span(title, "title"), Span(f" · {clean(self.book_id)}", "dim")), width), width)
        lines = [line(" ", *one) if one else () for one in self._told(book, width - 2)]
        return [head, *self.scrolled(lines, height - 1)]

    def do_top(self) -> None:
        self._top = 0

    def _told(self, book: Book | None, cells: int) -> list[Line]:
        if book is None:
            books = self._books()
            if books is None:
                return [line(Span("reading the runbooks …", "dim"))]
            return texts(books.trouble or f"there is no runbook {self.book_id}", cells, "warn")
        if book.plan is None:
            return [
                line(Span("It does not compile:", "warn")),
                *(x for one in book.problems for x in texts(one, cells)),
            ]
        return runbook_lines(book.plan, self.given, cells, self.found)


_CUT = re.compile("[…\u2400-\u2426\ufffd]")
"""In what a sentence says of a name, where the name is another."""


def said_by(evidence: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """The inputs of a plan that the numbers of a finding name, whole: by their own name, or as who holds most of it.

    >>> from dba_console.plans.plan import Input
    >>> plan = Plan(id="x", title="", inputs=(Input(name="application", type="text"), Input(name="used", type="int")))
    >>> said_by({"holder_application": "shop-jobs", "used": 7}, plan), said_by({"application": "cut short…"}, plan)
    ({'application': 'shop-jobs'}, {})
    """
    found: dict[str, str] = {}
    for one in plan.inputs:
        value = evidence.get(one.name) or evidence.get(f"holder_{one.name}")
        if isinstance(value, str) and value != UNKNOWN and not one.secret and not _CUT.search(value):
            found[one.name] = value
    return found
