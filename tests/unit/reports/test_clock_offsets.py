"""Offsets between the clocks of two recording hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dba_console.recording.recording import Recording
from dba_console.reports.clock_offsets import ClockOffset, measure_offset
from dba_console.watch.replication.readings import Replication, Standby
from dba_console.watch.samples.host import HostSettings
from dba_console.watch.samples.sample import Sample, make_part
from tests.readings import of, server
from tests.unit.recording.recordings import meta, record
from tests.unit.reports.incidents import SECOND, at

AHEAD_US = 3_700_000
"""How far the other host's clock is ahead."""
TOOK_US = 4_000


def seconds(host: str, parts: Any, *, ahead_us: int = 0, boot: str) -> tuple[Any, list[Sample]]:
    """Two minutes recorded on a host whose clock is ahead; `parts` gives the readings of a second."""
    samples = []
    for second in range(120):
        mono_us = 5_000_000 + second * SECOND
        made = [make_part(name, value, at_us=mono_us, took_us=TOOK_US) for name, value in parts(second).items()]
        samples.append(Sample(second + 1, at(second) + ahead_us, mono_us, made, host))
    return replace(meta(), boot_id=boot, host=host), samples


def measured(tmp_path: Path, first: Any, second: Any) -> ClockOffset:
    ours, theirs = (Recording.open(record(tmp_path, samples, about)) for about, samples in (first, second))
    try:
        return measure_offset(ours, theirs, at(0), at(120))
    finally:
        ours.close()
        theirs.close()


def of_server(start_us: int, identifier: str = "77") -> Any:
    """Readings of one server, whose clock is that of the first host, two milliseconds before the answer came."""

    def parts(second: int) -> dict[str, Any]:
        now_us = at(second) - 2_000
        return {
            "pg.server": server(now_us=now_us, start_us=start_us, system_identifier=identifier),
            "pg.replication": of(Replication, now_us=now_us, lsn=second),
        }

    return parts


def test_two_sessions_of_one_server_measure_the_offset_by_its_clock(tmp_path: Path) -> None:
    found = measured(
        tmp_path, seconds("a", of_server(1), boot="1"), seconds("b", of_server(1), ahead_us=AHEAD_US, boot="2")
    )
    assert found.offset_us is not None and found.error_us is not None
    assert abs(found.offset_us + AHEAD_US) <= found.error_us <= 10_000
    assert "same server" in found.how


def of_pair(standby: bool) -> Any:
    """A primary that writes steadily, and its standby, half a second behind."""

    def parts(second: int) -> dict[str, Any]:
        clock = at(second) + (1_000_000_000 if standby else 0)
        written = second * 1000
        senders = [of(Standby, flush_lsn=written - 1000)] if not standby else []
        return {
            "pg.server": server(
                now_us=clock, start_us=2 if standby else 1, system_identifier="77", in_recovery=standby
            ),
            "pg.replication": of(
                Replication, now_us=clock, in_recovery=standby, lsn=written, receive_lsn=written - 500, standbys=senders
            ),
        }

    return parts


def test_a_primary_and_its_standby_measure_the_offset_by_wal_positions(tmp_path: Path) -> None:
    primary = seconds("a", of_pair(standby=False), boot="1")
    standby = seconds("b", of_pair(standby=True), ahead_us=AHEAD_US, boot="2")
    found = measured(tmp_path, primary, standby)
    assert found.offset_us is not None and found.error_us is not None
    assert abs(found.offset_us + AHEAD_US) <= found.error_us <= 1_100_000
    assert "WAL positions" in found.how
    mirrored = measured(tmp_path / "mirrored", standby, primary)
    assert mirrored.offset_us is not None and abs(mirrored.offset_us - AHEAD_US) <= found.error_us


def test_an_offset_that_nothing_shows_is_not_known(tmp_path: Path) -> None:
    found = measured(
        tmp_path, seconds("a", of_server(1), boot="1"), seconds("b", of_server(1, identifier="78"), boot="2")
    )
    assert found.offset_us is None and "different clusters" in found.how


def test_clocks_that_both_kernels_call_synchronized_differ_by_their_errors_at_most(tmp_path: Path) -> None:
    def parts(identifier: str, error_us: int) -> Any:
        settings = {"host.settings": of(HostSettings, clock_error_us=error_us)}
        return lambda second: {**of_server(1, identifier)(second), **settings}

    found = measured(tmp_path, seconds("a", parts("77", 900), boot="1"), seconds("b", parts("78", 700), boot="2"))
    assert (found.offset_us, found.error_us) == (0, 1600)


def test_readings_that_contradict_each_other_give_no_offset(tmp_path: Path) -> None:
    about, samples = seconds("b", of_server(1), boot="2")
    stepped = [replace(one, wall_us=one.wall_us + (SECOND if one.seq > 60 else 0)) for one in samples]
    found = measured(tmp_path, seconds("a", of_server(1), boot="1"), (about, stepped))
    assert found.offset_us is None and "a clock was set" in found.how
