"""The console itself: blind, late, stuck, not recording; and what is none of these."""

from __future__ import annotations

from typing import Any

from dba_console.agent.server_service import failure_text as told_by_the_agent
from dba_console.watch.console.rules import FAMILY
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed
from dba_console.watch.samples import host
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.sample import Status
from tests.readings import of, sessions
from tests.unit.watch.findings.reading_ticks import PartTicks


def agent_health(**fields: Any) -> dict[str, Any]:
    return {"self": of(AgentHealth, **{"recording": "ok", **fields})}


def ticks(count: int, read: dict[str, Any], part_ticks: PartTicks | None = None, **more: Any) -> PartTicks:
    """Tick `count` seconds with these readings."""
    part_ticks = part_ticks or PartTicks(*FAMILY.rules)
    for _ in range(count):
        part_ticks.tick(read, **more)
    return part_ticks


NO_SLOT = told_by_the_agent(ConnectFailed("no_slots", "connection failed: FATAL: sorry, too many clients already"))
BLIND: dict[str, tuple[Status, str | None]] = {
    "pg.activity": ("error", "no connection"),
    "pg.server": ("error", NO_SLOT),
}


def test_without_a_slot_it_states_what_it_still_sees() -> None:
    titles = host.ProcessTitles(1, [of(host.ProcessTitle, pid=5, kind="client backend")], 0)
    (row,) = ticks(3, {"host.titles": titles}, missing=BLIND).open
    assert (row.id, row.severity) == ("console-blind", "warning")
    assert row.text == (
        "The console has no connection: FATAL: sorry, too many clients already; sessions are counted by process titles"
    )
    (row,) = ticks(3, {}, missing=BLIND).open
    assert row.text.endswith("nothing is known about the sessions")


def test_a_moment_without_a_slot_is_not_reported() -> None:
    assert ticks(2, {}, missing=BLIND).open == []


def test_ticks_are_late_by_half_their_interval_several_times_in_a_row() -> None:
    part_ticks = ticks(2, agent_health())
    ticks(4, agent_health(late_us=600_000), part_ticks)
    ticks(1, agent_health(late_us=400_000), part_ticks)
    ticks(4, agent_health(late_us=600_000), part_ticks)
    assert part_ticks.changes == []
    (row,) = ticks(1, agent_health(late_us=600_000), part_ticks).open
    assert (row.rule, row.evidence["late_ticks"], row.evidence["interval_s"]) == ("console-late", 5, 1.0)


def test_an_unanswered_query_is_reported_after_two_of_its_periods_and_half_a_minute() -> None:
    late: dict[str, tuple[Status, str | None]] = {"pg.sizes": ("timeout", "canceled after 2 s")}
    part_ticks = ticks(1, {"pg.activity": sessions(), **agent_health()}, missing=late)
    ticks(299, {"pg.activity": sessions(), **agent_health()}, part_ticks)
    assert part_ticks.changes == []
    (row,) = ticks(1, {"pg.activity": sessions(), **agent_health()}, part_ticks, missing=late).open
    assert row.id == "console-late:unanswered"
    assert row.text == "No answer within the time limit for 5m: database sizes"
    assert row.evidence["note"] == "canceled after 2 s"


def test_a_silent_server_is_not_a_late_console() -> None:
    silent: dict[str, tuple[Status, str | None]] = {"pg.activity": ("timeout", "late"), "pg.locks": ("timeout", "late")}
    assert ticks(90, agent_health(), missing=silent).changes == []


def test_a_stuck_lane_is_named_after_three_seconds() -> None:
    part_ticks = ticks(3, agent_health(lanes=["statvfs /mnt/\x1bnfs"], stuck_lanes=1))
    assert part_ticks.open == []
    (row,) = ticks(1, agent_health(lanes=["statvfs /mnt/\x1bnfs"], stuck_lanes=1), part_ticks).open
    assert row.id == "lane-stuck:statvfs /mnt/␛nfs"
    assert row.advice is not None and row.advice.startswith("df would hang")
    ticks(5, agent_health(), part_ticks)
    assert part_ticks.open == []


def test_a_stuck_server_lane_is_left_to_the_rule_for_silent_servers() -> None:
    assert ticks(9, agent_health(lanes=["postgres"], stuck_lanes=1)).changes == []


def test_a_failed_recording_is_reported_at_once_and_a_lagging_one_after_ten_seconds() -> None:
    failed = agent_health(recording="failed", recording_note="not recording: no space left")
    (row,) = ticks(1, failed).open
    assert (row.id, row.text) == ("recording-lags", "Nothing is recorded: no space left")
    lagging = agent_health(recording="lagging", recorder_lag_us=17_000_000)
    part_ticks = ticks(10, lagging)
    assert part_ticks.open == []
    (row,) = ticks(1, lagging, part_ticks).open
    assert row.text == "The recording is 17s behind"


def test_dropped_samples_are_reported_for_five_minutes() -> None:
    part_ticks = ticks(1, agent_health(dropped=3))
    assert part_ticks.open == [], "what was lost before is no news"
    (row,) = ticks(1, agent_health(dropped=5), part_ticks).open
    assert row.text == "5 samples are missing in the recording: its disk was too slow"
    ticks(320, agent_health(dropped=5), part_ticks)
    assert part_ticks.open == []


def test_an_agent_that_intentionally_does_not_record_is_not_reported() -> None:
    assert ticks(30, agent_health(recording="off")).changes == []
