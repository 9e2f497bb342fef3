"""The pictures of the documents: true to the terminal, small, and loading nothing."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from dba_console.core.errors import Unsupported
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording
from dba_console.recording.session_lookup import resolve
from screenshots import png
from screenshots.shots import SHOTS, Shot, plain, screen_rows
from tests.terminal.consoles import OVERVIEW, Workspace, recorded_s, workspace

__all__ = ["workspace"]
PICTURES = Path(__file__).parents[2] / "screenshots"


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unsupported) as caught:
        png.require_converters()
    assert caught.value.hint == "apt install pngquant"


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
