"""The diary of a period as Markdown, as one HTML file, and as JSON."""

from __future__ import annotations

import msgspec

from dba_console import __version__
from dba_console.core.sanitize import escape_json
from dba_console.reports.documents import local_zone, new_environment
from dba_console.reports.summary import PeriodSummary, summary_object

MARKDOWN, HTML, JSON = "summary.md", "summary.html", "summary.json"


def summary_markdown(found: PeriodSummary, made_us: int) -> str:
    """Return the summary as Markdown. `made_us`: when it was made."""
    return _render(found, made_us, html=False)


def summary_json(found: PeriodSummary) -> str:
    """Return the summary as one JSON object on one line."""
    return escape_json(msgspec.json.encode(summary_object(found)).decode())


def summary_documents(found: PeriodSummary, made_us: int) -> dict[str, str]:
    """Return the three forms by file name."""
    return {
        MARKDOWN: summary_markdown(found, made_us),
        HTML: _render(found, made_us, html=True),
        JSON: summary_json(found) + "\n",
    }


def _render(found: PeriodSummary, made_us: int, *, html: bool) -> str:
    template = new_environment(html=html).get_template(f"{HTML if html else MARKDOWN}.j2")
    return template.render(summary=found, version=__version__, made_us=made_us, zone=local_zone(made_us))
