"""`session report --dumps`: every dump and restore known on a server, its trend, and when it outgrows its window.

The same words as on the screen. It reads the agents' files and needs neither an agent nor a server.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dba_console.agent.jobs.history_reader import read_job_history
from dba_console.cli.formatting import print_json
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode, UsageError
from dba_console.frames.past_jobs import PastRun, PastRuns, TargetJobHistory
from dba_console.frames.window_forecast import JobWindows, WindowForecast, forecast_window
from dba_console.panels.job_history import history_detail, job_runs_detail
from dba_console.panels.table_layout import table_lines
from dba_console.panels.text_elements import Detail, Line, Span, line_text
from dba_console.panels.time_formats import format_rfc3339
from dba_console.redact import redact
from dba_console.target import Address


def report_dumps(
    target_key: str, target_name: str, windows: JobWindows, *, address: Address | None = None, json: bool, width: int
) -> int:
    """Print it. Exit code 0 also where nothing is known: that is said. `address`: see `read_job_history`."""
    past = read_job_history(target_key, address)
    if json:
        for job in past.jobs:
            print_json(job_object(job, windows))
    else:
        put("\n".join(report_lines(past, target_name, windows, width)))
    return ExitCode.OK


def check_window(text: str | None) -> str | None:
    """The option as it was given. Raises UsageError for one in which nothing fits."""
    from dba_console.units import parse_duration

    if text is not None and parse_duration(text) <= 0:
        raise UsageError(f"--window {text}: nothing fits into that", hint="write how long a job may take, as 8h or 90m")
    return text


def report_lines(past: TargetJobHistory, target_name: str, windows: JobWindows, width: int) -> list[str]:
    """The report as text: all jobs in a table, then each with its sentences and its runs."""
    whole = history_detail(past, windows, width)
    lines = [f"{whole.title}: {target_name}", *(line_text(one) for one in whole.head)]
    if not past.jobs:
        return lines
    lines += ["", *_table(whole, width)]
    for job in past.jobs:
        detail = job_runs_detail(job, windows, width)
        lines += ["", f"{detail.title}", *(line_text(one) for one in detail.head), *_table(detail, width)]
    return lines


def _table(detail: Detail, width: int) -> list[str]:
    table = detail.tables[0]
    lines: list[Line] = table_lines(table.columns, table.rows, width - 2)
    return [line_text((Span("  "), *one)) for one in lines]


def job_object(job: PastRuns, windows: JobWindows) -> dict[str, Any]:
    """One job as JSON: what is not known is null."""
    found = forecast_window(job.runs, windows.for_job(job))
    return {
        "job": job.name,
        "kind": job.kind,
        "database": job.database,
        "user": job.user,
        "usual_s": job.usual_s,
        "watched_since": None if job.watched_since_us is None else format_rfc3339(job.watched_since_us),
        "trend": _trend(found),
        "window": _window(found),
        "runs": [_run(run) for run in job.runs],
    }


def _trend(found: WindowForecast) -> dict[str, Any]:
    trend = found.trend
    return {
        "verdict": {"few": "unknown"}.get(trend.verdict, trend.verdict),
        "runs": trend.runs,
        "days": round(trend.days, 3),
        "per_day_s": trend.per_day_s,
        "per_day_low_s": trend.low_s,
        "per_day_high_s": trend.high_s,
        "now_s": trend.now_s,
        "spread_s": trend.spread_s,
    }


def _window(found: WindowForecast) -> dict[str, Any] | None:
    """None without a window. `outgrown_at` is null where it does not grow, that is not known, or too far ahead."""
    if found.window_s is None:
        return None
    return {
        "seconds": found.window_s,
        "runs_over": found.over,
        "outgrown": found.beyond if found.trend.verdict != "few" else None,
        "outgrown_at": _optional_rfc3339(found.day_us),
        "earliest": _optional_rfc3339(found.earliest_us),
        "latest": _optional_rfc3339(found.latest_us),
        "too_far_ahead": found.too_far,
    }


def _optional_rfc3339(at_us: int | None) -> str | None:
    return None if at_us is None else format_rfc3339(at_us)


def _run(run: PastRun) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(run)
    for name in ("started_us", "exit_tells"):
        del fields[name]
    error = run.last_error
    return {
        "started": format_rfc3339(run.started_us),
        "ended": format_rfc3339(run.ended_us),
        "ending": run.ending,
        **fields,
        "last_error": None if error is None else redact(error),
    }
