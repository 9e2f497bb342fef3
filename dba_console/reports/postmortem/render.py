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
from dba_console.reports.postmortem.chart_svg import HEIGHT, WIDTH, ChartView, TimeAxis, chart_view, spark_lines
from dba_console.reports.postmortem.facts import EvidenceChart, IncidentFacts
from dba_console.reports.postmortem.gather import Asked, gather
from dba_console.watch.panels.time_formats import date_and_time

MARKDOWN, HTML = "postmortem.md", "postmortem.html"
MAX_MARKS = 40
_LETTERS = {"finding.raised": "!", "finding.cleared": "c", "block.intent": "a", "run.started": "r", "note": "n",
            "mark": "m", "server.lost": "x", "server.connected": "+"}  # fmt: skip
"""Events that are marked on the charts."""


class Rendered(NamedTuple):
    markdown: str
    html: str


def render(incident: IncidentFacts, made_us: int) -> Rendered:
    """Return the report in both forms. `made_us`: when it was made."""
    values = {"incident": incident, "version": __version__, "made": utc_text(made_us), **_time_values(incident)}
    charts = list(_chart_views(incident, values["axis"], _clock_text(incident)))
    markdown = {"when": _when(values["zone"]), "source_of": _source_of(incident)}
    return Rendered(
        _environment(html=False).get_template("postmortem/postmortem.md.j2").render(values, **markdown),
        _environment(html=True).get_template("postmortem/postmortem.html.j2").render(values, charts=charts),
    )


def _time_values(incident: IncidentFacts) -> dict[str, Any]:
    began_us = next((one.at_us for one in incident.moments if one.name == "began" and one.at_us is not None), None)
    zone = local_zone(incident.from_us)
    return {
        "axis": TimeAxis(incident.from_us, incident.to_us),
        "began_us": incident.from_us if began_us is None else began_us,
        "zone": zone,
        "letters": _LETTERS,
        "several": len(incident.sessions) > 1,
        "width": WIDTH,
        "height": HEIGHT,
    }


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
    session = incident.sessions[chart.session]
    return view._replace(title=f"{view.title} ({session.target or session.id})")


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
        spark=spark_lines,
    )


def _when(zone: str) -> Callable[[int], Markup]:
    """Return a function that gives the cells of a time: UTC, and local time if that differs."""
    return lambda wall_us: Markup(f"{utc_text(wall_us)} | {date_and_time(wall_us)}" if zone else utc_text(wall_us))


def _source_of(incident: IncidentFacts) -> Callable[[int], Markup]:
    """Return a function that names a session before what is from it, if there are several."""
    if len(incident.sessions) == 1:
        return lambda index: Markup()
    names = [escape_markdown(one.target or one.id) for one in incident.sessions]
    return lambda index: Markup(f"{names[index]}: ")


# Writes a postmortem: both files, or none.


def write_postmortem(
    recording: Recording, asked: Asked, directory: Path, *, others: Sequence[Recording] = (), overwrite: bool = False
) -> list[Path]:
    """Write the report into a directory, which is created (0700); return the files (0600). Raises ConsoleError."""
    rendered = render(gather(recording, asked, others), time.time_ns() // 1000)
    return write_documents(directory, {MARKDOWN: rendered.markdown, HTML: rendered.html}, overwrite=overwrite)
