"""Settings a run did not revert are reported until reverted, most severe where durability is off."""

from __future__ import annotations

import pytest
from msgspec import structs

from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from dba_console.watch.samples.findings import FindingNow
from dba_console.watch.server.state_rules import STATE_RULES as RULES
from tests.build import NOW_US, part, sample

MEMORY = PendingRevertNow(
    "1", "work_mem", "in postgresql.auto.conf", None, "9MB", "r-1", "restore", "ann", NOW_US - 60_000_000,
    run_is_active=False, state="changed", found="9MB", risky=False,
)  # fmt: skip
SYNC = structs.replace(MEMORY, id="2", parameter="fsync", new="off", found="off", risky=True, trust="sound")


def findings_with(*reverts: PendingRevertNow, note: str | None = None) -> list[FindingNow]:
    """What is concluded of one reading."""
    judge = RuleEngine(Limits(), [rule for rule in RULES if rule.name == "settings-left"])
    made = structs.replace(part("reverts", PendingRevertsNow(NOW_US, reverts)), note=note)
    judge.evaluate(Picture().with_sample(sample(made)), ChartHistory(), {})
    assert judge.conclusions.failed == []
    return judge.conclusions.rows


def test_without_pending_reverts_nothing_is_reported() -> None:
    assert findings_with() == []


def test_an_active_run_reverts_it_itself() -> None:
    assert findings_with(structs.replace(MEMORY, run_is_active=True)) == []


def test_a_pending_revert_is_named_with_its_old_value_and_its_start() -> None:
    [row] = findings_with(MEMORY, structs.replace(MEMORY, id="3", parameter="max_wal_size", old="2GB", state="altered"))
    assert row.severity == "warning" and row.runbook == "put-back" and row.since_us == MEMORY.at_us
    assert row.text == "work_mem (9MB), max_wal_size (9MB) still differ from before run r-1"
    assert row.evidence["settings"] == [
        "work_mem = 9MB in postgresql.auto.conf, was not set",
        "max_wal_size = 9MB in postgresql.auto.conf, was 2GB; changed to another value since",
    ]
    assert row.evidence["who"] == ["ann"] and row.evidence["runs"] == ["r-1"]


def test_without_fsync_it_is_critical_and_reported_even_during_the_run() -> None:
    assert findings_with(MEMORY, SYNC)[0].severity == "critical"
    [row] = findings_with(structs.replace(SYNC, run_is_active=True), structs.replace(MEMORY, run_is_active=True))
    assert row.severity == "info" and "destroys the whole cluster" in row.text and "work_mem" not in row.text


@pytest.mark.parametrize(
    ("state", "trust", "severity", "expected"),
    [
        ("back", "sound", "warning", "fsync is as before run r-1; data written meanwhile"),
        ("pending", "sound", "warning", "only from the next restart"),
        ("unread", "sound", "critical", "only when the server reads its files"),
        ("back", "untrusted", "critical", "cannot be trusted, restore it from a backup"),
        ("changed", "untrusted", "critical", "cannot be trusted, restore it from a backup"),
        ("unknown", "unknown", "critical", "not known whether"),
    ],
)
def test_a_crash_in_between_is_reported_if_it_is_known(state: str, trust: str, severity: str, expected: str) -> None:
    [row] = findings_with(structs.replace(SYNC, state=state, trust=trust))
    assert row.severity == severity and expected in row.text
    assert ("trusted" in row.text) == (trust == "untrusted")


def test_if_the_server_has_not_answered_nothing_is_reported_about_its_settings() -> None:
    [row] = findings_with(structs.replace(MEMORY, state="unknown", found=None))
    assert row.text.startswith("Whether work_mem (9MB) is still set by run r-1, is not known")


def test_a_value_that_looks_like_a_secret_is_not_shown() -> None:
    [row] = findings_with(structs.replace(MEMORY, new="host=db1 password=s3cret", found="host=db1 password=s3cret"))
    assert "s3cret" not in row.text + str(row.evidence)


def test_an_unreadable_file_is_a_finding_of_its_own() -> None:
    rows = findings_with(MEMORY, note="/var/lib/dba-console/reverts/1.json cannot be read: Input/output error")
    assert {row.id for row in rows} == {"settings-left", "settings-left:unreadable"}
