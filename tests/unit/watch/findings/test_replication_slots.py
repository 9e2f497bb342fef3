"""Slots that retain WAL are reported with the fill estimate, and not while they are read."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.replication.readings import Replication, Slot, Standby
from dba_console.watch.replication.slot_rules import SlotLimits
from dba_console.watch.samples.findings import FindingNow
from tests.build import GB, MB
from tests.readings import of
from tests.unit.watch.findings.reading_ticks import SEGMENT, ReadingTicks, disk, only, primary, standby

HOUR = 3600.0


class SlotTicks:
    """A server with slots; WAL is at `lsn`. Read every two seconds, as the agent does."""

    def __init__(self, available: int | None = 1000 * GB, limits: Limits | None = None) -> None:
        names = ("slot-retention", "slot-lost", "standby-gone")
        self.watching = ReadingTicks(*names, limits=limits)
        self.lsn = 100 * GB
        self.watching.tick({"pg.server": primary()})
        if available is not None:
            self.watching.tick({"host.mounts": disk(available)})

    def tick(
        self, *slots: Slot, standbys: list[Standby] | None = None, in_recovery: bool = False
    ) -> dict[str, FindingNow]:
        replication = of(
            Replication, lsn=self.lsn, timeline=1, slots=list(slots), standbys=standbys or [],
            in_recovery=in_recovery,
        )  # fmt: skip
        return self.watching.tick({"pg.replication": replication}, after_s=2.0)

    def retain(self, retained: int, name: str = "old", **fields: Any) -> Slot:
        made = {"name": name, "kind": "physical", "restart_lsn": self.lsn - retained, "wal_status": "reserved"}
        return of(Slot, **{**made, **fields})


@pytest.fixture
def slots() -> SlotTicks:
    return SlotTicks()


def test_an_unread_slot_that_retains_a_gigabyte_is_a_warning(slots: SlotTicks) -> None:
    assert slots.tick(slots.retain(900 * MB)) == {}
    found = only(slots.tick(slots.retain(GB)))
    assert (found.id, found.severity) == ("slot-retention:old", "warning")
    assert found.text == "Slot old retains 1.0 GB of WAL, not read"


def test_a_slot_near_max_slot_wal_keep_size_is_reported_at_once_however_slowly_it_grows() -> None:
    def keeping(retained: int, **fields: Any) -> dict[str, FindingNow]:
        slots = SlotTicks()
        return slots.tick(slots.retain(retained, safe_wal_size=500 * MB - retained, wal_status="extended", **fields))

    assert keeping(390 * MB) == {}
    found = only(keeping(450 * MB))
    assert (found.id, found.severity) == ("slot-retention:old", "warning")
    assert found.text == (
        "Slot old retains 450 MB of WAL, not read: after 50.0 MB more the slot is lost (max_slot_wal_keep_size)"
    )
    assert only(keeping(480 * MB)).severity == "critical"
    assert keeping(480 * MB, active_pid=7) == {}, "its reader may catch up"


def test_on_a_small_disk_a_tenth_of_the_free_space_is_much() -> None:
    slots = SlotTicks(available=2 * GB)
    assert set(slots.tick(slots.retain(220 * MB))) == {"slot-retention:old"}


def test_a_growing_slot_has_a_fill_time_within_ten_seconds() -> None:
    slots = SlotTicks(available=3 * GB)
    seconds = 0
    for tick in range(4):
        slots.lsn = 100 * GB + 20 * MB * tick
        assert slots.tick(slots.retain(SEGMENT + 0)) == {}, "what keeps up is not told"
    kept = SEGMENT
    while seconds < 10:
        seconds, kept = seconds + 2, kept + 32 * MB
        findings = slots.tick(slots.retain(kept))
        if findings:
            break
    found = only(findings)
    assert found.severity == "critical"
    assert found.evidence["full_in_s"] == pytest.approx(3 * GB / (16 * MB), rel=0.2)
    assert "the disk of pg_wal (/pg) is full in 3m" in found.text


def test_the_limit_of_the_slot_is_reported_before_that_of_the_disk(slots: SlotTicks) -> None:
    for tick in range(8):
        kept = 512 * MB + 32 * MB * tick
        findings = slots.tick(slots.retain(kept, safe_wal_size=GB - kept, wal_status="extended"))
    assert "the slot is lost (max_slot_wal_keep_size) in" in only(findings).text


def test_without_the_disks_of_the_host_there_is_no_fill_time() -> None:
    slots = SlotTicks(available=None)
    for tick in range(8):
        findings = slots.tick(slots.retain(2 * GB + 32 * MB * tick))
    found = only(findings)
    assert found.evidence["full_in_s"] is None
    assert "full" not in found.text


def test_a_slot_about_to_lose_its_wal_is_critical(slots: SlotTicks) -> None:
    found = only(slots.tick(slots.retain(GB, wal_status="unreserved", safe_wal_size=-5)))
    assert found.severity == "critical"
    assert "the next checkpoint may remove what it needs" in found.text


def test_a_restarting_standby_has_a_grace_time(slots: SlotTicks) -> None:
    slots.tick(slots.retain(2 * SEGMENT, active_pid=7))
    for tick in range(29):
        assert slots.tick(slots.retain(2 * GB + tick * MB)) == {}
    slots.tick(slots.retain(2 * GB))
    assert set(slots.tick(slots.retain(2 * GB))) == {"slot-retention:old"}


def test_a_slot_whose_reader_catches_up_is_not_a_finding(slots: SlotTicks) -> None:
    for tick in range(60):
        assert slots.tick(slots.retain(20 * GB - tick * 100 * MB, active_pid=7)) == {}


def test_growth_before_its_reader_returned_says_nothing_of_the_reader(slots: SlotTicks) -> None:
    slots.tick(slots.retain(SEGMENT, active_pid=7))
    for tick in range(45):
        slots.tick(slots.retain(GB + tick * 30 * MB))
    for tick in range(60):
        kept = GB + 45 * 30 * MB + min(tick, 4) * 30 * MB
        findings = slots.tick(slots.retain(kept, active_pid=8))
        assert "too slowly" not in "".join(found.text for found in findings.values())
    assert findings == {}


def test_a_returned_reader_that_still_falls_behind_is_reported_after_half_a_minute(slots: SlotTicks) -> None:
    for tick in range(45):
        slots.tick(slots.retain(GB + tick * 30 * MB))
    reported = None
    for tick in range(45, 75):
        findings = slots.tick(slots.retain(GB + tick * 30 * MB, active_pid=8))
        if reported is None and any("too slowly" in found.text for found in findings.values()):
            reported = 2.0 * (tick - 45)
    assert reported is not None
    assert 30 <= reported <= 45


def test_a_reader_that_reconnects_is_one_reader(slots: SlotTicks) -> None:
    for tick in range(30):
        pid = None if tick % 4 == 3 else 100 + tick // 4
        findings = slots.tick(slots.retain(2 * GB + tick * 30 * MB, active_pid=pid))
    assert "read too slowly" in only(findings).text


def test_a_slot_read_more_slowly_than_wal_is_written_is_a_warning_within_a_minute(slots: SlotTicks) -> None:
    for tick in range(30):
        findings = slots.tick(slots.retain(2 * GB + tick * 10 * MB, active_pid=7))
    assert "read too slowly" in only(findings).text


def test_a_standby_behind_during_a_bulk_load_is_not_critical_an_hour_before_the_limit() -> None:
    slots = SlotTicks(available=300 * GB)
    for tick in range(60):
        findings = slots.tick(slots.retain(2 * GB + tick * 200 * MB, active_pid=7))
    found = only(findings)
    assert found.severity == "warning"
    assert "is full in 5" in found.text


def test_a_logical_slot_that_advances_in_steps_is_not_a_finding(slots: SlotTicks) -> None:
    for tick in range(90):
        kept = 1200 * MB + (tick % 8) * 100 * MB
        assert slots.tick(slots.retain(kept, kind="logical", active_pid=7)) == {}


def test_a_temporary_slot_ends_with_its_session_and_is_not_reported(slots: SlotTicks) -> None:
    assert slots.tick(slots.retain(5 * GB, temporary=True)) == {}


@pytest.mark.parametrize("fields", [{"wal_status": "lost"}, {"invalidation_reason": "idle_timeout"}])
def test_a_lost_slot_is_reported_with_what_must_be_rebuilt(fields: dict[str, str], slots: SlotTicks) -> None:
    found = only(slots.tick(slots.retain(5 * GB, kind="logical", **fields)))
    assert (found.id, found.severity, found.runbook) == ("slot-lost:old", "warning", "slot-retention")
    assert "its subscriber cannot continue" in found.text


def test_a_lost_slot_of_a_standby_names_the_runbook_that_rebuilds_it(slots: SlotTicks) -> None:
    found = only(slots.tick(slots.retain(5 * GB, wal_status="lost")))
    assert (found.id, found.runbook) == ("slot-lost:old", "standby-rebuild")


def test_a_slot_kept_for_a_lost_standby_is_one_finding(slots: SlotTicks) -> None:
    streaming = standby("db3", pid=7, backend_start=slots.watching.ago(HOUR))
    slots.tick(slots.retain(SEGMENT, active_pid=7), standbys=[streaming])
    for _ in range(40):
        findings = slots.tick(slots.retain(2 * GB))
    found = only(findings)
    assert found.chain == ["slot-retention:old", "standby-gone:db3"]
    assert "not read because standby db3 is gone" in found.text
    assert found.runbook == "slot-retention"


def test_the_thresholds_are_those_of_the_configuration() -> None:
    slots = SlotTicks(limits=Limits(SlotLimits(slot_retained_bytes=100 * MB)))
    assert set(slots.tick(slots.retain(120 * MB))) == {"slot-retention:old"}


def test_the_synchronized_copy_of_a_slot_is_not_a_slot_with_a_lost_reader(slots: SlotTicks) -> None:
    copy = slots.retain(2 * GB, kind="logical", synced=True)
    found = only(slots.tick(copy, in_recovery=True))
    assert found.text == "Slot old retains 2.0 GB of WAL, a copy of the primary's slot"
    assert "on the primary" in (found.advice or "") and "Start its subscriber" not in (found.advice or "")


def test_after_a_promotion_it_is_a_slot_like_others(slots: SlotTicks) -> None:
    found = only(slots.tick(slots.retain(2 * GB, kind="logical", synced=True)))
    assert "not read" in found.text
    assert "Start its subscriber" in (found.advice or "")


def test_a_lost_synchronized_copy_requires_no_rebuild(slots: SlotTicks) -> None:
    lost = slots.retain(5 * GB, kind="logical", synced=True, invalidation_reason="wal_removed")
    found = only(slots.tick(lost, in_recovery=True))
    assert found.text == (
        "Copied slot old is lost (wal_removed): after a failover to this standby its subscriber could not continue"
    )
    assert "the next synchronization copies it again" in (found.advice or "")
