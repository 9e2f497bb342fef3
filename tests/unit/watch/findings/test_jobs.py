"""Dumps late, missing, and stored in the wrong place: reported from the agent's history, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.rule_engine import RULES as REGISTERED
from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture
from dba_console.watch.progress.rules import FAMILY
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.samples.jobs import Jobs, JobStatistics, RunningJob
from tests.build import NOW_US, part, sample
from tests.readings import activity, mount, server, sessions

HOUR_S = 3600.0
NIGHTLY_DUMP = JobStatistics(
    kind="pg_dump",
    database="appdb",
    user="backup",
    runs=12,
    usual_s=3720.0,
    interval_s=24 * HOUR_S,
    intervals=11,
    longest_interval_s=24.5 * HOUR_S,
    last_ended_us=NOW_US - int(20 * HOUR_S * 1e6),
    last_s=3700.0,
    watched_since_us=NOW_US - int(1000 * HOUR_S * 1e6),
)
DUMP = activity(
    8001, "active", application="pg_dump", user="backup", wait_event_type="Client", wait_event="ClientWrite"
)


def runs_for(seconds: float | None, **fields: object) -> RunningJob:
    return structs.replace(RunningJob("pg_dump", "appdb", "backup", 8001, NOW_US, seconds), **fields)


def ago(hours: float) -> int:
    return NOW_US - int(hours * HOUR_S * 1e6)


class JobTicks:
    """A rule engine with readings of jobs and sessions made by hand."""

    def __init__(self, limits: Limits | None = None, rules: Sequence[Rule] = FAMILY.rules) -> None:
        self.engine = RuleEngine(limits or Limits(), rules)
        self.picture = Picture()

    def tick(
        self,
        at_s: float,
        past: list[JobStatistics] | None = None,
        running: list[RunningJob] | None = None,
        rows: list[postgres.Activity] | None = None,
        waiters: list[postgres.LockWaiter] | None = None,
        *,
        connected: bool = True,
    ) -> list[FindingNow]:
        """What is open after a tick; without `past` the jobs were not read again, without `connected` nothing was."""
        parts = []
        if connected:
            seen = sessions(*(rows or []), now_us=NOW_US + int(at_s * 1e6))
            parts = [
                part("pg.activity", seen, at_s=at_s),
                part("pg.locks", postgres.Locks(waiters or [], []), at_s=at_s),
            ]
        else:
            parts = [part("pg.activity", None, at_s=at_s, status="error", note="no connection")]
        if past is not None or running is not None:
            reading = Jobs(NOW_US + int(at_s * 1e6), past or [], running or [])
            parts.append(part("jobs", reading, at_s=at_s))
        self.take(at_s, *parts)
        return self.engine.conclusions.rows

    def take(self, at_s: float, *parts: object) -> list[FindingChange]:
        made = sample(*parts, at_s=at_s, wall_us=NOW_US + int(at_s * 1e6))  # type: ignore[arg-type]
        self.picture = self.picture.with_sample(made)
        return self.engine.evaluate(self.picture, ChartHistory(), {})


def test_a_dump_beyond_its_typical_duration_is_late_and_names_its_waiting_sessions() -> None:
    waiters = [
        postgres.LockWaiter(pid, [8001], "relation", "AccessExclusiveLock", "public.orders", None) for pid in (1, 2, 3)
    ]
    rows = [DUMP, *(activity(pid, "active", wait_event_type="Lock", wait_event="relation") for pid in (1, 2, 3))]
    (found,) = JobTicks().tick(1, [NIGHTLY_DUMP], [runs_for(6120.0)], rows, waiters)
    assert found.text == ("pg_dump of appdb is overdue by 40m: 1h42, typical 1h02 (12 runs); 3 sessions wait for it")
    assert (found.id, found.severity) == ("dump-late:pg_dump/appdb/backup", "warning")
    assert found.evidence["elapsed_s"] == 6120.0
    assert found.evidence["usual_s"] == 3720.0
    assert found.evidence["blocks"] == 3
    assert found.since_us == NOW_US + 1_000_000 - 540_000_000, "since one and a half times the usual was over"
    assert found.advice is not None and "its own client (Client:ClientWrite)" in found.advice


def test_a_database_restored_in_part_is_reported_until_it_is_accepted_or_dropped() -> None:
    ticks, at = JobTicks(), 0
    half = postgres.Database(1, "shop_copy", "UTF8", 0, True, False, None, "/backup/shop")

    def tick(databases: list[postgres.Database], *rows: postgres.Activity) -> list[str]:
        nonlocal at
        for _ in range(8):  # raised after a minute
            at += 10
            now_us = NOW_US + at * 1_000_000
            parts = (
                part("pg.server", server(databases=databases), at_s=at),
                part("pg.activity", sessions(*rows, now_us=now_us), at_s=at),
            )
            ticks.take(at, *parts)
        return [f"{one.severity}: {one.text}" for one in ticks.engine.conclusions.rows]

    assert tick([half], activity(7, "active", database="shop_copy")) == [], "it is being restored"
    (found,) = tick([half])
    assert found == (
        "warning: Database shop_copy is restored only in part: "
        "the restore of /backup/shop is not finished or not accepted"
    )
    assert tick([structs.replace(half, restored_from=None)]) == []


def test_a_late_dump_and_its_waiters_are_one_finding() -> None:
    ticks = JobTicks(rules=REGISTERED)
    waiter = activity(1, "active", wait_event_type="Lock", wait_event="relation", query="alter table orders add x int")
    blocked = postgres.LockWaiter(1, [8001], "relation", "AccessExclusiveLock", "public.orders", NOW_US - 60_000_000)
    for second in range(1, 20):
        open_now = ticks.tick(second, [NIGHTLY_DUMP], [runs_for(6120.0 + second)], [DUMP, waiter], [blocked])
    (found,) = open_now
    assert found.id == "dump-late:pg_dump/appdb/backup"
    assert found.chain == ["dump-blocks", "dump-late:pg_dump/appdb/backup"]
    assert "; pg_dump of appdb is overdue (1h42, typical 1h02)" in found.text
    assert found.runbook == "lock-queue"


def test_a_dump_becomes_late_between_two_readings_of_the_jobs() -> None:
    ticks = JobTicks()
    assert ticks.tick(1, [NIGHTLY_DUMP], [runs_for(5575.0)], [DUMP]) == []
    assert ticks.tick(5, rows=[DUMP]) == []
    assert [row.rule for row in ticks.tick(7, rows=[DUMP])] == ["dump-late"]


@pytest.mark.parametrize(
    ("past", "running"),
    [
        pytest.param(NIGHTLY_DUMP, runs_for(3700.0), id="as long as usual"),
        pytest.param(NIGHTLY_DUMP, runs_for(1.0), id="only just begun"),
        pytest.param(NIGHTLY_DUMP, runs_for(0.0), id="begun in the future, by a clock set back"),
        pytest.param(NIGHTLY_DUMP, runs_for(None), id="its start is not known"),
        pytest.param(NIGHTLY_DUMP, runs_for(9000.0, user="somebody"), id="another job"),
        pytest.param(structs.replace(NIGHTLY_DUMP, usual_s=None, runs=2), runs_for(90_000.0), id="too few runs"),
        pytest.param(structs.replace(NIGHTLY_DUMP, usual_s=5.0), runs_for(500.0), id="a short one, a few minutes over"),
    ],
)
def test_a_dump_is_not_reported_as_late(past: JobStatistics, running: RunningJob) -> None:
    assert JobTicks().tick(1, [past], [running], [DUMP]) == []


def test_for_a_lost_server_it_is_unknown_whether_its_dump_still_runs() -> None:
    ticks = JobTicks()
    assert ticks.tick(1, [NIGHTLY_DUMP], [runs_for(3700.0)], [DUMP]) == []
    for second in range(2, 3000, 2):
        assert ticks.tick(second, connected=False) == []


def test_an_absent_dump_is_missed_with_the_time_the_last_one_finished() -> None:
    (found,) = JobTicks().tick(1, [structs.replace(NIGHTLY_DUMP, last_ended_us=ago(36.5))])
    assert found.id == "dump-missing:pg_dump/appdb/backup"
    assert found.text.startswith(
        "No pg_dump of appdb has finished for 1d12h, typically every 1d; the last finished at 20"
    )
    assert found.evidence["last_ended_age_s"] == pytest.approx(36.5 * HOUR_S, abs=2)


def test_of_a_possibly_unobserved_dump_only_the_watched_time_is_reported() -> None:
    past = structs.replace(NIGHTLY_DUMP, last_ended_us=ago(60), watched_since_us=ago(37))
    (found,) = JobTicks().tick(1, [past])
    assert found.text.startswith(
        "No pg_dump of appdb finished in the 1d13h observed, typically every 1d; the last observed finished"
    )


def test_a_missing_dump_clears_when_one_runs_and_stays_cleared_when_it_finished() -> None:
    ticks = JobTicks()
    late = structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40))
    assert len(ticks.tick(1, [late])) == 1
    for second in range(2, 14):
        open_now = ticks.tick(second, [late], [runs_for(float(second))], [DUMP])
    assert open_now == []
    assert ticks.tick(15, [structs.replace(NIGHTLY_DUMP, last_ended_us=NOW_US)]) == []


@pytest.mark.parametrize(
    "past",
    [
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(30)), id="half a day is not half a night late"),
        pytest.param(
            structs.replace(NIGHTLY_DUMP, last_ended_us=ago(70), longest_interval_s=72 * HOUR_S), id="weekends without"
        ),
        pytest.param(
            structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), watched_since_us=ago(20)), id="not watched so long"
        ),
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), runs=3), id="too few runs"),
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), intervals=2), id="too few known intervals"),
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), interval_s=None), id="no known interval"),
        pytest.param(
            structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), interval_s=600.0),
            id="taken by hand, one after another",
        ),
        pytest.param(
            structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), usual_s=0.4), id="too short to be seen for certain"
        ),
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40), kind="pg_restore"), id="a restore"),
        pytest.param(
            structs.replace(NIGHTLY_DUMP, last_ended_us=ago(-5)), id="finished in the future, by a clock set back"
        ),
        pytest.param(structs.replace(NIGHTLY_DUMP, last_ended_us=ago(300)), id="given up long ago"),
    ],
)
def test_a_dump_is_not_missed(past: JobStatistics) -> None:
    assert JobTicks().tick(1, [past]) == []


def test_a_dump_now_taken_by_another_user_is_not_missed() -> None:
    other = structs.replace(NIGHTLY_DUMP, user="backup2", last_ended_us=ago(10), intervals=0, interval_s=None)
    assert JobTicks().tick(1, [structs.replace(NIGHTLY_DUMP, last_ended_us=ago(40)), other]) == []


CUSTOM = structs.replace(NIGHTLY_DUMP, format="custom")
PLAIN = structs.replace(NIGHTLY_DUMP, format="plain", usual_s=60.0, last_s=60.0)


def test_a_dump_is_late_by_the_duration_of_its_own_format() -> None:
    both = [CUSTOM, PLAIN]
    assert JobTicks().tick(1, both, [runs_for(3700.0, format="custom")], [DUMP]) == []
    (found,) = JobTicks().tick(1, both, [runs_for(3700.0, format="plain")], [DUMP])
    assert found.id == "dump-late:pg_dump/appdb/backup/plain"
    assert found.text.startswith("pg_dump of appdb (plain) is overdue by 1h00: 1h01, typical 1m (")
    for unknown in ("directory", None):
        assert JobTicks().tick(1, both, [runs_for(90_000.0, format=unknown)], [DUMP]) == []


def test_a_dump_is_missed_beside_one_of_another_format_but_not_after_a_change_of_format() -> None:
    gone = structs.replace(CUSTOM, last_ended_us=ago(40))
    (found,) = JobTicks().tick(1, [gone, structs.replace(PLAIN, last_ended_us=ago(10))])
    assert found.id == "dump-missing:pg_dump/appdb/backup/custom"
    assert found.text.startswith("No pg_dump of appdb (custom) has finished for 1d16h")
    new = structs.replace(PLAIN, last_ended_us=ago(10), runs=2, intervals=1, interval_s=24 * HOUR_S)
    assert JobTicks().tick(1, [gone, new]) == []


def holding(*held: str, path: str = "/srv", source: str = "/dev/vda1") -> host.Mount:
    return mount(path, holds=list(held), source=source)


def test_archived_wal_on_the_data_file_system_is_reported_with_the_consequence() -> None:
    ticks = JobTicks()
    ticks.take(1, part("host.mounts", host.Mounts([holding("archive", "data", "wal")], {}), at_s=1))
    (found,) = ticks.engine.conclusions.rows
    assert found.id == "wal-beside-backups:/srv"
    assert found.text.startswith("Archived WAL and the server's data and WAL share /srv: removing a large file there")
    assert found.advice is not None and "remove-backup" in found.advice
    assert found.runbook == "remove-backup"


def test_a_file_system_mounted_twice_is_one() -> None:
    ticks = JobTicks()
    bound = [holding("data", "wal"), holding("archive", path="/backup")]
    ticks.take(1, part("host.mounts", host.Mounts(bound, {}), at_s=1))
    (found,) = ticks.engine.conclusions.rows
    assert "share one file system (/dev/vda1 on /srv, /backup)" in found.text


def test_two_memory_file_systems_are_two_whatever_their_source_name() -> None:
    ticks = JobTicks()
    apart = [holding("data", "wal", source="tmpfs"), holding("archive", path="/backup", source="tmpfs")]
    ticks.take(1, part("host.mounts", host.Mounts(apart, {}), at_s=1))
    assert ticks.engine.conclusions.rows == []


def test_an_archive_on_its_own_file_system_is_well_placed() -> None:
    ticks = JobTicks()
    apart = [holding("data", "wal"), holding("archive", "session", path="/backup", source="/dev/vdb1")]
    ticks.take(1, part("host.mounts", host.Mounts(apart, {}), at_s=1))
    assert ticks.engine.conclusions.rows == []


def test_mounts_of_another_host_say_nothing_about_the_server() -> None:
    ticks = JobTicks()
    mounts = part("host.mounts", host.Mounts([holding("archive", "data")], {}), at_s=1)
    ticks.take(1, part("pg.server", server(local=False), at_s=1), mounts)
    assert ticks.engine.conclusions.rows == []
