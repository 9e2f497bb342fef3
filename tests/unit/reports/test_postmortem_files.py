"""The two files of a postmortem: valid, self-contained, the same whatever text the record holds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import html5lib
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dba_console.core.errors import UsageError
from dba_console.core.sanitize import clean
from dba_console.recording.recording import Recording
from dba_console.reports.postmortem.facts import (
    Decision,
    EvidenceChart,
    IncidentFacts,
    ReportedRun,
    SettingChange,
    TimelineRow,
)
from dba_console.reports.postmortem.gather import Asked
from dba_console.reports.postmortem.render import render, write_postmortem
from dba_console.runbooks.run_view import RunTable
from tests.build import NOW_US
from tests.unit.reports.incidents import EVENTS, SHIPPED, at, event, facts_of, finding_event, record_incident

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=y>', "</pre></details>", "{{ 7*7 }}{% raw %}", "`x` ```",
    "| a | b |", "# head", "- item", "1. item", "[a](javascript:b)", "![a](http://b)", "<http://b>",
    "http://b.example www.b.example", "**b** _c_ ~~d~~", "&amp; &lt;", "\\", "---", "===", "a@b.example", "<!-- x",
    "]]>", "&#x3c;b&#x3e;", "$x$", "    code",
)  # fmt: skip
ALLOWED_ATTRIBUTES = frozenset(
    {"lang", "charset", "http-equiv", "content", "name", "id", "class", "role", "tabindex", "href", "datetime", "scope",
     "colspan", "viewBox", "d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "text-anchor", "stroke-dasharray",
     "aria-label", "aria-labelledby", "aria-hidden"}
)  # fmt: skip


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> IncidentFacts:
    """An incident with something in every section."""
    found = facts_of(record_incident(tmp_path_factory.mktemp("sessions"), seconds=range(280, 440)))
    table = RunTable(columns=("step", "state"), rows=(("a", "ok"), ("b", "failed")))
    run = ReportedRun(
        run="r", runbook="b", title="t", mode="run", state="done", who="w", began_us=at(1), ended_us=at(2), verdict="v",
        inputs=(("n", "v"),), steps=table, measures=table, deviations=("d",), output=("o", "p"), notes=("n",),
        error_output=("e",), related=True,
    )  # fmt: skip
    row = TimelineRow(
        at_us=at(310), who="w", kind="note", text="t", exact=("one", "two"), source="s", recorded_us=at(320)
    )
    return msgspec.structs.replace(
        found, runs=(run, msgspec.structs.replace(run, related=False)), others=found.causes,
        timeline=(*found.timeline, row), missing=("m",), omitted=(("k", 3),),
        changes=(*found.changes, SettingChange("s", "a", "b")),
    )  # fmt: skip


def with_texts(value: Any, text: str) -> Any:
    """The record with every text replaced, except those that choose a branch of the templates."""
    if isinstance(value, str):
        return text if value else value
    if isinstance(value, tuple):
        return tuple(with_texts(one, text) for one in value)
    if isinstance(value, msgspec.Struct):
        kept = {"severity", "mode", "ended_as", "ending"} | ({"kind"} if isinstance(value, TimelineRow) else set())
        kept |= {"name"} if type(value).__name__ == "IncidentTime" else set()
        fields = {
            name: getattr(value, name) if name in kept else with_texts(getattr(value, name), text)
            for name in value.__struct_fields__
        }
        return type(value)(**fields)
    return value


def elements(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every element with its attributes. Raises for a page that is not valid HTML."""
    tree = html5lib.HTMLParser(strict=True).parse(page)
    return [(re.sub(r"^\{.*\}", "", str(one.tag)), tuple(sorted(one.keys()))) for one in tree.iter()]


def tokens(markdown: str) -> list[str]:
    """The structure of a Markdown text: every token but the texts."""

    def walk(found: Any) -> Iterator[str]:
        for one in found:
            if one.type not in ("text", "text_special", "softbreak"):
                yield f"{one.type} {one.content if one.type.startswith('html') else ''}"
            yield from walk(one.children or ())

    return list(walk(MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)))


@pytest.mark.parametrize("full", [False, True])
def test_the_page_is_valid_and_refers_to_nothing(incident: IncidentFacts, full: bool) -> None:
    page = render(incident, NOW_US, full=full).html
    found = elements(page)
    assert {name for name, _ in found}.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert {name for _, names in found for name in names} <= ALLOWED_ATTRIBUTES
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))
    assert "url(" not in page and "@import" not in page and "://" not in page.replace("http://www.w3.org", "")
    assert len(page.encode()) < 500_000


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_in_every_field_changes_neither_page_nor_markdown(
    incident: IncidentFacts, hostile: str, full: bool
) -> None:
    harmless, attacked = (render(with_texts(incident, one), NOW_US, full=full) for one in ("word", clean(hostile)))
    assert elements(attacked.html) == elements(harmless.html)
    assert tokens(attacked.markdown) == tokens(harmless.markdown)


@given(st.text(min_size=1, max_size=12).map(clean).filter(str.strip))
def test_no_text_changes_the_structure_of_the_markdown(incident: IncidentFacts, text: str) -> None:
    small = msgspec.structs.replace(incident, charts=(), decisions=(), causes=incident.causes[:1])
    harmless, attacked = (render(with_texts(small, one), NOW_US).markdown for one in ("word", text))
    assert tokens(attacked) == tokens(harmless)


def test_the_reader_s_time_zone_and_locale_are_named(incident: IncidentFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    utc = render(incident, NOW_US).markdown
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    time.tzset()
    try:
        local = render(incident, NOW_US)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "IST (UTC+05:30)" in local.markdown and "IST (UTC+05:30)" in local.html
    elements(local.html)
    # The UTC column is the same everywhere.
    times = re.compile(r"^\| (began|detected|ended) \| ([^|]+?) \|", re.M)
    assert times.findall(local.markdown) == times.findall(utc)


def test_a_screen_and_its_decision_are_in_both_files(incident: IncidentFacts) -> None:
    short, full = render(incident, NOW_US), render(incident, NOW_US, full=True)
    [decision] = incident.decisions
    assert isinstance(decision, Decision) and isinstance(incident.charts[0], EvidenceChart)
    assert "\n".join(line.rstrip() for line in decision.screen) in full.markdown
    assert decision.screen[1] not in short.markdown
    assert "20 of 20" in full.html and decision.screen[1] in short.html


def test_the_report_of_an_hour_of_a_busy_day_fits_on_four_pages(tmp_path: Path) -> None:
    """Thousands of events, dozens of findings, gaps: a printed page has about 55 lines."""
    noise = [event(second, "probe.failed", f"timeout {'abcdefgh'[second % 8]}", severity="warning")
             for second in range(0, 3600, 3)]  # fmt: skip
    notes = [event(second, "note", f"looked at {second}", who="ann") for second in range(30, 3600, 90)]
    findings = [
        one
        for number in range(30)
        for one in (
            finding_event(100 * number + 5, "raised", f"disk-filling:/{number}", severity="warning"),
            finding_event(100 * number + 400, "cleared", f"disk-filling:/{number}", severity="warning"),
        )
    ]
    events = sorted((*noise, *notes, *findings, *EVENTS), key=lambda one: one.wall_us)
    session = record_incident(tmp_path, events, seconds=[s for s in range(0, 3600, 5) if s % 400 > 20])
    asked = Asked(from_us=at(0), to_us=at(3600))
    incident = facts_of(session, asked)
    short, full = render(incident, NOW_US), render(incident, NOW_US, full=True)
    assert len(short.markdown.splitlines()) <= 220 < len(full.markdown.splitlines())
    assert "connections-filling" in incident.title and "finding raised, critical" in short.markdown
    assert "Not listed: " in short.markdown and "--full" in short.markdown


def test_an_earlier_report_is_not_overwritten(tmp_path: Path) -> None:
    recording = Recording.open(SHIPPED)
    try:
        written = write_postmortem(recording, Asked(), tmp_path / "report")
        assert [path.name for path in written] == ["postmortem.md", "postmortem.html"]
        assert all(os.stat(path).st_mode & 0o777 == 0o600 for path in written)
        written[0].write_text("edited by people")
        with pytest.raises(UsageError, match="exists"):
            write_postmortem(recording, Asked(), tmp_path / "report")
        assert written[0].read_text() == "edited by people"
        written[0].unlink()
        with pytest.raises(UsageError):
            write_postmortem(recording, Asked(), tmp_path / "report")
        assert os.listdir(tmp_path / "report") == ["postmortem.html"]
        with pytest.raises(UsageError, match="is not a directory"):
            write_postmortem(recording, Asked(), written[1])
    finally:
        recording.close()
