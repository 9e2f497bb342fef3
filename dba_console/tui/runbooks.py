"""The views of runbooks: the list with the runs, and the page of one runbook before it is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dba_console.core.units import UNKNOWN
from dba_console.recording.plan import Input, Plan
from dba_console.runbooks.run_view import RunView
from dba_console.runbooks.walkthrough_text import texts
from dba_console.tui.keys import ScreenName
from dba_console.tui.known_runs import KnownRun, KnownRuns
from dba_console.tui.loaders import RunbooksArrived
from dba_console.tui.panel_detail import DetailView
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.watch.drawing.event_symbols import severity_sign, severity_style
from dba_console.watch.drawing.findings import sort_by_urgency, urgent_findings
from dba_console.watch.drawing.overview import title_rule
from dba_console.watch.drawing.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit_line,
    line,
    move_spare_columns_last,
    wrap_lines,
)
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.replication.panel import ReplicationPanel

if TYPE_CHECKING:
    from dba_console.runbooks.library import ListedRunbook

_RUN_PREFIX = "run "
"""Prefix of the key of a run's row; a runbook's is `book `."""
_RUNBOOK_PREFIX = "book "

_RUN_COLUMNS = (
    TableColumn("run", "run", 36),
    TableColumn("state", "state", 30),
    TableColumn("title", "what", 40, grow=True),
)
_RUNBOOK_COLUMNS = (
    TableColumn("id", "runbook", 20),
    TableColumn("title", "purpose", 44, grow=True),
    TableColumn("answers", "answers", 24, spare=2),
    TableColumn("source", "from", 30, spare=1),
)


class RunbooksView(DetailView):
    """Runs first, then runbooks. Needs no frame, so it works when no server answers."""

    where: ScreenName = "runbooks"
    always_selects = True

    def __init__(self, get_runbooks: Callable[[], RunbooksArrived | None], runs: KnownRuns) -> None:
        super().__init__("runbooks")
        self._get_runbooks = get_runbooks
        self._runs = runs
        self._laid_out_for: object = None
        self._table_chosen = False

    @property
    def hints(self) -> tuple[str, ...]:
        turn = ("table_next",) if len(self._grids) > 1 else ()
        return ("back", "choose", *turn, "filter", "help", "quit")

    @property
    def chosen_run(self) -> str | None:
        """The run of the selected row."""
        key = self.selected_key or ""
        return key.removeprefix(_RUN_PREFIX) if key.startswith(_RUN_PREFIX) else None

    @property
    def chosen_runbook(self) -> str | None:
        """The runbook of the selected row."""
        key = self.selected_key or ""
        return key.removeprefix(_RUNBOOK_PREFIX) if key.startswith(_RUNBOOK_PREFIX) else None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        runbooks = self._get_runbooks()
        calling = severities_by_runbook(scene.frame)
        state = (runbooks, self._runs.changed, width, calling)
        if state != self._laid_out_for:
            self._laid_out_for, self._width = state, width
            self._head = [
                fit_line(title_rule(line(Span("Runbooks", "title")), width), width),
                *_problem_lines(runbooks, width),
            ]
            self._update(_list_tables(runbooks, self._runs.all, width, calling))
            self._choose_initial_table()
        if self.grid.gone:
            self.grid.select(0)  # no action here changes a row, so selecting another one is harmless
        return self._fit_lines(width, height)

    def _choose_initial_table(self) -> None:
        """The keys act on runs while one is open, else on runbooks, until the operator switches."""
        if not self._table_chosen:
            open_run = any(not known.ended for known in self._runs.all)
            self._current = "runs" if open_run else "books"

    def click(self, row: int, column: int) -> str | None:
        self._table_chosen = True
        return super().click(row, column)

    def do_table_next(self) -> None:
        self._table_chosen = True
        super().do_table_next()

    def do_table_previous(self) -> None:
        self._table_chosen = True
        super().do_table_previous()


def _problem_lines(runbooks: RunbooksArrived | None, width: int) -> list[Line]:
    if runbooks is None:
        return [line(Span(" reading the runbooks …", "dim"))]
    return wrap_lines([line(Span(f" {clean(runbooks.problem)}", "warn"))], width) if runbooks.problem else []


def severities_by_runbook(frame: Frame | None) -> dict[str, str]:
    """Return the runbooks that open findings name, with the severity of the most urgent one, in order of urgency."""
    found = [] if frame is None else urgent_findings(sort_by_urgency(frame.findings))
    return {one.runbook: one.severity for one in reversed(found) if one.runbook}


def _list_tables(
    loaded: RunbooksArrived | None, runs: list[KnownRun], width: int, calling: Mapping[str, str]
) -> Detail:
    """`calling`: runbooks that open findings name; they come first, with the sign of the severity."""
    tables = []
    if runs:
        tables.append(Table("runs", _RUN_COLUMNS, tuple(map(_run_row, runs)), None, "Runs"))
    books = sorted(loaded.runbooks if loaded is not None else (), key=lambda one: one.entry.id not in calling)
    rows = tuple(_runbook_row(one, calling.get(one.entry.id)) for one in books)
    tables.append(
        Table("books", _RUNBOOK_COLUMNS, rows, None, "Runbooks", "no runbook found" if loaded is not None else "")
    )
    return Detail("Runbooks", (), tuple(move_spare_columns_last(table, width) for table in tables))


def _run_row(known: KnownRun) -> TableRow:
    summary = known.summary
    status_text = "needs your answer" if known.needs_my_answer else "needs an answer" if summary.asks else summary.state
    wanted = known.needs_my_answer or summary.state == "interrupted"
    cells = (
        Cell(clean(summary.run)),
        Cell(status_text, status_text, "warn" if wanted else ""),
        Cell(clean(summary.title)),
    )
    driver = "" if known.view is None or not known.view.driver else f", controlled by {clean(known.view.driver)}"
    return TableRow(_RUN_PREFIX + summary.run, cells, lambda: (line(f"{clean(summary.title)}: {status_text}{driver}"),))


def _runbook_row(runbook: ListedRunbook, severity: str | None) -> TableRow:
    """`severity`: of the open finding that names it; None if not found."""
    entry, compiles = runbook.entry, runbook.plan is not None
    name = clean(entry.id) if severity is None else f"{severity_sign(severity)} {clean(entry.id)}"
    title = clean(runbook.title) if compiles else f"has errors: {clean(runbook.error)}"
    cells = (
        Cell(name, entry.id, severity_style(severity or "")),
        Cell(title, runbook.title, "" if compiles else "warn"),
        Cell(clean(", ".join(runbook.answers) if compiles else "")),
        Cell(clean(entry.origin)),
    )
    where = "shipped with dba-console" if entry.shipped else clean(str(entry.path))
    return TableRow(_RUNBOOK_PREFIX + entry.id, cells, lambda: (line(title), line(Span(where, "dim"))))


class RunbookPage(ScrolledPage):
    """One runbook: why, when not, inputs, plan. Holds the given inputs until the run is started."""

    where: ScreenName = "runbook"

    def __init__(
        self, runbook_id: str, get_runbooks: Callable[[], RunbooksArrived | None], finding: Finding | None = None
    ) -> None:
        super().__init__()
        self.book_id = runbook_id
        self._finding = finding
        self.given: dict[str, str] = {}
        self._get_runbooks = get_runbooks

    @property
    def runbook(self) -> ListedRunbook | None:
        """The runbook; None if it has not been read or does not exist."""
        runbooks = self._get_runbooks()
        return None if runbooks is None else runbooks.find(self.book_id)

    @property
    def finding_inputs(self) -> Mapping[str, str]:
        """Values from the finding for the inputs: offered, and used only after the operator accepted them."""
        plan = None if self.runbook is None else self.runbook.plan
        return {} if plan is None or self._finding is None else inputs_from_evidence(self._finding.evidence, plan)

    @property
    def hints(self) -> tuple[str, ...]:
        plan = None if self.runbook is None else self.runbook.plan
        if plan is None:
            return ("back", "help", "quit")
        return ("back", *(("inputs",) if plan.inputs else ()), "begin", "rehearse", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        runbook = self.runbook
        title = clean(self.book_id if runbook is None else runbook.title or runbook.entry.id)
        head = fit_line(title_rule(line(Span(title, "title"), Span(f" · {clean(self.book_id)}", "dim")), width), width)
        lines = [line(" ", *one) if one else () for one in self._page_lines(runbook, width - 2)]
        return [head, *self.scrolled(lines, height - 1)]

    def copied_text(self) -> str:
        return "" if self.runbook is None else str(self.runbook.entry.path)

    def do_top(self) -> None:
        self._top = 0

    def _page_lines(self, runbook: ListedRunbook | None, cells: int) -> list[Line]:
        if runbook is None:
            runbooks = self._get_runbooks()
            if runbooks is None:
                return [line(Span("reading the runbooks …", "dim"))]
            return texts(runbooks.problem or f"runbook not found: {self.book_id}", cells, "warn")
        if runbook.plan is None:
            return [
                line(Span("It has errors:", "warn")),
                *(x for one in runbook.problems for x in texts(str(one), cells)),
            ]
        from dba_console.runbooks.outline import runbook_lines

        return runbook_lines(runbook.plan, self.given, cells, self.finding_inputs)


_ALTERED_TEXT = re.compile("[…\u2400-\u2426\ufffd]")
"""Characters that show that a name in a text was altered (cut or cleaned)."""


def inputs_from_evidence(evidence: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """Return the inputs of a plan that a finding's evidence names unaltered: by their own name, or as `holder_NAME`.

    >>> from dba_console.recording.plan import Input
    >>> plan = Plan(id="x", title="", inputs=(Input(name="application", type="text"), Input(name="used", type="int")))
    >>> holder, cut = {"holder_application": "shop-jobs", "used": 7}, {"application": "cut short…"}
    >>> inputs_from_evidence(holder, plan), inputs_from_evidence(cut, plan)
    ({'application': 'shop-jobs'}, {})
    """
    found: dict[str, str] = {}
    for one in plan.inputs:
        value = evidence.get(one.name) or evidence.get(f"holder_{one.name}")
        if one.name.endswith("pid") and type(value) is int:
            value = str(value)
        if isinstance(value, str) and value != UNKNOWN and not one.secret and not _ALTERED_TEXT.search(value):
            found[one.name] = value
    return found


def values_in_frame(frame: Frame | None, one: Input) -> list[str]:
    """Return the values that an input may have: its choices, else what the panels show of its name or type."""
    if one.choices or frame is None or one.secret:
        return [] if one.secret else list(one.choices)
    connections = frame.connections
    shown: Mapping[str, Iterable[str]] = {
        "application": (group.name for group in connections.by_application),
        "role": (group.name for group in connections.by_user),
        "database": (group.name for group in connections.by_database),
        "mount": (mount.path for mount in frame.disks.mounts),
        "slot": (slot.name for slot in frame.of(ReplicationPanel).slots),
    }
    values = shown.get(one.name, shown.get(one.type, ()))
    return [value for value in values if value and value != UNKNOWN and not _ALTERED_TEXT.search(value)]


_VALUE_COLUMNS = {
    "role": ("role", "usename", "rolname", "user", "owner"),
    "database": ("database", "datname", "name"),
    "relation": ("relation", "table", "index"),
}
"""Columns of a preview that hold values of an input's type."""


def values_for_input(view: RunView, plan: Plan | None) -> list[str]:
    """Return the values in the shown rows that fit the requested input, in their order: roles for a role."""
    question, table = view.question, view.table
    if question is None or question.kind != "input" or question.secret or table is None or plan is None:
        return []
    block = next((block for _, block in plan.blocks() if block.id == question.block), None)
    names = _VALUE_COLUMNS.get("" if block is None else str(block.settings.get("type")), ())
    values = [row[index] for index, name in enumerate(table.columns) if name in names for row in table.rows]
    return [value for value in dict.fromkeys(values) if value not in ("", "-") and not _ALTERED_TEXT.search(value)]
