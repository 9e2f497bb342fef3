"""Sessions: every backend, what it does, what it waits for, what it costs the host."""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame, SessionRow, Sessions
from dba_console.panels import status_text
from dba_console.panels.phrases import fact, join, name_of, statement, text_line
from dba_console.panels.session_table import MAX_QUERY_SHOWN, activity_age, age_style, is_client, session_table
from dba_console.panels.text_elements import Detail, Line, Span, Style, clean, fit
from dba_console.units import human_duration

_BACKEND_NAMES = {"parallel worker": "parallel worker", "walsender": "walsender"}
_OWN_APPLICATION = "dba-console"
_RANKS = {
    "active": 0, "idle in transaction": 1, "idle in transaction (aborted)": 1, "fastpath function call": 0,
    "disabled": 2, "idle": 3,
}  # fmt: skip


def session_order(row: SessionRow) -> tuple[int, float, int]:
    """Working sessions first, those waiting for a lock on top of them, then open transactions, then idle, then the
    server's own processes; within each the oldest first."""
    state = row.state
    rank = 4 if state is None else _RANKS.get(state, 2)
    if rank == 0 and row.wait is not None and row.wait.startswith("Lock:"):
        rank = -1
    age = row.query_age_s if rank <= 0 else row.xact_age_s if rank == 1 else row.state_age_s
    return rank, -(age or 0.0), row.pid


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """The sessions at work, one line each, with a head: pid, who, for how long, CPU, what it waits for, query.

    The console's own session, which always asks at the moment it looks, stands in the full table only.
    """
    panel = frame.sessions
    busy = [row for row in panel.rows if row.state not in (None, "idle") and row.application != _OWN_APPLICATION]
    lines: list[Line] = []
    if busy:
        head = f"{'pid':>7} {'user/application':<20} {'age':>6} {'cpu':>5} {'waits for':<18} query"
        lines = [(Span(head, "head"),), *(_line(row) for row in sorted(busy, key=session_order)[: max(0, height - 1)])]
    elif panel.rows:
        lines = [text_line("no session runs a query or has a transaction open", "dim")]
    return status_text.body(panel, bool(lines), lines, width, height)


def _line(row: SessionRow) -> Line:
    who = f"{name_of(row.user, 20)}/{clean((row.application or '')[:40])}"
    cpu = "?" if row.cpu_pct is None else f"{row.cpu_pct:.0f}%"
    waits, style = _wait_text(row)
    return (
        Span(f"{row.pid:>7} "),
        Span(fit(who, 20) + " "),
        Span(fit(human_duration(activity_age(row)), 6, right=True) + " ", age_style(row)),
        Span(f"{cpu:>5} ", "stale" if row.cpu_pct is None else ""),
        Span(fit(waits, 18) + " ", style),
        Span(statement(row.query, MAX_QUERY_SHOWN)),
    )


def _wait_text(row: SessionRow) -> tuple[str, Style]:
    if row.blocked_by:
        return "← " + ",".join(str(pid) if pid else "prepared" for pid in row.blocked_by[:4]), "warn"
    if row.state is not None and row.state.startswith("idle in"):
        return "client, in txn", "warn"
    return (clean(row.wait[:40]), "") if row.wait else ("running", "dim")


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.sessions
    if not panel.rows:
        return Detail("Sessions", tuple(status_text.note_lines(panel, width)))
    head = [_summary(panel)]
    if panel.hidden:
        head.append(
            text_line(
                f"{panel.hidden} sessions hide state and query from this role: GRANT pg_monitor would show them", "warn"
            )
        )
    table = session_table(sorted(panel.rows, key=session_order))
    return Detail("Sessions", status_text.head_lines(panel, head, width), (table,))


def _summary(panel: Sessions) -> Line:
    """Clients by their state, as the connections panel counts them; what else stands in the table by what it is."""
    counts: dict[str, int] = {}
    for row in panel.rows:
        name = (
            (row.state or "hidden") if is_client(row) else _BACKEND_NAMES.get(row.backend_type or "", "server process")
        )
        counts[name] = counts.get(name, 0) + 1
    return join([fact(name_of(name), str(count)) for name, count in sorted(counts.items(), key=lambda one: -one[1])])
