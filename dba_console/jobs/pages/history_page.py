"""The history of dumps and restores: every job known on the target, and every run of one job.

A finished run is not a successful run: its ending is beside its duration, and what was not observed is `?`.
"""

from __future__ import annotations

from dba_console.core.units import UNKNOWN, human_bytes, human_duration
from dba_console.jobs.history.duration_trend import (
    MAX_HORIZON_FACTOR,
    MIN_DAYS,
    MIN_RUNS,
    DurationTrend,
    JobWindows,
    PastRun,
    PastRuns,
    TargetJobHistory,
    WindowForecast,
    forecast_window,
)
from dba_console.watch.drawing.phrases import name_of, text_line
from dba_console.watch.drawing.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    clean,
    number_cell,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import date_and_time, date_text

# The trend of a job and the day it will exceed its window, with no more certainty than the runs allow.


def trend_text(trend: DurationTrend) -> str:
    """Return the trend for a cell: `+1m04s a day`, `steady`, `?` if there are too few runs."""
    if trend.verdict == "few" or trend.per_day_s is None:
        return UNKNOWN
    return "steady" if trend.verdict == "steady" else f"{_signed_duration(trend.per_day_s)} a day"


def fits_text(found: WindowForecast) -> str:
    """Return for a cell whether, and until when, the job fits its window."""
    if found.window_s is None:
        return "no window"
    if found.trend.verdict == "few":
        return f"{found.over} too long" if found.over else UNKNOWN
    if found.beyond:
        return "exceeded"
    if found.day_us is not None:
        return f"until ≈{date_text(found.day_us)}"
    return "yes"


def forecast_sentences(found: WindowForecast) -> list[str]:
    """Return sentences: the trend with its certainty, then the window."""
    return [_trend_sentence(found.trend), *_window_sentences(found)]


def _trend_sentence(trend: DurationTrend) -> str:
    if not trend.runs:
        return "Trend unknown: no successful run is known."
    basis = f"{_runs_text(trend.runs)} over {_days_text(trend.days)}"
    if trend.verdict == "few" or trend.per_day_s is None or trend.low_s is None or trend.high_s is None:
        return f"Trend unknown: not enough history: {basis} (needs {MIN_RUNS} over {MIN_DAYS:.0f} days)."
    between = f"between {_signed_duration(trend.low_s)} and {_signed_duration(trend.high_s)}, 90% confidence; {basis}"
    now = f"now {human_duration(trend.now_s)} ± {human_duration(trend.spread_s)}"
    match trend.verdict:
        case "grows":
            return f"It takes {human_duration(trend.per_day_s)} longer each day ({between}): {now}."
        case "shrinks":
            return f"It takes {human_duration(-trend.per_day_s)} less each day ({between}): {now}."
        case _:
            return f"No clear trend ({_signed_duration(trend.per_day_s)} a day, {between}): {now}."


def _window_sentences(found: WindowForecast) -> list[str]:
    if found.window_s is None:
        return ["No window set; hint: set [jobs] window in the configuration, or use --window."]
    window = f"its window of {human_duration(found.window_s)}"
    parts: list[str] = []
    if found.over:
        parts.append(f"{found.over} of these {_runs_text(found.trend.runs)} took longer than {window}.")
    if found.trend.verdict == "few":
        return [*parts, f"Unknown when it will exceed {window}."]
    if found.beyond:
        return [*parts, f"By its trend it already exceeds {window}."]
    if found.day_us is not None and found.earliest_us is not None and found.latest_us is not None:
        between = f"between {date_text(found.earliest_us)} and {date_text(found.latest_us)}"
        return [*parts, f"At this trend it exceeds {window} from about {date_text(found.day_us)} on, {between}."]
    if found.too_far:
        days = _days_text(MAX_HORIZON_FACTOR * found.trend.days)
        return [*parts, f"It fits {window} for more than {days}; these runs allow no longer forecast."]
    return [*parts, f"It fits {window} and will keep fitting it at this trend."]


def _signed_duration(seconds: float) -> str:
    return ("+" if seconds >= 0 else "−") + human_duration(abs(seconds))


def _days_text(days: float) -> str:
    return "1 day" if round(days) == 1 else f"{days:.0f} days"


def _runs_text(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


TITLE = "History of dumps and restores"
_PHASE_NAMES = {"schema": "schema", "data": "data", "indexes": "indexes", "constraints": "keys", "rest": "rest"}
_RUNS_SHOWN = 5
"""Runs in the pane below the list of jobs."""

_JOB_COLUMNS = (
    TableColumn("job", "job", 22, help="Program and database", grow=True),
    TableColumn("user", "user", 12, spare=6),
    TableColumn("runs", "runs", 4, right=True, help="Known runs", descending=True, spare=2),
    TableColumn("last", "last", 16, help="Start of the last one", descending=True, spare=3),
    TableColumn("took", "took", 7, right=True, help="Duration of the last run", descending=True),
    TableColumn("ended", "ended", 7, help="ok, failed, or ? if not observed"),
    TableColumn("usual", "typical", 7, right=True, help="Median of the counted runs", descending=True),
    TableColumn("size", "size", 9, right=True, help="Dumped or restored in the last run", descending=True, spare=5),
    TableColumn("rate", "rate", 10, right=True, help="Bytes written or read in the last run", spare=7),
    TableColumn("trend", "trend", 13, right=True, help="Change of the duration per day", descending=True, spare=1),
    TableColumn("fits", "fits window", 18, help="Until when it fits its window"),
)
_RUN_COLUMNS = (
    TableColumn("started", "started", 19, descending=True),
    TableColumn("took", "took", 8, right=True, descending=True),
    TableColumn("ended", "ended", 18, help="How it ended, if observed"),
    TableColumn("size", "size", 9, right=True, help="Of what was dumped or restored", descending=True),
    TableColumn("bytes", "moved", 9, right=True, help="Written by a dump, read by a restore",
           descending=True, spare=2),
    TableColumn("rate", "rate", 10, right=True, help="Of bytes moved", descending=True, spare=1),
    TableColumn("how", "how", 14, help="Format and jobs", spare=4),
    TableColumn("version", "version", 8, spare=5),
    TableColumn("phases", "phases", 40, help="Wall time of each; with -j they overlap", grow=True, spare=3),
)  # fmt: skip


def history_detail(past: TargetJobHistory, windows: JobWindows, width: int) -> Detail:
    """Every job, the one that ran last first."""
    rows = tuple(_job_row(job, forecast_window(job.runs, windows.for_job(job)), width) for job in past.jobs)
    head: list[Line] = []
    if past.note:
        head += [(Span(text, "warn"),) for text in wrap_words(past.note, max(20, width))]
    if past.until_us is not None:
        head.append(text_line(f"saved by the agent, last written {date_and_time(past.until_us)}", "dim"))
    return Detail(TITLE, tuple(head), (Table("past", _JOB_COLUMNS, rows, None, "Jobs", "no runs known yet"),))


def job_key(job: PastRuns) -> str:
    """Return the identity of a job."""
    return "\0".join((job.kind, job.database or "", job.user or "", job.format or ""))


def _job_row(job: PastRuns, found: WindowForecast, width: int) -> TableRow:
    last = job.runs[-1]
    ending, style = ending_text(last, short=True)
    return TableRow(
        job_key(job),
        (
            Cell(name_of(job.title, 140), job.title),
            Cell(name_of(job.user), job.user),
            Cell(str(len(job.runs)), len(job.runs)),
            Cell(date_and_time(last.started_us)[:16], last.started_us),
            number_cell(human_duration(last.seconds), last.seconds),
            Cell(ending, ending, style),
            number_cell(human_duration(job.usual_s), job.usual_s),
            number_cell(human_bytes(last.size_bytes), last.size_bytes),
            number_cell(human_bytes(last.rate_per_s, per_s=True), last.rate_per_s),
            number_cell(trend_text(found.trend), found.trend.per_day_s),
            Cell(fits_text(found), found.day_us, _fits_style(found)),
        ),
        lambda: _job_lines(job, found, width),
    )


def _fits_style(found: WindowForecast) -> Style:
    if found.beyond:
        return "crit"
    if found.day_us is not None or found.over:
        return "warn"
    return "stale" if found.window_s is not None and found.trend.verdict == "few" else ""


def _job_lines(job: PastRuns, found: WindowForecast, width: int) -> list[Line]:
    lines = forecast_lines(found, width)
    for run in job.runs[: -_RUNS_SHOWN - 1 : -1]:
        ending, style = ending_text(run)
        took = f"{date_and_time(run.started_us)}  took {human_duration(run.seconds)}  "
        lines.append((Span(took), Span(ending, style), Span(f"  {phases_text(run)}", "dim")))
    return lines


def forecast_lines(found: WindowForecast, width: int) -> list[Line]:
    """Return the sentences about trend and window."""
    style: Style = "crit" if found.beyond else "warn" if found.day_us is not None or found.over else ""
    first, *others = forecast_sentences(found)
    return [
        *((Span(text),) for text in wrap_words(first, max(20, width - 1))),
        *((Span(text, style),) for one in others for text in wrap_words(one, max(20, width - 1))),
    ]


def job_runs_detail(job: PastRuns, windows: JobWindows, width: int) -> Detail:
    """Every run of one job, newest first, below its trend and window."""
    found = forecast_window(job.runs, windows.for_job(job))
    rows = tuple(_run_row(run, found.window_s) for run in reversed(job.runs))
    by = f" as {name_of(job.user, 30)}" if job.user else ""
    return Detail(
        f"{name_of(job.title, 60)}{by}",
        tuple(forecast_lines(found, width)),
        (Table("runs", _RUN_COLUMNS, rows, None, "Runs"),),
    )


def _run_row(run: PastRun, window_s: float | None) -> TableRow:
    ending, style = ending_text(run)
    over = window_s is not None and run.seconds > window_s
    how = " ".join(filter(None, (run.format or "", f"-j{run.jobs}" if run.jobs is not None else "")))
    return TableRow(
        str(run.started_us),
        (
            Cell(date_and_time(run.started_us), run.started_us),
            Cell(human_duration(run.seconds), run.seconds, "warn" if over else ""),
            Cell(ending, ending, style),
            number_cell(human_bytes(run.size_bytes), run.size_bytes),
            number_cell(human_bytes(run.bytes), run.bytes),
            number_cell(human_bytes(run.rate_per_s, per_s=True), run.rate_per_s),
            Cell(name_of(how, 14) if how else ""),
            Cell(name_of(run.version, 12) if run.version else ""),
            Cell(phases_text(run)),
        ),
        lambda: _run_lines(run, over=over),
    )


def _run_lines(run: PastRun, *, over: bool) -> list[Line]:
    lines = [text_line(f"{date_and_time(run.started_us)} to {date_and_time(run.ended_us)}")]
    if over:
        lines.append(text_line("longer than its window", "warn"))
    if not run.counts:
        lines.append(text_line("too short or failed: not counted for the typical duration", "dim"))
    lines += [
        text_line(
            f"{name_of(one.name, 20)}: took {human_duration(one.wall_s)}, sum of all jobs {human_duration(one.busy_s)}"
            + ("" if one.bytes is None else f", {human_bytes(one.bytes)}")
        )
        for one in run.phases
    ]
    if run.last_error:
        lines.append(text_line(f"last error: {clean(run.last_error)}", "crit"))
    return lines


def ending_text(run: PastRun, *, short: bool = False) -> tuple[str, Style]:
    """Return how it ended. Errors a program ignored count, whatever its exit code; unknown is not ok."""
    ending = run.ending
    if ending == "good":
        return "ok", "ok"
    if ending == "unknown":
        return (UNKNOWN if short else "unknown"), "stale"
    if short:
        return "failed", "crit"
    if run.errors:
        return f"{run.errors} error{'s' if run.errors > 1 else ''}", "crit"
    if run.exit is not None and run.exit < 0:
        return f"killed, signal {-run.exit}", "crit"
    return ("incomplete" if not run.exit else f"exit {run.exit}"), "crit"


def phases_text(run: PastRun) -> str:
    """`data 1h02 · indexes 2h10 · keys 12m`."""
    phases = [
        f"{_PHASE_NAMES.get(one.name) or name_of(one.name, 12)} {human_duration(one.wall_s)}" for one in run.phases
    ]
    return " · ".join(phases)
