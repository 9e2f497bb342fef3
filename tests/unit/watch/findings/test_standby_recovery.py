"""What a standby itself lacks: a WAL receiver, or replay that goes on; and what a delay that is meant allows."""

from __future__ import annotations

from typing import Any

from dba_console.watch.replication.readings import Replication
from dba_console.watch.replication.standby_rules import MAX_DELAY_POINTS
from tests.build import GB, MB, NOW_US
from tests.readings import of
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary

HOUR = 3600.0
NO_RECEIVER: dict[str, Any] = {"receive_lsn": 10 * GB, "primary_conninfo_set": True, "restore_command_set": False}
STREAM: dict[str, Any] = {
    "receiver_pid": 7,
    "receiver_status": "streaming",
    "receive_lsn": 10 * GB,
    "primary_conninfo_set": True,
}


class StandbyTicks:
    """A standby read every two seconds."""

    def __init__(self, *names: str, up_s: float = HOUR, **settings: str) -> None:
        self.watching = ReadingTicks(*(names or ("wal-receiver-down",)))
        start_us = NOW_US - int(up_s * 1e6)
        self.server = primary(in_recovery=True, start_us=start_us, set=settings)

    def tick(self, ticks: int = 1, *, after_s: float = 2.0, commit_s: float | None = None, **fields: Any) -> Any:
        for _ in range(ticks):
            made: dict[str, Any] = {"lsn": 10 * GB, "timeline": 1, "in_recovery": True, **fields}
            if commit_s is not None:
                made["replay_at"] = self.watching.ago(commit_s)
            seen = {"pg.server": self.server, "pg.replication": of(Replication, **made)}
            findings = self.watching.tick(seen, after_s=after_s)
        return findings


# -- no WAL receiver -------------------------------------------------------------------------------------------------


def test_a_standby_without_wal_since_its_start_is_reported_once_replay_is_seen_to_stop() -> None:
    standby = StandbyTicks(up_s=18 * 60)
    assert standby.tick(**{**NO_RECEIVER, "receive_lsn": None}) == {}
    found = only(standby.tick(**{**NO_RECEIVER, "receive_lsn": None}))
    assert (found.id, found.severity) == ("wal-receiver-down", "warning")
    assert found.text == (
        "This standby receives no WAL: no WAL receiver is streaming since the server started 18m04s ago"
    )
    assert "log" in (found.advice or "")


def test_a_receiver_that_requested_a_segment_start_has_received_nothing_yet() -> None:
    found = only(StandbyTicks().tick(2, **{**NO_RECEIVER, "lsn": 10 * GB + MB}))
    assert "streaming since the server started" in found.text


def test_wal_from_an_archive_does_not_mean_that_nothing_was_received() -> None:
    fields: dict[str, Any] = {**NO_RECEIVER, "lsn": 10 * GB + MB, "restore_command_set": True}
    assert StandbyTicks().tick(12, **fields) == {}


def test_a_standby_that_just_started_gets_half_a_minute() -> None:
    standby = StandbyTicks(up_s=5)
    assert standby.tick(12, **{**NO_RECEIVER, "receive_lsn": None}) == {}
    assert standby.tick(3, **{**NO_RECEIVER, "receive_lsn": None}) != {}


def test_a_console_started_after_the_break_reports_it_within_eight_seconds() -> None:
    standby = StandbyTicks()
    assert standby.tick(4, commit_s=14 * 60, **NO_RECEIVER) == {}
    found = only(standby.tick(commit_s=14 * 60, **NO_RECEIVER))
    assert "the last transaction replayed was committed 14m" in found.text


def test_a_known_receiver_gets_the_time_of_a_restart_of_the_primary() -> None:
    standby = StandbyTicks()
    standby.tick(commit_s=HOUR, **STREAM)
    assert standby.tick(15, commit_s=HOUR, **NO_RECEIVER) == {}
    assert standby.tick(3, commit_s=HOUR, **STREAM) == {}
    assert standby.tick(15, commit_s=HOUR, **NO_RECEIVER) == {}
    assert set(standby.tick(3, commit_s=HOUR, **NO_RECEIVER)) == {"wal-receiver-down"}


def test_a_waiting_receiver_receives_nothing() -> None:
    standby = StandbyTicks()
    assert standby.tick(20, **{**STREAM, "receiver_status": "waiting"}) != {}


def test_a_standby_that_catches_up_from_its_archive_is_not_reported() -> None:
    standby = StandbyTicks()
    for tick in range(30):
        behind = (30 - tick) * 16 * MB
        fields: dict[str, Any] = {
            **NO_RECEIVER,
            "receive_lsn": None,
            "restore_command_set": True,
            "lsn": 10 * GB - behind,
        }
        assert standby.tick(commit_s=HOUR, **fields) == {}


def test_with_hidden_primary_conninfo_a_standby_without_archive_is_still_detected() -> None:
    hidden = {**NO_RECEIVER, "primary_conninfo_set": None}
    assert set(StandbyTicks().tick(6, commit_s=HOUR, **hidden)) == {"wal-receiver-down"}
    assert StandbyTicks().tick(30, commit_s=HOUR, **{**hidden, "restore_command_set": True}) == {}


def test_a_primary_needs_no_receiver() -> None:
    assert StandbyTicks().tick(30, **{**NO_RECEIVER, "in_recovery": False}) == {}


def test_a_delayed_standby_starts_its_receiver_late_which_is_info_until_the_delay_is_over() -> None:
    fields: dict[str, Any] = {**NO_RECEIVER, "receive_lsn": None}
    found = only(StandbyTicks(up_s=120, recovery_min_apply_delay="3600000").tick(2, **fields))
    assert found.severity == "info"
    assert "recovery_min_apply_delay (1h00)" in found.text
    assert only(StandbyTicks(up_s=2 * HOUR, recovery_min_apply_delay="3600000").tick(2, **fields)).severity == "warning"


def test_old_data_because_nothing_is_received_is_one_finding() -> None:
    standby = StandbyTicks("wal-receiver-down", "replication-lag")
    found = only(standby.tick(6, commit_s=HOUR, **NO_RECEIVER))
    assert found.text == (
        "This standby shows data committed 1h00 ago because it receives no WAL: no WAL receiver is streaming"
    )


# -- replay paused ---------------------------------------------------------------------------------------------------


def test_a_paused_replay_is_reported_from_the_first_reading_even_without_a_replayed_commit() -> None:
    found = only(StandbyTicks("replay-paused").tick(lsn=10 * GB - 144 * MB, replay_paused=True, **STREAM))
    assert (found.id, found.severity) == ("replay-paused", "warning")
    assert found.text == "Replay on this standby is paused: 144 MB of WAL received and not replayed"
    assert "pg_wal_replay_resume" in (found.advice or "")


def test_recovery_stopped_at_its_target_is_info_and_states_the_effect_of_resuming() -> None:
    found = only(StandbyTicks("replay-paused", recovery_target_time="2026-11-20 14:53:07").tick(replay_paused=True))
    assert (found.severity, found.text) == ("info", "Replay on this standby is paused, with recovery_target_time set")
    assert "becomes a primary" in (found.advice or "")


# -- a delay that is meant -------------------------------------------------------------------------------------------


def delayed() -> StandbyTicks:
    return StandbyTicks("replication-lag", recovery_min_apply_delay="600000")


def test_a_delayed_standby_may_lag_by_its_delay_however_old_the_last_commit_is() -> None:
    standby = delayed()
    for _ in range(300):
        assert standby.tick(commit_s=HOUR, **{**STREAM, "receive_lsn": 12 * GB}) == {}


def test_a_delayed_standby_that_replays_too_late_is_reported_with_its_lag() -> None:
    standby, waiting = delayed(), {**STREAM, "receive_lsn": 10 * GB + 50 * MB}
    standby.tick(300, commit_s=HOUR, **waiting)
    found = only(standby.tick(40, commit_s=HOUR, **waiting))
    assert found.text == (
        "This standby is behind by 1m18s more than its recovery_min_apply_delay of 10m, "
        "50.0 MB received and not replayed"
    )


def test_a_delayed_standby_that_replays_on_time_is_never_late() -> None:
    standby, step = delayed(), 1 * MB
    for tick in range(800):
        replayed = 10 * GB + max(0, tick - 300) * step
        fields: dict[str, Any] = {**STREAM, "receive_lsn": 10 * GB + tick * step, "lsn": replayed}
        assert standby.tick(commit_s=601, **fields) == {}


def test_the_memory_of_a_replay_stuck_for_hours_is_limited() -> None:
    standby, step = StandbyTicks("replication-lag", recovery_min_apply_delay="10000"), 1 * MB
    for tick in range(1000):
        fields: dict[str, Any] = {**STREAM, "receive_lsn": 11 * GB + tick * step}
        found = standby.tick(commit_s=601, **fields)
    assert "behind by 33m06s more" in only(found).text
    assert len(standby.watching.memo("replication-lag")["received"]) <= 2 * MAX_DELAY_POINTS
