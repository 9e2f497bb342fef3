"""The pictures: true to the terminal, in place to the cell, and drawn without fetching anything."""

from __future__ import annotations

import asyncio
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style

from dba_console.core.errors import Unsupported
from dba_console.demo.cluster import Cluster
from dba_console.recording.listing import resolve
from dba_console.recording.recording import Recording
from screenshots import png
from screenshots.glyphs import HEIGHT, WIDTH, shape
from screenshots.shots import SHOTS, Shot, plain, screen_rows
from screenshots.svg import MARGIN, drawing
from tests.terminal.consoles import OVERVIEW, Workspace, recorded_s, workspace

__all__ = ["workspace"]
SVG = "{http://www.w3.org/2000/svg}"
PICTURES = Path(__file__).parents[2] / "screenshots"


def texts(svg: str) -> list[tuple[float, str]]:
    """The words of a drawing and where they begin, in cells."""
    root = ElementTree.fromstring(svg)
    return [(round(float(word.attrib["x"]) / WIDTH, 3), word.text or "") for word in root.iter(f"{SVG}text")]


def test_a_word_is_at_its_cell_whatever_characters_come_before_it() -> None:
    svg = drawing([[Segment("a ▇▇ 表  b c"), Segment("d")]], 20)
    assert texts(svg) == [(0, "a"), (5, "表"), (9, "b c"), (12, "d")]


def test_text_from_the_server_is_escaped() -> None:
    assert texts(drawing([[Segment("a<b&c>")]], 10)) == [(0, "a<b&c>")]


def test_a_drawing_is_as_large_as_its_lines_and_columns() -> None:
    box = ElementTree.fromstring(drawing([[], [], []], 40)).attrib
    assert float(box["width"]) == pytest.approx(40 * WIDTH + 2 * MARGIN, abs=0.01)
    assert float(box["height"]) == 3 * HEIGHT + 2 * MARGIN


def test_reverse_video_colours_the_background_of_the_whole_text() -> None:
    svg = drawing([[Segment("ab", Style.parse("green reverse"))]], 10)
    _paper, behind = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    assert float(behind.attrib["width"]) == pytest.approx(2 * WIDTH, abs=0.01)


def test_colours_bold_and_dim_text_of_the_screen_are_drawn() -> None:
    svg = drawing([[Segment("x", Style.parse("bold red")), Segment("y", Style.parse("dim"))]], 10)
    root = ElementTree.fromstring(svg)
    (first, second) = root.iter(f"{SVG}text")
    assert first.attrib["font-weight"] == "700" and first.attrib["fill"] != second.attrib["fill"]
    assert "opacity" in second.attrib and "opacity" not in first.attrib


def test_lines_of_neighbouring_cells_meet() -> None:
    ends = []
    for column in (0, 1):
        path = shape("─", column, 0) or ""
        moves = [tuple(map(float, move)) for move in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", path)]
        ends.append((min(begin for begin, _ in moves), max(end for _, end in moves)))
    assert ends[0][1] >= ends[1][0]


def test_letters_are_drawn_with_the_font() -> None:
    assert shape("a", 0, 0) is None and shape("●", 0, 0) is None


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unsupported) as caught:
        png.require_converters()
    assert caught.value.hint == "apt install librsvg2-bin pngquant"


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_every_image_of_the_repository_is_small_and_loads_nothing(shot: Shot) -> None:
    svg, image = PICTURES / f"{shot.name}.svg", PICTURES / f"{shot.name}.png"
    assert svg.stat().st_size < 300_000 and image.stat().st_size < 300_000
    assert set(re.findall(r"\w+://[^\"'\s]+", svg.read_text())) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in svg.read_text() and "<image" not in svg.read_text()


@pytest.mark.terminal
def test_an_image_shows_what_the_terminal_shows(cluster: Cluster, workspace: Workspace) -> None:
    with workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.wait_for(lambda shown: recorded_s(shown) >= 2)
    directory = resolve("last", workspace.sessions)
    recording = Recording.open(directory)
    seconds, rest = divmod(recording.last_us, 1_000_000)
    name = recording.meta.target if recording.meta is not None else ""
    recording.close()
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06d}Z"
    shot = Shot("overview", (80, 24), "─ Connections")
    with workspace.terminal("replay", str(directory), "--at", at) as terminal:
        terminal.wait_for("─ Connections")
        seen = terminal.wait_for("REPLAY")
    drawn = plain(asyncio.run(screen_rows(shot, directory, at, name)))
    assert [line.rstrip() for line in drawn.splitlines()] == [line.rstrip() for line in seen.splitlines()]
