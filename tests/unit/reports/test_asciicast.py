"""The screen as asciicast: true to the screen at every time, in times, sizes and characters that every player takes."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dba_console.core.errors import SessionError, UsageError
from dba_console.recording.plan import JournalRecord
from dba_console.reports.asciicast import CastWriter, export_asciicast
from dba_console.reports.export_formats import Span
from dba_console.reports.recorded_moments import one_picture
from dba_console.reports.recorded_screen import RecordedScreen, screen_look
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.samples.sample import Sample
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.requirements import require_tool
from tests.unit.recording.recordings import meta, record_samples, recorder, ticks
from tests.unit.recording.run_journals import begin_journal
from tests.unit.reports.cast_reader import Cast, read_cast
from tests.unit.reports.sessions import HOSTILE, SECOND, event, hostile_ticks, recorded, sampled


def cast_of(span: Span, **options: Any) -> Cast:
    file = io.BytesIO()
    export_asciicast(span, file, lambda share: None, **options)
    return read_cast(file.getvalue())


@pytest.fixture(scope="module")
def span(tmp_path_factory: pytest.TempPathFactory) -> Span:
    """Half a minute of a busy server, with a finding, a run and a mark."""
    events = [
        event(5.25, "finding.raised", "finding raised, critical: connections fill"),
        event(12, "run.started", "run started"),
        event(12.5, "step.started", "step 1 \x1b[2J starts"),
        event(20, "block.seen", "a check"),
    ]
    return sampled(recorded(tmp_path_factory.mktemp("session"), ticks(30), events))


@pytest.mark.parametrize("version", [2, 3])
def test_the_terminal_shows_the_screen_of_each_moment(span: Span, version: int) -> None:
    cast = cast_of(span, version=version, size="120x36")
    assert cast.size == (120, 36) and cast.header["timestamp"] == (NOW_US + SECOND) // SECOND
    for second in (0, 1, 17, 29):
        picture, _ = one_picture(span.recording, span.from_us + second * SECOND)
        lines = RecordedScreen(span.recording, screen_look("120x36")).lines(picture, speed=1.0)
        assert cast.screen(second * 1000) == [line_text(one) for one in lines]


def test_only_what_changed_is_sent_again(span: Span) -> None:
    first, *later = [len(one.data) for one in cast_of(span).events if one.code == "o"]
    assert len(later) == 30 and max(later[:-1]) < first / 2


def test_findings_and_steps_are_chapters_at_their_times(span: Span) -> None:
    chapters = cast_of(span).chapters
    assert [(one.at_ms, one.data) for one in chapters] == [
        (4250, "finding raised, critical: connections fill"), (11000, "run started"), (11500, "step 1 ␛[2J starts"),
    ]  # fmt: skip


def test_the_header_says_what_a_run_does(tmp_path: Path) -> None:
    directory = recorded(tmp_path, ticks(20))
    clock = HeldClock()
    journal = begin_journal(directory, clock=clock)
    for seconds, kind in ((3, "run.started"), (4, "block.asked"), (5, "block.answered"), (3, "run.ended")):
        clock.advance(seconds)
        journal.append(JournalRecord(kind=kind, text=kind))
    journal.close()
    heads = [cast_of(sampled(directory)).screen(second * 1000)[0] for second in (1, 3, 8, 13, 15)]
    said = [re.findall("cache-drop [a-z]+", head) for head in heads]
    assert said == [[], ["cache-drop runs"], ["cache-drop asks"], ["cache-drop runs"], []]


def test_times_in_version_3_do_not_drift() -> None:
    file = io.BytesIO()
    cast = CastWriter(file, 3)
    cast.header(screen_look(), NOW_US, 2.0, "t")
    for number in range(1, 3001):
        cast.event(number * 1_000_333, "o", "x")
    assert read_cast(file.getvalue()).events[-1].at_ms == 3000 * 1_000_333 // 1000


@pytest.mark.parametrize("version", [2, 3])
def test_no_escape_of_a_query_reaches_the_terminal(tmp_path: Path, version: int) -> None:
    marks = [event(3, "mark", HOSTILE), event(4, "finding.raised", HOSTILE)]
    about = structs.replace(meta(), target=HOSTILE)
    span = sampled(recorded(tmp_path, hostile_ticks(ticks(6)), marks, about=about))
    cast = cast_of(span, version=version)  # the reader refuses any other code, and any control character
    assert "␛]0;owned␇␛[2J␛[31m" in "\n".join(cast.screen())
    assert [one.data[:9] for one in cast.chapters] == ["select 1 "] * 2
    assert cast.header["title"].isprintable()


def test_rows_with_wide_characters_stay_in_place(tmp_path: Path) -> None:
    marks = [event(second, "mark", f"表{'é' * second}テスト\u0301 {second}") for second in range(2, 9)]
    span = sampled(recorded(tmp_path, ticks(10), marks))
    rows = "\n".join(cast_of(span, size="80x30").screen())
    assert all(f"表{'é' * second}テスト" in rows for second in (7, 8))


def test_a_missing_piece_is_said_and_ends_with_the_next_sample(tmp_path: Path) -> None:
    samples = [sample for sample in ticks(60) if not 10 < sample.seq < 50]
    cast = cast_of(sampled(recorded(tmp_path, samples)))
    assert "no samples for 40s" in cast.screen(10_500)[-1] and "no samples" not in cast.screen(49_500)[-1]
    assert cast.header["idle_time_limit"] == 2.0


def test_a_clock_set_back_is_shown_twice_and_never_turns_time_back(tmp_path: Path) -> None:
    samples = [
        Sample(one.seq, one.wall_us - (20 * SECOND if one.seq > 15 else 0), one.mono_us, one.parts, one.boot)
        for one in ticks(30)
    ]
    directory = recorded(tmp_path, samples)
    recording = sampled(directory).recording
    cast = cast_of(Span(recording, NOW_US - 60 * SECOND, NOW_US + 60 * SECOND))
    shown = [one.at_ms for one in cast.events if one.code == "o"]
    assert shown[:30] == [second * 1000 for second in range(30)]


def test_a_span_begins_with_the_newest_screen_before_it(span: Span) -> None:
    cast = cast_of(Span(span.recording, span.from_us + 10 * SECOND - 400_000, span.from_us + 12 * SECOND))
    assert [one.at_ms for one in cast.events if one.code == "o"][:4] == [0, 400, 1400, 2400]


def test_at_most_one_screen_in_a_given_time(span: Span) -> None:
    cast = cast_of(span, every_s=10.0)
    assert [one.at_ms for one in cast.events if one.code == "o"][:3] == [0, 10_000, 20_000]
    assert len(cast.chapters) == 3


def test_a_span_without_samples_is_refused_with_what_there_is(span: Span) -> None:
    with pytest.raises(SessionError, match="no sample was recorded") as caught:
        cast_of(Span(span.recording, span.to_us + SECOND, span.to_us + 9 * SECOND))
    assert caught.value.hint is not None and "the recording has" in caught.value.hint


@pytest.mark.parametrize("options", [{"version": 1}, {"size": "9x9"}, {"size": "wide"}, {"panel": ["lokcs"]}])
def test_options_that_make_no_sense_are_refused(span: Span, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        cast_of(span, **options)


def test_a_session_cut_short_is_shown_up_to_there(tmp_path: Path) -> None:
    directory = recorded(tmp_path, ticks(30))
    samples = directory / "session.samples"
    samples.write_bytes(samples.read_bytes()[: samples.stat().st_size * 2 // 3])
    span = sampled(directory)
    rows = cast_of(span).screen()
    assert "truncated" in rows[-1] and span.recording.damage is not None


def test_a_session_still_written_is_shown_up_to_now(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(13))
    span = sampled(made.directory)
    assert span.recording.state == "live" and len(cast_of(span).events) == 14
    assert made.close("done")


def test_it_plays_in_the_asciinema_of_debian(span: Span, tmp_path: Path) -> None:
    require_tool("asciinema")
    file = tmp_path / "a.cast"
    with file.open("wb") as out:
        export_asciicast(span, out, lambda share: None, size="100x30")
    program = require_tool("script")  # asciinema opens /dev/tty
    played = subprocess.run(
        [program, "-qec", f"asciinema cat {file}", "/dev/null"], capture_output=True, timeout=30, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert played.returncode == 0 and b"\x1b[30;1H\x1b[0m\x1b[?25h" in played.stdout
