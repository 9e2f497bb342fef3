"""WAL on its way into the archive and to the standbys: what does not move is told, with the date it ends in."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.findings import wal
from dba_console.findings.rule import Rule
from dba_console.limits import Limits
from dba_console.limits.wal import WalLimits
from dba_console.samples import host, postgres
from dba_console.samples.findings import Conclusion
from tests.readings import activity, mount, of, sessions
from tests.unit.findings.watching import Watching, only, primary

GB = 1 << 30
MB = 1 << 20
SEGMENT = 16 * MB
HOUR = 3600.0


def rule(name: str) -> Rule:
    return next(one for one in wal.RULES if one.name == name)


def disk(available: int = 1000 * GB, **fields: Any) -> host.Mounts:
    made = {"size": 2000 * GB, "used": 1000 * GB, "available": available, "holds": ["data", "wal"]}
    return host.Mounts([mount("/pg", **{**made, **fields})], {})


# -- archiving -------------------------------------------------------------------------------------------------------


class Archive:
    """An archiver that archived ten files, the last a minute before the first tick."""

    def __init__(self, available: int = 1000 * GB) -> None:
        self.watching = Watching(rule("archive-failing"), rule("archive-backlog"))
        self.archived_at: int | None = self.watching.ago(60)
        self.watching.sees({"pg.server": primary(), "host.mounts": disk(available)})

    def reads(self, *, failed: int = 0, failed_s: float | None = None, ready: int | None = 0, **fields: Any) -> Any:
        """What is concluded; the last of `failed` failures was `failed_s` seconds ago."""
        made = {
            "enabled": True,
            "archived_count": 10,
            "last_archived_wal": "00000001000000000000002A",
            "last_archived_at": self.archived_at,
            "failed_count": failed,
            "last_failed_wal": None if failed_s is None else "00000001000000000000002B",
            "last_failed_at": None if failed_s is None else self.watching.ago(failed_s),
            "ready_count": ready,
        }
        return self.watching.sees({"pg.archiver": of(postgres.Archiver, **{**made, **fields})})


def test_the_first_failure_is_a_warning_that_names_the_file() -> None:
    archive = Archive()
    assert archive.reads() == {}
    found = only(archive.reads(failed=1, failed_s=0.5, ready=1))
    assert (found.id, found.severity, found.runbook) == ("archive-failing", "warning", "archive-failing")
    assert "WAL file 00000001000000000000002B failed: 1 file (16.0 MB) waits" in found.text


def test_the_third_failure_in_a_row_is_critical() -> None:
    archive = Archive()
    archive.reads(failed=7)
    archive.reads(failed=8, failed_s=0.5, ready=1)
    found = only(archive.reads(failed=10, failed_s=0.5, ready=1))
    assert found.severity == "critical"
    assert "failed 3 times in a row" in found.text


def test_it_is_over_when_a_file_was_archived_again() -> None:
    archive = Archive()
    archive.reads(failed=1, failed_s=0.5, ready=1)
    for _ in range(12):
        archive.archived_at = archive.watching.ago(0.1)
        findings = archive.reads(failed=1, failed_s=60, ready=0)
    assert findings == {}


def test_a_row_of_failures_ends_with_a_file_that_was_archived() -> None:
    archive = Archive()
    archive.reads(failed=2, failed_s=0.5, ready=1)
    archive.archived_at = archive.watching.ago(0.1)
    archive.reads(failed=2, failed_s=30, ready=1)
    assert only(archive.reads(failed=3, failed_s=0, ready=1)).severity == "warning"


def test_an_archive_that_never_worked_counts_from_its_first_failure() -> None:
    archive = Archive()
    archive.archived_at = None
    found = only(archive.reads(failed=9, failed_s=3, ready=4, archived_count=0))
    assert found.severity == "critical"
    assert "9 times in a row" in found.text and "none was ever archived" in found.text


def test_a_server_that_writes_nothing_archives_nothing_and_that_is_no_finding() -> None:
    archive = Archive()
    archive.archived_at = archive.watching.ago(10 * 86_400)
    assert archive.reads() == {}


def test_a_failure_of_long_ago_that_left_nothing_waiting_is_no_finding() -> None:
    archive = Archive()
    assert archive.reads(failed=3, failed_s=30, ready=0) == {}


def test_counters_that_were_reset_say_nothing() -> None:
    archive = Archive()
    archive.reads(failed=5)
    archive.archived_at = None
    reset = archive.reads(archived_count=0, last_archived_wal=None, ready=1, stats_reset=archive.watching.ago(1))
    assert reset == {}


def test_without_archiving_nothing_is_said() -> None:
    archive = Archive()
    assert archive.reads(failed=3, failed_s=1, ready=200, enabled=False) == {}


def test_a_role_that_may_not_see_what_waits_is_told_of_the_failure_and_of_no_number() -> None:
    archive = Archive()
    found = only(archive.reads(failed=1, failed_s=0.5, ready=None))
    assert found.evidence["archive_ready_count"] is None
    assert "pg_monitor" in found.text


def test_the_date_of_the_full_disk_is_told_where_rate_and_room_are_known() -> None:
    archive = Archive(available=36 * GB)
    for tick in range(6):
        position = of(postgres.Replication, lsn=tick * 10 * MB, timeline=1)
        archive.watching.sees({"pg.replication": position})
    found = only(archive.reads(failed=1, failed_s=0.5, ready=1))
    assert found.evidence["full_in_s"] == pytest.approx(36 * GB / (10 * MB))
    assert "pg_wal fills its disk in 1h01" in found.text


def test_files_that_wait_though_nothing_fails_are_a_backlog() -> None:
    archive = Archive()
    assert archive.reads(ready=15) == {}
    found = only(archive.reads(ready=16))
    assert (found.id, found.severity) == ("archive-backlog", "warning")
    assert "16 files (256 MB) wait" in found.text
    assert only(archive.reads(ready=128)).severity == "critical"


def test_a_backlog_because_there_is_no_command_says_so() -> None:
    watching = Watching(rule("archive-backlog"))
    archiver = of(postgres.Archiver, enabled=True, ready_count=20)
    found = only(watching.sees({"pg.server": primary(set={"archive_command": ""}), "pg.archiver": archiver}))
    assert "there is no archive_command" in found.text


def test_a_backlog_that_is_being_worked_off_is_told_until_it_is_well_below() -> None:
    archive = Archive()
    archive.reads(ready=20)
    for _ in range(20):
        findings = archive.reads(ready=14)
    assert set(findings) == {"archive-backlog"}
    for _ in range(20):
        findings = archive.reads(ready=11)
    assert findings == {}


# -- slots -----------------------------------------------------------------------------------------------------------


class Slots:
    """A server with slots; WAL is at `lsn`. Read every two seconds, as the agent does."""

    def __init__(self, available: int | None = 1000 * GB, limits: Limits | None = None) -> None:
        names = ("slot-retention", "slot-lost", "standby-gone")
        self.watching = Watching(*(rule(name) for name in names), limits=limits)
        self.lsn = 100 * GB
        self.watching.sees({"pg.server": primary()})
        if available is not None:
            self.watching.sees({"host.mounts": disk(available)})

    def reads(self, *slots: postgres.Slot, standbys: list[postgres.Standby] | None = None) -> dict[str, Conclusion]:
        replication = of(postgres.Replication, lsn=self.lsn, timeline=1, slots=list(slots), standbys=standbys or [])
        return self.watching.sees({"pg.replication": replication}, after_s=2.0)

    def keeps(self, retained: int, name: str = "old", **fields: Any) -> postgres.Slot:
        made = {"name": name, "kind": "physical", "restart_lsn": self.lsn - retained, "wal_status": "reserved"}
        return of(postgres.Slot, **{**made, **fields})


def test_a_fresh_slot_is_no_finding() -> None:
    slots = Slots()
    assert slots.reads(slots.keeps(3 * SEGMENT)) == {}
    assert slots.reads(slots.keeps(0, restart_lsn=None)) == {}


def test_an_unread_slot_that_keeps_a_gigabyte_is_a_warning() -> None:
    slots = Slots()
    assert slots.reads(slots.keeps(900 * MB)) == {}
    found = only(slots.reads(slots.keeps(GB)))
    assert (found.id, found.severity) == ("slot-retention:old", "warning")
    assert found.text == "Slot old keeps 1.0 GB of WAL, nobody reads it"


def test_on_a_small_disk_a_tenth_of_what_is_free_is_much() -> None:
    slots = Slots(available=2 * GB)
    assert set(slots.reads(slots.keeps(220 * MB))) == {"slot-retention:old"}


def test_a_slot_that_grows_has_a_date_within_ten_seconds() -> None:
    slots = Slots(available=3 * GB)
    seconds = 0
    for tick in range(4):
        slots.lsn = 100 * GB + 20 * MB * tick
        assert slots.reads(slots.keeps(SEGMENT + 0)) == {}, "what keeps up is not told"
    kept = SEGMENT
    while seconds < 10:
        seconds, kept = seconds + 2, kept + 32 * MB
        findings = slots.reads(slots.keeps(kept))
        if findings:
            break
    found = only(findings)
    assert found.severity == "critical"
    assert found.evidence["full_in_s"] == pytest.approx(3 * GB / (16 * MB), rel=0.2)
    assert "the disk of pg_wal (/pg) is full in 3m" in found.text


def test_the_end_of_the_slot_comes_before_that_of_the_disk_where_it_is_limited() -> None:
    slots = Slots()
    for tick in range(8):
        kept = 512 * MB + 32 * MB * tick
        findings = slots.reads(slots.keeps(kept, safe_wal_size=GB - kept, wal_status="extended"))
    assert "the slot is lost (max_slot_wal_keep_size) in" in only(findings).text


def test_without_the_hosts_disks_there_is_no_date_and_none_is_invented() -> None:
    slots = Slots(available=None)
    for tick in range(8):
        findings = slots.reads(slots.keeps(2 * GB + 32 * MB * tick))
    found = only(findings)
    assert found.evidence["full_in_s"] is None
    assert "full" not in found.text


def test_a_slot_about_to_lose_its_wal_is_critical() -> None:
    slots = Slots()
    found = only(slots.reads(slots.keeps(GB, wal_status="unreserved", safe_wal_size=-5)))
    assert found.severity == "critical"
    assert "the next checkpoint may remove what it needs" in found.text


def test_a_standby_that_restarts_has_its_grace() -> None:
    slots = Slots()
    slots.reads(slots.keeps(2 * SEGMENT, active_pid=7))
    for tick in range(29):
        assert slots.reads(slots.keeps(2 * GB + tick * MB)) == {}
    slots.reads(slots.keeps(2 * GB))
    assert set(slots.reads(slots.keeps(2 * GB))) == {"slot-retention:old"}


def test_a_slot_whose_reader_catches_up_is_no_finding() -> None:
    slots = Slots()
    for tick in range(60):
        assert slots.reads(slots.keeps(20 * GB - tick * 100 * MB, active_pid=7)) == {}


def test_a_slot_that_is_read_more_slowly_than_wal_is_written_is_a_warning_after_a_minute() -> None:
    slots = Slots()
    for tick in range(60):
        findings = slots.reads(slots.keeps(2 * GB + tick * 10 * MB, active_pid=7))
    assert "it is read too slowly" in only(findings).text


def test_a_logical_slot_that_moves_in_steps_is_no_finding() -> None:
    slots = Slots()
    for tick in range(90):
        kept = 1200 * MB + (tick % 8) * 100 * MB
        assert slots.reads(slots.keeps(kept, kind="logical", active_pid=7)) == {}


def test_a_temporary_slot_goes_with_its_session_and_is_not_told() -> None:
    slots = Slots()
    assert slots.reads(slots.keeps(5 * GB, temporary=True)) == {}


@pytest.mark.parametrize("fields", [{"wal_status": "lost"}, {"invalidation_reason": "idle_timeout"}])
def test_a_lost_slot_is_told_with_what_must_be_built_anew(fields: dict[str, str]) -> None:
    slots = Slots()
    found = only(slots.reads(slots.keeps(5 * GB, kind="logical", **fields)))
    assert (found.id, found.severity) == ("slot-lost:old", "warning")
    assert "its subscriber cannot go on" in found.text


def test_a_slot_kept_for_a_standby_that_is_gone_is_one_finding() -> None:
    slots = Slots()
    streaming = standby("db3", pid=7, backend_start=slots.watching.ago(HOUR))
    slots.reads(slots.keeps(SEGMENT, active_pid=7), standbys=[streaming])
    for _ in range(40):
        findings = slots.reads(slots.keeps(2 * GB))
    found = only(findings)
    assert found.chain == ["slot-retention:old", "standby-gone:db3"]
    assert "nobody reads it because standby db3 is gone" in found.text
    assert found.runbook == "slot-retention"


# -- lag -------------------------------------------------------------------------------------------------------------


def standby(name: str = "db3", **fields: Any) -> postgres.Standby:
    made = {"application": name, "pid": 7, "state": "streaming", "client": "10.0.0.3:40112", "replay_lsn": 0}
    return of(postgres.Standby, **{**made, **fields})


def lagging(ticks: int, *, watching: Watching | None = None, in_recovery: bool = False, **fields: Any) -> Any:
    watching = watching or Watching(rule("replication-lag"))
    for _ in range(ticks):
        made: dict[str, Any] = {"lsn": 10 * GB, "timeline": 1, "in_recovery": in_recovery}
        replication = of(postgres.Replication, **{**made, **fields})
        findings = watching.sees({"pg.server": primary(), "pg.replication": replication}, after_s=2.0)
    return findings


def test_a_standby_behind_by_a_minute_is_a_warning_with_where_it_is_stuck() -> None:
    row = standby(sent_lsn=10 * GB, flush_lsn=10 * GB - MB, replay_lsn=10 * GB - 300 * MB, replay_lag_s=75.0)
    assert lagging(5, standbys=[row]) == {}
    found = only(lagging(7, standbys=[row]))
    assert (found.id, found.severity) == ("replication-lag:db3", "warning")
    assert found.text == "Standby db3 is behind by 1m15s, 300 MB of WAL, most of it not replayed"


def test_a_standby_behind_by_ten_minutes_is_critical() -> None:
    row = standby(sent_lsn=10 * GB - 300 * MB, flush_lsn=9 * GB, replay_lsn=9 * GB, replay_lag_s=700.0)
    assert only(lagging(7, standbys=[row])).severity == "critical"


def test_a_gigabyte_behind_is_told_whatever_the_time() -> None:
    row = standby(sent_lsn=8 * GB, flush_lsn=8 * GB, replay_lsn=8 * GB)
    assert "most of it not sent" in only(lagging(7, standbys=[row])).text


def test_a_standby_that_has_caught_up_is_not_behind_whatever_it_last_reported() -> None:
    row = standby(sent_lsn=10 * GB, flush_lsn=10 * GB, replay_lsn=10 * GB, replay_lag_s=700.0)
    assert lagging(7, standbys=[row]) == {}


def test_standbys_a_role_may_not_see_say_nothing() -> None:
    assert lagging(7, standbys=[standby(state=None, replay_lsn=None)]) == {}


def test_a_standby_that_replays_what_it_receives_is_not_behind_on_an_idle_primary() -> None:
    watching = Watching(rule("replication-lag"))
    stream = {"receive_lsn": 10 * GB, "receiver_status": "streaming", "replay_at": watching.ago(HOUR)}
    assert lagging(10, watching=watching, in_recovery=True, **stream) == {}


def test_a_paused_standby_says_that_it_is_paused() -> None:
    watching = Watching(rule("replication-lag"))
    stream = {"receive_lsn": 10 * GB + 50 * MB, "receiver_status": "streaming", "replay_paused": True}
    found = only(lagging(7, watching=watching, in_recovery=True, replay_at=watching.ago(120), **stream))
    assert "50.0 MB received and not replayed, replay is paused" in found.text
    assert "pg_wal_replay_resume" in (found.advice or "")


def test_a_standby_without_a_stream_is_told_and_warned_of_only_if_it_had_one() -> None:
    watching = Watching(rule("replication-lag"))
    assert only(lagging(7, watching=watching, in_recovery=True, replay_at=watching.ago(HOUR))).severity == "info"
    lagging(10, watching=watching, in_recovery=True, receive_lsn=10 * GB, receiver_status="streaming")
    later = lagging(7, watching=watching, in_recovery=True, replay_at=watching.ago(HOUR))
    assert only(later).severity == "warning"
    assert "no WAL is streaming in" in only(later).text


# -- standbys that are gone ------------------------------------------------------------------------------------------


class Standbys:
    def __init__(self, **settings: str) -> None:
        self.watching = Watching(rule("standby-gone"))
        self.watching.sees({"pg.server": primary(set=settings)})

    def reads(self, *rows: postgres.Standby, ticks: int = 1, note: str | None = None, waiting: int = 0) -> Any:
        for _ in range(ticks):
            commits = [activity(50 + number, "active", wait_event="SyncRep") for number in range(waiting)]
            replication = of(postgres.Replication, lsn=10 * GB, timeline=1, standbys=list(rows))
            self.watching.sees({"pg.activity": sessions(*commits, now_us=0)}, after_s=1.0)
            findings = self.watching.sees({"pg.replication": replication}, after_s=1.0, note=note)
        return findings

    def old(self, name: str = "db3", **fields: Any) -> postgres.Standby:
        return standby(name, backend_start=self.watching.ago(HOUR), **fields)


def test_a_standby_that_streamed_for_an_hour_is_missed_after_ten_seconds() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old())
    assert standbys.reads(ticks=4) == {}
    found = only(standbys.reads())
    assert (found.id, found.severity) == ("standby-gone:db3", "warning")
    assert "after it had streamed for 1h00" in found.text


def test_it_is_over_as_soon_as_the_standby_is_back_with_another_process() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old())
    standbys.reads(ticks=8)
    assert standbys.reads(standby(pid=8, backend_start=standbys.watching.ago(1))) == {}


def test_a_standby_that_restarts_is_not_missed() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old())
    assert standbys.reads(ticks=4) == {}
    assert standbys.reads(standby(pid=8, backend_start=standbys.watching.ago(1)), ticks=20) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "pg_receivewal", "replay_lsn": None},
        {"name": "pg_basebackup", "state": "backup", "replay_lsn": None},
        {"name": "pg_16399_sync_16391_7431204485839012345"},
    ],
)
def test_backups_receivers_and_copies_of_one_table_come_and_go(fields: dict[str, Any]) -> None:
    standbys = Standbys()
    standbys.reads(standbys.old(**fields))
    assert standbys.reads(ticks=10) == {}


def test_a_standby_that_was_there_for_seconds_is_not_missed() -> None:
    standbys = Standbys()
    standbys.reads(standby(backend_start=standbys.watching.ago(5)), ticks=3)
    assert standbys.reads(ticks=10) == {}


def test_standbys_that_were_not_read_are_not_gone() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old())
    assert standbys.reads(ticks=10, note="standbys not known: canceling statement due to timeout") == {}


def test_time_nobody_watched_is_no_time_a_standby_was_away() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old())
    standbys.watching.loses("pg.replication", after_s=90.0)
    assert standbys.reads(ticks=4) == {}, "it has ten seconds from when somebody looks again"
    assert set(standbys.reads(ticks=3)) == {"standby-gone:db3"}


def test_a_subscriber_is_called_one() -> None:
    standbys = Standbys()
    slot = of(postgres.Slot, name="sub", kind="logical", active_pid=7)
    replication = of(postgres.Replication, lsn=10 * GB, timeline=1, standbys=[standbys.old("sub")], slots=[slot])
    standbys.watching.sees({"pg.replication": replication})
    assert only(standbys.reads(ticks=7)).text.startswith("Subscriber sub is gone")


def test_of_two_standbys_of_one_name_one_is_missed() -> None:
    standbys = Standbys()
    standbys.reads(standbys.old("walreceiver"), standbys.old("walreceiver", pid=9))
    assert set(standbys.reads(standbys.old("walreceiver"), ticks=7)) == {"standby-gone:walreceiver at 10.0.0.3 (2)"}


def test_where_commits_wait_for_the_one_that_is_gone_it_is_critical() -> None:
    standbys = Standbys(synchronous_standby_names="FIRST 1 (db3)")
    standbys.reads(standbys.old(sync_state="sync"))
    found = only(standbys.reads(ticks=7, waiting=4))
    assert found.severity == "critical"
    assert "commits wait for a synchronous standby (4 sessions wait now)" in found.text


def test_where_another_takes_its_place_it_is_not() -> None:
    standbys = Standbys(synchronous_standby_names="FIRST 1 (db3, db4)")
    standbys.reads(standbys.old(sync_state="sync"), standbys.old("db4", pid=9, sync_state="potential"))
    found = only(standbys.reads(standbys.old("db4", pid=9, sync_state="sync"), ticks=7))
    assert found.severity == "warning"


def test_commits_that_wait_for_a_standby_nobody_ever_saw_are_told() -> None:
    standbys = Standbys(synchronous_standby_names="db9")
    found = only(standbys.reads(ticks=7, waiting=2))
    assert (found.id, found.severity) == ("standby-gone", "critical")
    assert (
        found.text == "2 sessions wait for a standby to commit: synchronous_standby_names asks for 1 more than stream"
    )


# -- where WAL lies --------------------------------------------------------------------------------------------------


def placed(fstype: str, holds: list[str]) -> dict[str, Conclusion]:
    return Watching(rule("wal-on-tmpfs")).sees({"host.mounts": disk(fstype=fstype, holds=holds)})


def test_wal_in_memory_is_a_warning() -> None:
    found = only(placed("tmpfs", ["wal"]))
    assert found.severity == "warning"
    assert found.text == "WAL lies on tmpfs (/pg): a power cut or a reboot loses the cluster"


@pytest.mark.parametrize(("fstype", "holds"), [("xfs", ["wal"]), ("tmpfs", ["temp"])])
def test_wal_on_a_disk_is_none_and_temporary_files_in_memory_are_fine(fstype: str, holds: list[str]) -> None:
    assert placed(fstype, holds) == {}


def test_the_figures_are_those_of_the_configuration() -> None:
    slots = Slots(limits=Limits(wal=WalLimits(slot_retained_bytes=100 * MB)))
    assert set(slots.reads(slots.keeps(120 * MB))) == {"slot-retention:old"}
