"""Renders the facts of an incident as Markdown and as one HTML file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment
from markupsafe import Markup

from dba_console import __version__
from dba_console.recording.recording import Recording
from dba_console.reports.clock_offsets import ClockOffset, offset_text
from dba_console.reports.documents import escape_markdown, local_zone, new_environment, utc_text, write_documents
from dba_console.reports.postmortem.brief import not_known, nothing_seen, shorten
from dba_console.reports.postmortem.chart_svg import HEIGHT, WIDTH, ChartView, TimeAxis, chart_view, spark_lines
from dba_console.reports.postmortem.facts import EvidenceChart, IncidentFacts
from dba_console.reports.postmortem.gather import Asked, gather
from dba_console.watch.drawing.time_formats import date_and_time

MARKDOWN, HTML = "postmortem.md", "postmortem.html"
MAX_MARKS = 40
_LETTERS = {"finding.raised": "!", "finding.cleared": "c", "block.intent": "a", "run.started": "r", "note": "n",
            "mark": "m", "server.lost": "x", "server.connected": "+"}  # fmt: skip
"""Events that are marked on the charts."""


class Rendered(NamedTuple):
    markdown: str
    html: str


def render(incident: IncidentFacts, made_us: int, *, full: bool = False) -> Rendered:
    """Return the report in both forms, short or `full`; the long form is in the page, folded. `made_us`: when it was
    made."""
    shown = incident if full else shorten(incident)
    day, zone = _day(incident), local_zone(incident.from_us)
    values = {
        "incident": shown, "whole": incident, "full": full, "version": __version__, "made": utc_text(made_us),
        "zeros": [] if full else nothing_seen(incident), "unknown": [] if full else not_known(incident), "day": day,
        "clock": _without_day(utc_text, day), **_time_values(incident, zone),
    }  # fmt: skip
    charts = list(_chart_views(incident, values["axis"], _clock_text(incident)))
    drawn = {"charts": charts[: len(shown.charts)], "further": charts[len(shown.charts) :]}
    markdown = {
        "sparks": _spark_lines(shown, values["axis"]),
        "when": _when(zone, utc_text, date_and_time), "source_of": _source_of(incident),
        "clocks": _when(zone, _without_day(utc_text, day), _without_day(date_and_time, day)),
    }  # fmt: skip
    return Rendered(
        _environment(html=False).get_template("postmortem/postmortem.md.j2").render(values, **markdown),
        _environment(html=True).get_template("postmortem/postmortem.html.j2").render(values, **drawn),
    )


def _day(incident: IncidentFacts) -> str:
    """Return the day of all times, if the span is within one, else nothing."""
    first, last = (utc_text(one)[:10] for one in (incident.from_us, incident.to_us))
    return first if first == last else ""


def _without_day(text_of: Callable[[int], str], day: str) -> Callable[[int], str]:
    """Return a function that formats a time, without the day if that is the one given."""
    return lambda wall_us: text[11:] if (text := text_of(wall_us))[:10] == day else text


def _time_values(incident: IncidentFacts, zone: str) -> dict[str, Any]:
    began_us = next((one.at_us for one in incident.moments if one.name == "began" and one.at_us is not None), None)
    return {
        "axis": TimeAxis(incident.from_us, incident.to_us),
        "began_us": incident.from_us if began_us is None else began_us,
        "zone": zone,
        "letters": _LETTERS,
        "several": len(incident.sessions) > 1,
        "names": _session_names(incident),
        "width": WIDTH,
        "height": HEIGHT,
    }


def _session_names(incident: IncidentFacts) -> list[str]:
    """Return the target of each session, or its id if several have the same target."""
    targets = [one.target or one.id for one in incident.sessions]
    return [
        target if targets.count(target) == 1 else one.id for target, one in zip(targets, incident.sessions, strict=True)
    ]


def _chart_views(incident: IncidentFacts, axis: TimeAxis, time_text: Callable[[int], str]) -> Any:
    marks = [
        (row.at_us, _LETTERS[row.kind], row.text) for row in incident.timeline if row.kind in _LETTERS and row.count
    ][:MAX_MARKS]
    for chart in incident.charts:
        gaps = [(gap.from_us, gap.to_us) for gap in incident.gaps if gap.session == chart.session]
        yield _titled(chart_view(chart, axis, time_text, gaps, marks), chart, incident)


def _titled(view: ChartView, chart: EvidenceChart, incident: IncidentFacts) -> ChartView:
    """Return the chart with the session in its title, if there are several."""
    if len(incident.sessions) == 1:
        return view
    return view._replace(title=f"{view.title} ({_session_names(incident)[chart.session]})")


def _spark_lines(incident: IncidentFacts, axis: TimeAxis) -> list[str]:
    """Return the charts as lines of text, each below its title."""
    found: list[str] = []
    for chart in incident.charts:
        whose = f"{_session_names(incident)[chart.session]}: " if len(incident.sessions) > 1 else ""
        limit = "" if chart.limit is None else f" ({chart.limit_name} {chart.limit:.0f})"
        found += [f"{whose}{chart.title}{limit}", *(f"  {one}" for one in spark_lines(chart, axis))]
    return found


def _clock_text(incident: IncidentFacts) -> Callable[[int], str]:
    """Return a function that formats a time on an axis: with the date if the span is longer than a day."""
    if incident.to_us - incident.from_us > 86_400_000_000:
        return lambda wall_us: utc_text(wall_us)[5:16]
    whole_minutes = incident.to_us - incident.from_us > 600_000_000
    return lambda wall_us: (
        utc_text(wall_us)[11:16] if whole_minutes and wall_us % 60_000_000 == 0 else utc_text(wall_us)[11:19]
    )


@cache
def _environment(*, html: bool) -> Environment:
    return new_environment(
        html=html,
        offset=lambda one: offset_text(ClockOffset(one.offset_us, one.offset_error_us, one.offset_how)),
    )


def _when(zone: str, utc: Callable[[int], str], local: Callable[[int], str]) -> Callable[[int], Markup]:
    """Return a function that gives the cells of a time: UTC, and local time if that differs."""
    return lambda wall_us: Markup(f"{utc(wall_us)} | {local(wall_us)}" if zone else utc(wall_us))


def _source_of(incident: IncidentFacts) -> Callable[[int], Markup]:
    """Return a function that names a session before what is from it, if there are several."""
    if len(incident.sessions) == 1:
        return lambda index: Markup()
    names = [escape_markdown(one) for one in _session_names(incident)]
    return lambda index: Markup(f"{names[index]}: ")


# Writes a postmortem: both files, or none.


def write_postmortem(
    recording: Recording,
    asked: Asked,
    directory: Path,
    *,
    others: Sequence[Recording] = (),
    full: bool = False,
    overwrite: bool = False,
) -> list[Path]:
    """Write the report into a directory, which is created (0700); return the files (0600). Raises ConsoleError."""
    rendered = render(gather(recording, asked, others), time.time_ns() // 1000, full=full)
    return write_documents(directory, {MARKDOWN: rendered.markdown, HTML: rendered.html}, overwrite=overwrite)
