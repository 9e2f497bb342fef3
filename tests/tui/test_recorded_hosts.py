"""Sessions of several hosts on the screen: one key switches to the next host, at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from dba_console.tui.console import ConsoleApp
from dba_console.tui.feed import Session
from dba_console.tui.live_feed import ReplayFeed
from dba_console.tui.loaders import RunbooksArrived
from dba_console.tui.terminal import ScreenOptions
from dba_console.watch.samples.findings import FindingsNow
from dba_console.watch.samples.sample import Sample, make_part
from tests.build import NOW_US
from tests.readings import activity, server, sessions
from tests.tui.manual_feed import ManualFeed
from tests.tui.test_console import Screen
from tests.tui.test_findings import FULL
from tests.unit.recording.recordings import meta, record

S = 1_000_000
AHEAD_US = 3_700_000
"""How far the clock of the second host is ahead."""


def second(number: int, *, active: int, ahead_us: int, boot: str, ill: bool) -> Sample:
    """A second of a host that reads the same server as the other, with its sessions and findings."""
    wall_us, mono_us = NOW_US + number * S + ahead_us, 5_000_000 + number * S
    server_us = wall_us - ahead_us - 2_000
    readings = {
        "pg.server": server(now_us=server_us, start_us=1, system_identifier="77"),
        "pg.activity": sessions(*(activity(100 + one, "active") for one in range(active)), now_us=server_us),
        "findings": FindingsNow([FULL] if ill else []),
    }
    parts = [make_part(name, value, at_us=mono_us, took_us=4_000) for name, value in readings.items()]
    return Sample(number + 1, wall_us, mono_us, parts, boot)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, ...]:
    """Two minutes of db1, and of db2 all but the first and the last half minute, whose clock is ahead."""
    place = tmp_path_factory.mktemp("sessions")
    first = [second(one, active=3, ahead_us=0, boot="1", ill=False) for one in range(120)]
    other = [second(one, active=7, ahead_us=AHEAD_US, boot="2", ill=60 <= one < 80) for one in range(30, 90)]
    return tuple(
        Session(name, directory=record(place, samples, replace(meta(), id=name, boot_id=name, host=name)))
        for name, samples in (("db1", first), ("db2", other))
    )


@asynccontextmanager
async def opened(*recorded: Session, at: str, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Screen]:
    feed = ReplayFeed(*recorded)
    app = ConsoleApp(feed, ScreenOptions(at=at), "16", load_runbooks=lambda: RunbooksArrived(()))
    feed.start()
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, cast("ManualFeed", feed), pilot)
        await screen.until("active")
        yield screen
    feed.close()


async def test_the_key_shows_the_other_host_at_the_same_moment_and_back_again(hosts: tuple[Session, ...]) -> None:
    async with opened(*hosts, at="+45s") as screen:
        navigator = screen.app.navigator
        assert "active 3" in screen.text and "db1 host 1 of 2" in screen.lines[1]
        first_us = navigator.cursor.at_us
        await screen.press("3", "&")
        await screen.until("db2 host 2 of 2")
        assert navigator.cursor.at_us is not None and first_us is not None
        assert abs(navigator.cursor.at_us - first_us - AHEAD_US) < 10_000
        assert screen.app.view.where == "detail"
        await screen.press("escape")
        assert "active 7" in screen.text and screen.app.navigator.cursor.mode == "paused"
        await screen.press("&")
        await screen.until("db1 host 1 of 2")
        assert navigator.cursor.at_us == first_us and "active 3" in screen.text


async def test_the_clock_offset_is_stated_with_its_source_when_it_was_measured_and_at_each_change(
    hosts: tuple[Session, ...],
) -> None:
    stated = "clock offset of db2: -3.700 s"
    async with opened(*hosts, at="+45s", size=(160, 50)) as screen:
        assert stated in screen.text and "readings of the clock of the same server" in screen.text
        await screen.press("right")
        await screen.until(lambda: stated not in screen.text)
        await screen.press("&")
        await screen.until(stated)
        await screen.press("&")
        await screen.until("db1: its clock is the time axis")


async def test_the_line_below_the_header_has_the_findings_of_the_other_host_at_the_same_moment(
    hosts: tuple[Session, ...],
) -> None:
    async with opened(*hosts, at="+59s") as screen:
        assert "& db2: no open finding" in screen.lines[1]
        await screen.press("right")
        await screen.until("& db2: connections-filling: Connections fill (97 of 97)")
        await screen.press("&")
        await screen.until("db2 host 2 of 2  & db1: no open finding")


async def test_a_host_that_was_not_recorded_then_is_named_and_not_shown(hosts: tuple[Session, ...]) -> None:
    async with opened(*hosts, at="+5s", size=(160, 50)) as screen:
        assert "& db2: not recorded at this moment" in screen.lines[1]
        await screen.press("&")
        await screen.until("db2 was not recorded at this moment")
        assert "db1 host 1 of 2" in screen.lines[1]


async def test_a_finding_that_is_open_at_one_host_only_is_shown_as_not_open_at_the_other(
    hosts: tuple[Session, ...],
) -> None:
    async with opened(*hosts, at="+62s") as screen:
        await screen.press("&")
        await screen.until("db2 host 2 of 2")
        await screen.press("f", "enter")
        await screen.until("lower the pools")
        await screen.press("&")
        await screen.until("connections-filling is not open at this moment")
        await screen.press("&")
        await screen.until("lower the pools")


async def test_a_moment_kept_for_comparison_is_not_compared_with_another_host(hosts: tuple[Session, ...]) -> None:
    async with opened(*hosts, at="+45s") as screen:
        await screen.press("@", "&")
        await screen.until("db2 host 2 of 2")
        await screen.press("right", "@")
        await screen.until("is kept")
        assert "What changed" not in screen.text


async def test_playing_continues_on_the_other_host(hosts: tuple[Session, ...]) -> None:
    async with opened(*hosts, at="+45s") as screen:
        await screen.press("+", "&")
        await screen.until("db2 host 2 of 2")
        assert screen.app.navigator.cursor.playing


async def test_a_host_whose_recording_cannot_be_read_is_named(hosts: tuple[Session, ...], tmp_path: Path) -> None:
    async with opened(hosts[0], Session("db9", directory=tmp_path / "none"), at="+45s", size=(120, 30)) as screen:
        assert "db1 host 1 of 2  & db9: no recording in" in screen.lines[1]
        await screen.press("&")
        await screen.until("session.db is missing")
        assert "active 3" in screen.text


async def test_with_one_session_the_key_says_how_to_open_several(hosts: tuple[Session, ...]) -> None:
    async with opened(hosts[0], at="+45s") as screen:
        assert "host 1 of" not in screen.text
        await screen.press("&")
        assert "one host is shown" in screen.text
