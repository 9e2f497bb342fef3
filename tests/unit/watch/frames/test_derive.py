"""The whole frame: what stands where something is missing, and that nothing it is given makes it fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dba_console.watch import subjects
from dba_console.watch.connections.panel import derive_connections
from dba_console.watch.disks.panel import derive_disks
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.derive import derive, derive_own, derive_target
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.panel_status import DAMAGED, NOT_ON_THIS_HOST, NOT_READ
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.io.panel import derive_io
from dba_console.watch.locks.panel import derive_locks
from dba_console.watch.memory.panel import derive_memory
from dba_console.watch.panel import PanelFrame
from dba_console.watch.progress.panel import derive_progress
from dba_console.watch.replication.panel import derive_replication
from dba_console.watch.replication.readings import Replication
from dba_console.watch.safety.panel import derive_safety
from dba_console.watch.safety.readings import Xids
from dba_console.watch.samples import console, host
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part
from dba_console.watch.sessions.panel import derive_sessions
from dba_console.watch.subjects import PANEL_NAMES
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import activity, blank, busy_server, cpu, of, server, sessions

DERIVATIONS: tuple[Callable[[PictureFacts], Any], ...] = (
    derive_connections, derive_io, derive_memory, derive_safety, derive_progress, derive_locks, derive_replication,
    derive_disks, derive_sessions, derive_target, derive_own,
)  # fmt: skip


def frame(latest: Picture) -> Frame:
    return derive(latest, ChartHistory())


def panels(made: Frame) -> dict[str, PanelFrame]:
    return {name: getattr(made, name) for name in PANEL_NAMES}


def numbers(panel: PanelFrame) -> list[object]:
    """Every plain number of a panel, but for its age."""
    values = msgspec.structs.asdict(panel)
    return [
        value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("age_s", "hidden")
    ]


def test_before_the_first_read_every_number_is_unknown() -> None:
    made = frame(picture())
    for name, panel in panels(made).items():
        if name not in ("events", "cluster"):
            assert (panel.status, panel.note, panel.age_s, numbers(panel)) == ("stale", NOT_READ, None, []), name
    assert (made.target.state, made.target.role, made.own.cpu_pct) == ("disconnected", "unknown", None)


def test_a_status_and_its_note_reach_the_panel() -> None:
    latest = series({"host.cpu": [cpu()]}).with_sample(
        sample(part("host.cpu", None, at_s=2, status="denied", note="not readable"), at_s=2)
    )
    made = frame(latest)
    assert (made.io.status, made.io.note, made.io.age_s) == ("denied", "not readable", 1.0)


def test_a_secondary_part_only_adds_its_note() -> None:
    latest = picture(
        sample(part("host.cpu", cpu()), part("host.pressure", None, status="unsupported", note="no PSI here"))
    )
    made = frame(latest)
    assert made.io.status == "ok"
    assert made.io.note == "pressure stall information: no PSI here"


def test_a_value_older_than_three_ticks_is_stale_with_its_start() -> None:
    latest = series({"host.cpu": [cpu(), cpu()]})
    for at_s in (3, 4, 5, 6):
        latest = latest.with_sample(sample(at_s=at_s))
    made = frame(latest)
    assert (made.io.status, made.io.note, made.io.age_s) == ("stale", "last read 4.0s ago", 4.0)


def test_a_slow_part_is_not_stale_between_its_readings() -> None:
    latest = picture(sample(part("pg.xids", blank("pg.xids"), at_s=1), at_s=1), sample(at_s=55))
    assert frame(latest).safety.status == "ok"
    latest = latest.with_sample(sample(at_s=56)).with_sample(sample(at_s=57))
    assert frame(latest.with_sample(sample(at_s=70))).safety.status == "stale"


def test_a_remote_server_is_never_shown_with_numbers_of_this_host() -> None:
    parts = {**busy_server(10, 1), "pg.server": server(local=False, local_note="the server runs on db9")}
    made = frame(series({name: [reading] for name, reading in parts.items()}))
    for panel in (made.io, made.memory, made.disks):
        assert (panel.status, panel.note) == ("unsupported", "the server runs on db9")
        assert panel.age_s is None
    assert (numbers(made.io), made.io.devices, made.disks.mounts) == ([], [], [])
    assert made.connections.used == 10
    assert all(row.cpu_pct is None and row.rss_bytes is None for row in made.sessions.rows)


def test_a_remote_server_without_a_note_gets_one() -> None:
    assert frame(series({"pg.server": [server(local=False)]})).io.note == NOT_ON_THIS_HOST


def test_a_damaged_reading_is_an_error_of_its_panel_alone() -> None:
    damaged = Part("host.cpu", "ok", None, 1_000_000, 0, Raw(b"\xc1"))
    made = frame(picture(sample(damaged, part("pg.activity", sessions(activity(1))))))
    assert (made.io.status, made.io.note) == ("error", DAMAGED)
    assert made.connections.used == 1


def test_the_target_is_shown_with_uptime_by_the_server_clock() -> None:
    latest = picture(
        sample(part("pg.server", server()), at_s=1, wall_us=NOW_US - 2_000_000),
        sample(part("pg.activity", sessions(activity(1), now_us=NOW_US + 9_000_000), at_s=10), at_s=10),
    )
    target = frame(latest).target
    assert (target.version, target.server_version, target.state, target.timeline) == ("15.18", 150018, "connected", 3)
    assert (target.uptime_s, target.clock_offset_s) == (86_409.0, 2.0)


def test_a_locality_note_is_shown_only_while_undecided() -> None:
    answered = part("pg.activity", sessions(activity(1)))
    for local, reported in ((True, None), (None, "how")):
        latest = picture(sample(part("pg.server", server(local=local, local_note="how")), answered))
        assert frame(latest).target.note == reported


def test_limitations_of_a_pooler_are_reported_for_a_local_server_too() -> None:
    latest = picture(
        sample(
            part("pg.server", server(local=True, through="PgBouncer", local_note="no slot is held")),
            part("pg.activity", sessions(activity(1))),
        )
    )
    assert (frame(latest).target.through, frame(latest).target.note) == ("PgBouncer", "no slot is held")


def test_a_promoted_standby_is_a_primary_before_its_identity_is_read_again() -> None:
    latest = picture(
        sample(part("pg.server", server(in_recovery=True)), at_s=1),
        sample(part("pg.replication", of(Replication, now_us=NOW_US, timeline=4), at_s=3), at_s=3),
    )
    assert (frame(latest).target.role, frame(latest).target.timeline) == ("primary", 4)


def test_titles_without_an_answer_from_the_server_are_blind_mode() -> None:
    titles = host.ProcessTitles(900, [], 0)
    lost = part("pg.activity", None, at_s=2, status="error", note="no slot is free")
    target = frame(picture(sample(lost, part("host.titles", titles, at_s=2), at_s=2))).target
    assert (target.state, target.note) == ("blind", "no slot is free")


def test_the_reason_for_a_lost_connection_is_shown_at_the_target_and_not_in_every_panel() -> None:
    lost = [part(name, None, status="error", note="no connection") for name in ("pg.activity", "pg.locks")]
    latest = frame(picture(sample(*lost, part("pg.server", None, status="error", note="connection refused"))))
    assert (latest.target.state, latest.target.note) == ("disconnected", "connection refused")
    assert latest.locks.note == latest.sessions.note == "no connection"


def test_a_server_that_does_not_answer_in_time_is_still_connected() -> None:
    slow = part("pg.activity", None, at_s=2, status="timeout", note="no answer in 2 s")
    target = frame(picture(sample(slow, at_s=2))).target
    assert (target.state, target.note) == ("connected", "no answer in 2 s")


def test_the_console_reports_its_own_cost_in_the_interval() -> None:
    readings = [of(console.AgentHealth, cpu_us=at * 10_000, query_us=at * 3_000, queries=at) for at in (1, 2)]
    made = frame(series({"self": readings}, step_s=2)).own
    assert (made.cpu_pct, made.query_ms, made.queries, made.backend_cpu_pct) == (0.5, 3.0, 2, None)


def test_a_note_about_an_earlier_time_is_placed_at_that_time() -> None:
    note = Event(wall_us=NOW_US, kind="note", text="pages slow", occurred_us=NOW_US - 60_000_000)
    assert derive(picture(), ChartHistory(), [note]).events.rows[0].at == "2026-11-20T14:56:29Z"


def test_a_panel_that_cannot_be_derived_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(facts: PictureFacts) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setitem(subjects.panels(), "io", replace(subjects.panels()["io"], derive=fails))
    made = frame(series({"pg.activity": [sessions(activity(1))]}))
    assert (made.io.status, made.connections.used) == ("error", 1)
    assert made.io.note is not None and "unforeseen" in made.io.note


def test_points_hold_only_what_was_read_in_the_tick() -> None:
    latest = series({"pg.activity": [sessions(activity(1, "active"))] * 2, "pg.xids": [of(Xids, next_xid=7)]})
    assert point_of(latest)["connections.used"] == 1.0
    assert not any(name.endswith("next_xid") for name in point_of(latest))


def test_points_of_the_first_tick_have_no_rates() -> None:
    point = point_of(series({name: [reading] for name, reading in busy_server(20, 0).items()}))
    assert [name for name in point if name.endswith(("_per_s", "iowait_pct", "util_pct"))] == []


STATUSES = ("ok", "stale", "denied", "unsupported", "timeout", "error")
EXTREMES = (-1, 0, 1, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63))


def with_all_integers(reading: Any, number: int) -> Any:
    """The reading with every plain integer in it, at any depth, replaced by one number."""
    if isinstance(reading, bool):
        return reading
    if isinstance(reading, int):
        return number
    if isinstance(reading, float):
        return float(number)
    if isinstance(reading, list):
        return [with_all_integers(each, number) for each in reading]
    if isinstance(reading, msgspec.Struct):
        fields = {name: with_all_integers(getattr(reading, name), number) for name in reading.__struct_fields__}
        return type(reading)(**fields)
    return reading


def any_reading(name: str, tick: int) -> st.SearchStrategy[Any]:
    full = busy_server(12, tick).get(name, host.ProcessTitles(900, [], 1))
    return st.one_of(
        st.just(None),
        st.just(full),
        st.just(blank(name)),
        st.sampled_from(EXTREMES).map(lambda number: with_all_integers(full, number)),
    )


@st.composite
def pictures(draw: st.DrawFn) -> tuple[Picture, ChartHistory]:
    """Up to four ticks, each with any parts in any state, at any distance, by a clock that may step."""
    latest, history = Picture(), ChartHistory()
    at_s = 1.0
    for tick in range(draw(st.integers(1, 4))):
        at_s += draw(st.sampled_from((0.0, 0.25, 1.0, 5.0, 900.0)))
        parts = []
        for name in draw(st.lists(st.sampled_from(sorted(PARTS)), unique=True)):
            reading = draw(any_reading(name, tick))
            parts.append(part(name, reading, at_s=at_s, status=draw(st.sampled_from(STATUSES)), note="why"))
        wall_us = NOW_US + draw(st.sampled_from((0, tick * 1_000_000, -3_600_000_000)))
        boot = draw(st.sampled_from("ab"))
        latest = latest.with_sample(sample(*parts, at_s=at_s, seq=tick + 1, boot=boot, wall_us=wall_us))
        history.add(latest.wall_us, point_of(latest))
    return latest, history


@given(pictures())
def test_no_combination_of_parts_makes_a_panel_fail(given: tuple[Picture, ChartHistory]) -> None:
    facts = PictureFacts(*given)
    for derivation in DERIVATIONS:
        derivation(facts)
    msgspec.json.encode(derive(*given))


def test_a_slow_tick_does_not_make_the_next_ones_late() -> None:
    latest = picture(sample(at_s=1.6), sample(at_s=2.0), sample(at_s=3.0))
    assert latest.tick_us == 1_000_000, "the first one connected, and ended late"
    latest = latest.with_sample(sample(at_s=4.8)).with_sample(sample(at_s=5.0)).with_sample(sample(at_s=6.0))
    assert latest.tick_us == 1_000_000
